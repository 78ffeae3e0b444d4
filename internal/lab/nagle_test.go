// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

// TestWriter: data under a cork are not read before the cork is removed.
func TestWriter(t *testing.T) {
	w := newWorld(t)
	const hold = 5 * time.Millisecond
	x, err := StartWriter(w, "writer", TCP4,
		Writes{Count: 3, Size: 10, Each: true},
		Writes{Count: 2, Size: 10, Cork: true, Hold: hold},
		Writes{Size: 50000, Fill: true, NoDelay: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.Run()
	if err != nil {
		t.Fatal(err)
	}
	check(t, "writes", out[0].Count, 3)
	check(t, "corked writes", out[1].Count, 2)
	if out[1].Held < int64(hold) || out[1].NS < out[1].Held {
		t.Errorf("held for %d of %d ns, want %d at least", out[1].Held, out[1].NS, hold)
	}
	if out[2].Count < 2 {
		t.Errorf("%d writes of 50000 bytes filled a socket", out[2].Count)
	}
}
