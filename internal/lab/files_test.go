// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestFiles(t *testing.T) {
	w := newWorld(t)
	f, err := StartFiles(w, "")
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, o := range out {
		if o.Type == "socket:inet" && o.Op == "read" {
			found = true
			check(t, "reads of socket:inet", o, FileCount{Op: "read", Type: "socket:inet", Count: 22, Bytes: 220})
		}
	}
	if !found {
		t.Errorf("no reads of socket:inet in %+v", out)
	}
}
