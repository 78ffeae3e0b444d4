// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net/netip"
	"testing"
	"time"

	"seine/internal/row/rowtest"
)

func connRow(m *Model, port, second, tx int) ConnKey {
	local, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	m.Row(rowtest.At(connRows, start.Add(time.Duration(second)*time.Second), map[string]any{
		"comm": "web", "netns": 7, "pid": 1, "laddr": local, "lport": port, "raddr": peer, "rport": 80, "role": "client", "turns": 1, "tx_bytes": tx, "rx_bytes": 1,
	}))
	return ConnKey{7, local, peer, uint16(port), 80}
}

// TestFollow: a connection has a history from when it is followed on, second by second, as long
// as the model goes back; others have none.
func TestFollow(t *testing.T) {
	m := New(Options{Keep: 60 * time.Second})
	connRow(m, 1, 0, 100)
	k := connRow(m, 1, 1, 101)
	m.Follow(k)
	for i := 2; i < 100; i++ {
		connRow(m, 1, i, 100+i)
		connRow(m, 2, i, 5)
	}
	connRow(m, 1, 99, 1000) // again in the same second
	past := m.History(k, start.Add(time.Hour))
	if len(past) != 60 || past[0].At != start.Unix()+40 || past[0].TX != 140 {
		t.Errorf("got %d seconds, the first %+v, want 60 from the 40th on", len(past), past[0])
	}
	if last := past[len(past)-1]; last.TX != 199+1000 || last.Turns != 2 {
		t.Errorf("two rows of a second: got %+v, want 1199 bytes, 2 turns", last)
	}
	if past := m.History(k, start.Add(50*time.Second)); len(past) != 11 {
		t.Errorf("up to the 50th second: got %d, want 11", len(past))
	}
	if past := m.History(ConnKey{Lport: 2}, start.Add(time.Hour)); past != nil {
		t.Errorf("one that is not followed has %v", past)
	}
}

// TestFollowBound: the connections that were asked for longest ago are given up.
func TestFollowBound(t *testing.T) {
	m := New(Options{})
	var keys []ConnKey
	for i := range mostFollowed + 1 {
		keys = append(keys, connRow(m, 1+i, 0, 1))
	}
	m.Follow(keys[:mostFollowed]...)
	m.Follow(keys[0])
	m.Follow(keys[mostFollowed])
	for i, want := range map[int]bool{0: true, 1: false, 2: true, mostFollowed: true} {
		if got := m.History(keys[i], start) != nil; got != want {
			t.Errorf("connection %d is followed: %v, want %v", i, got, want)
		}
	}
}

// TestAt: a window in the past ends there.
func TestAt(t *testing.T) {
	m := New(Options{})
	for i := range 60 {
		m.Row(rowtest.At(serviceRows, start.Add(time.Duration(i)*time.Second), map[string]any{"side": "in", "comm": "web", "netns": 7, "lport": 443, "conns": 1, "turns": i}))
	}
	v := m.At(start.Add(19*time.Second), 10*time.Second)
	if v.From != start.Add(10*time.Second) || v.To != start.Add(20*time.Second) || len(v.Services) != 1 || v.Services[0].Turns != 145 {
		t.Errorf("got %v to %v with %+v, want 145 turns from the 10th to the 20th second", v.From, v.To, v.Services)
	}
	if v := m.At(start.Add(time.Hour), 10*time.Second); v.To != start.Add(60*time.Second) {
		t.Errorf("a window after the end ends at %v", v.To)
	}
	if first, last := m.Span(); first != start || last != start.Add(59*time.Second) {
		t.Errorf("got %v to %v", first, last)
	}
}
