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
