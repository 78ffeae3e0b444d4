// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestAccepts(t *testing.T) {
	w := newWorld(t)
	a, err := StartAccepts(w, "", "accepts")
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Run()
	if err != nil {
		t.Fatal(err)
	}
	want := []unix.Errno{0, 0, 0, 0, unix.EBADF, unix.ENOTSOCK, unix.EINVAL, unix.EOPNOTSUPP, unix.EAGAIN, unix.EMFILE}
	if len(out) != len(want) {
		t.Fatalf("%d accepts, want %d", len(out), len(want))
	}
	for i, o := range out {
		check(t, o.Name, o.Errno, want[i])
		if o.Name == "descriptor 0" {
			check(t, o.Name, o.FD, 0)
		}
	}
}
