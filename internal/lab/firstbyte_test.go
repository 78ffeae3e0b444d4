// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestFirstBytes(t *testing.T) {
	w := newWorld(t)
	f, err := StartFirstBytes(w, "", "first", FirstByte{Network: TCP4, Read: Read}, FirstByte{Network: TCP6, Read: Splice, Late: true},
		FirstByte{Network: TCP4}, FirstByte{Network: UDP4, Read: Recvmmsg})
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 4 || out[0].Port == 0 || out[0].Port == out[2].Port {
		t.Errorf("%+v: want four connections from ports of their own", out)
	}
}
