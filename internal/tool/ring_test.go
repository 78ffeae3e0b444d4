// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"os"
	"sync"
	"testing"
	"time"

	"seine/internal/host"
	"seine/internal/object"
)

// TestRingEnds: a ring that had nothing to read may be closed as soon as sync has returned. Then the reader is about to rest.
func TestRingEnds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := host.Memlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := object.Spec("tcplife")
	if err != nil {
		t.Fatal(err)
	}
	rings := make([]*ring, 200)
	for i := range rings {
		if rings[i], err = newRing(spec, 1<<16, poll, nil); err != nil {
			t.Fatal(err)
		}
		rings[i].begin()
	}
	time.Sleep(restAfter - poll) // what makes a reader rest is silence
	var wg sync.WaitGroup
	for i, r := range rings {
		wg.Go(func() {
			time.Sleep(2 * poll * time.Duration(i) / time.Duration(len(rings)))
			r.sync()
			r.close()
		})
	}
	wg.Wait()
}

// TestRingBegins: the reader of a ring touches nothing before begin, and a ring that was never begun can be closed.
func TestRingBegins(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := host.Memlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := object.Spec("tcplife")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRing(spec, 1<<16, poll, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.woken.Set(uint64(7)); err != nil { // the reader sets it to zero at each poll
		t.Fatal(err)
	}
	woken := func() (n uint64) {
		if err := r.woken.Get(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	time.Sleep(3 * poll)
	if n := woken(); n != 7 {
		t.Errorf("the reader reads before it may begin: %d", n)
	}
	r.begin()
	for began := time.Now(); woken() != 0; time.Sleep(poll / 10) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the reader does not begin")
		}
	}
	r.close()
	if r, err = newRing(spec, 1<<16, poll, nil); err != nil {
		t.Fatal(err)
	}
	r.close()
}
