// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"testing"

	"seine/internal/kern"
)

// TestAgain: again counts the processes that have a socket open, not their descriptors.
func TestAgain(t *testing.T) {
	of := func(pid kern.ID32) *entry {
		e := &entry{}
		e.PID = pid
		return e
	}
	have := of(7)
	for _, pid := range []kern.ID32{7, 8, 8, 9} {
		again(have, of(pid))
	}
	whole([]*entry{have})
	if have.PID != 7 || have.Holders != 3 {
		t.Errorf("%d has it with %d holders, want 7 and 3", have.PID, have.Holders)
	}
}

// TestWhole: if several network namespaces use the same addresses, the peer is the one of the
// same namespace, or none.
func TestWhole(t *testing.T) {
	of := func(pid, netns kern.ID32, lport, rport uint16) *entry {
		e := &entry{}
		e.PID, e.Netns, e.Lport, e.Rport, e.Proto = pid, netns, lport, rport, protoTCP
		return e
	}
	alone := []*entry{of(1, 1, 10, 80), of(2, 2, 80, 10)}
	same := []*entry{of(1, 1, 10, 80), of(2, 1, 80, 10), of(3, 2, 80, 10)}
	unclear := []*entry{of(1, 1, 10, 80), of(2, 2, 80, 10), of(3, 3, 80, 10)}
	for _, c := range []struct {
		name string
		all  []*entry
		want kern.ID32
	}{{"one", alone, 2}, {"of the same namespace", same, 2}, {"unclear", unclear, 0}} {
		whole(c.all)
		if got := c.all[0].PeerPID; got != c.want {
			t.Errorf("%s: the peer is %d, want %d", c.name, got, c.want)
		}
	}
}
