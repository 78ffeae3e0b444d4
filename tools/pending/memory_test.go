// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"testing"
	"time"

	"seine/internal/kern"
)

const second = kern.Mono(time.Second)

// look is what a walk sees of a socket.
type look struct {
	what           what
	at, age        kern.Mono
	sent, received uint32
}

func (l look) hang() *hang {
	h := &hang{Sk: 1, What: l.what, Age: kern.Nanos(l.age), Sent: l.sent, Received: l.received}
	h.TS = l.at
	return h
}

// TestMemory: ages that come from walks, not from timestamps.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []look // of walks a second apart
		want  []kern.Mono
	}{
		{"data that keep coming are as old as the first ones", []look{{unread, 100 * second, second / 2, 0, 7}, {unread, 101 * second, second / 10, 0, 7}}, []kern.Mono{second / 2, 3 * second / 2}},
		{"data that come after a read are new", []look{{unread, 100 * second, second / 2, 0, 7}, {unread, 101 * second, second / 10, 0, 8}}, []kern.Mono{second / 2, second / 10}},
		{"what hung before the first walk is as old as its stamp", []look{{blocked, 100 * second, 9 * second, 5, 0}, {blocked, 101 * second, 10 * second, 5, 0}}, []kern.Mono{9 * second, 10 * second}},
		{"there was room at the walk before", []look{{0, 100 * second, 0, 0, 0}, {blocked, 101 * second, 9 * second, 5, 0}, {blocked, 102 * second, 10 * second, 5, 0}}, []kern.Mono{0, second, 2 * second}},
		{"a writer that went on is blocked anew", []look{{blocked, 100 * second, 3 * second, 5, 0}, {blocked, 101 * second, second / 4, 6, 0}}, []kern.Mono{3 * second, second / 4}},
	} {
		var m memory
		for i, l := range c.looks {
			var all []*hang
			if l.what != 0 {
				all = append(all, l.hang())
			}
			m.takeAt(all, l.at)
			if l.what != 0 && kern.Mono(all[0].Age) != c.want[i] {
				t.Errorf("%s: walk %d: %v old, want %v", c.name, i, time.Duration(all[0].Age), time.Duration(c.want[i]))
			}
		}
	}
}

// TestUnsure: a request that hung before a keepalive probe hangs after it too.
func TestUnsure(t *testing.T) {
	for _, c := range []struct {
		name  string
		first *look
		want  bool
	}{
		{"it hung", &look{request, 100 * second, 2 * second, 5, 7}, true},
		{"it was not seen to hang", nil, false},
		{"it had an answer since", &look{request, 100 * second, 2 * second, 5, 6}, false},
	} {
		var m memory
		if c.first != nil {
			m.takeAt([]*hang{c.first.hang()}, 100*second)
		}
		for i := range kern.Mono(3) {
			h := look{request, (101 + i) * second, (3 + i) * second, 5, 7}.hang()
			h.Unsure = true
			m.takeAt([]*hang{h}, h.TS)
			if h.Hidden == c.want {
				t.Errorf("%s: walk %d: shown: %v, want %v", c.name, i, !h.Hidden, c.want)
			}
		}
	}
}

// TestLone: a client that waits and then sends again without an answer expects
// none.
func TestLone(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks []look
		want  bool
	}{
		{"a line of a log now and then", []look{{request, 100 * second, 2 * second, 5, 7}, {request, 101 * second, second / 2, 6, 7}}, true},
		{"one request", []look{{request, 100 * second, 2 * second, 5, 7}, {request, 101 * second, 3 * second, 5, 7}}, false},
		{"the next request, after an answer", []look{{request, 100 * second, 2 * second, 5, 7}, {request, 101 * second, second / 2, 6, 8}}, false},
		{"a request in two parts", []look{{request, 100 * second, second / 2, 5, 7}, {request, 101 * second, second / 2, 6, 7}}, false},
	} {
		var m memory
		var last *hang
		for _, l := range c.looks {
			last = l.hang()
			m.takeAt([]*hang{last}, l.at)
		}
		if got := m.oneWay(last); got != c.want {
			t.Errorf("%s: wants no answer: %v, want %v", c.name, got, c.want)
		}
		m.takeAt(nil, 102*second+kern.Mono(loneFor)/2)
		if got := m.oneWay(last); got != c.want {
			t.Errorf("%s: half an hour later: %v, want %v", c.name, got, c.want)
		}
		last.Lport++
		if m.oneWay(last) {
			t.Errorf("%s: another connection wants no answer either", c.name)
		}
		last.Lport--
		for range 2 {
			m.takeAt(nil, m.at+kern.Mono(loneFor)+second)
		}
		if m.oneWay(last) {
			t.Errorf("%s: remembered for longer than %v", c.name, loneFor)
		}
	}
}
