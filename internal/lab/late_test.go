// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestLate(t *testing.T) {
	w := newWorld(t)
	l, err := StartLate(w, Late{Backlog: 7})
	if err != nil {
		t.Fatal(err)
	}
	var list []Attempt
	for range 5 {
		list = append(list, Attempt{Name: "late", Network: TCP4, Addr: l.Addr})
	}
	c, err := StartConnects(w, "", "early", list...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{l.Queued(5), l.Accept(3), l.Queued(2), l.Accept(2), l.Queued(0), l.End(), w.AwaitClosed("", l.Port)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
