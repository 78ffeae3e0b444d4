// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"seine/internal/row/rowtest"
)

// TestSeriesRoom: what a cell takes does not depend on how large its key is. Ports that were
// used once make most of the keys of a busy machine, and each of them is in many seconds.
func TestSeriesRoom(t *testing.T) {
	o := (Options{}).filled()
	s := newSeries[TallyKey, tallyCell](&o, o.Tallies)
	before := heap()
	const seconds, keys = 40, 2500
	for at := range int64(seconds) {
		for i := range keys {
			k := TallyKey{Kind: Closed, Who: Who{Comm: fmt.Sprint("worker", i), Netns: 1}, Lport: 443, Raddr: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Rport: uint16(i)}
			if c := s.cell(1000+at, k); c == nil {
				t.Fatal("no room")
			}
		}
	}
	each := (heap() - before) / (seconds * keys)
	runtime.KeepAlive(s)
	t.Logf("%d bytes for each cell", each)
	if each > 240 { // the cell itself has 144
		t.Errorf("%d bytes for each cell", each)
	}
}

// heap is how many bytes of the heap are in use.
func heap() uint64 {
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return mem.HeapAlloc
}

// TestConnsRoom: 100,000 connections of some processes take 40 MB at the most.
func TestConnsRoom(t *testing.T) {
	m := New(Options{})
	before := heap()
	const n = 100_000
	for i := range n {
		m.Row(rowtest.At(connRows, start, map[string]any{
			"comm": fmt.Sprint("worker", i%30), "netns": 7, "pid": i % 100, "laddr": netip.AddrFrom4([4]byte{10, 0, 0, 1}), "lport": 443,
			"raddr": netip.AddrFrom4([4]byte{192, 0, 2, byte(i >> 16)}), "rport": i & 0xffff, "role": "server", "turns": 2, "tx_bytes": i, "rx_bytes": 2 * i,
		}))
	}
	took := heap() - before
	seen := 0
	m.Window(time.Second).Conns(func(c *Conn) {
		if seen++; c.TX != uint64(c.Rport)|uint64(c.Raddr.As4()[3])<<16 || c.Role != "server" || c.Who.Comm != fmt.Sprint("worker", c.TX%30) || c.PID != uint32(c.TX%100) {
			t.Fatalf("%+v", *c)
		}
	})
	if seen != n {
		t.Errorf("%d connections, want %d", seen, n)
	}
	t.Logf("%d bytes for each connection", took/n)
	if took > 40<<20 {
		t.Errorf("%d bytes for each connection", took/n)
	}
}
