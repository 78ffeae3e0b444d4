// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestBinds(t *testing.T) {
	w := newWorld(t)
	b, err := StartBinds(w, "", "binder",
		Binding{Name: "free", Network: TCP4, Addr: "127.0.0.1:0"},
		Binding{Name: "first", Network: TCP6, Addr: "[::1]:7001"},
		Binding{Name: "second", Network: TCP6, Addr: "[::1]:7001", Want: unix.EADDRINUSE},
		Binding{Name: "foreign", Network: UDP4, Addr: "192.0.2.9:7002", Freebind: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.Run()
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Port == 0 || out[1].Port != 7001 || out[3].Port != 7002 {
		t.Errorf("ports %+v", out)
	}
}
