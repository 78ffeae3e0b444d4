// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSettle(t *testing.T) {
	w := newWorld(t, TwoHosts...)
	var fd, port int
	if err := w.Do("server", func() (err error) { fd, port, err = Bind(UDP4, UDP4.At(w.Addr4("server"), 0)); return err }); err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	var from int
	if err := w.Do("client", func() (err error) { from, err = Connect(UDP4, UDP4.At(w.Addr4("server"), port)); return err }); err != nil {
		t.Fatal(err)
	}
	defer Close(from)
	for range 101 {
		if _, err := unix.Write(from, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		if _, err := recv(fd, make([]byte, 1), unix.MSG_DONTWAIT); err != nil {
			t.Fatalf("a datagram that has settled: %v", err)
		}
	}
	if err := w.Grace(); err != nil {
		t.Error(err)
	}
}

func TestEnded(t *testing.T) {
	w := newWorld(t, TwoHosts...)
	c, err := w.Dial("client", "server")
	if err != nil {
		t.Fatal(err)
	}
	timeout := w.timeout
	w.timeout = 50 * time.Millisecond
	if err := w.Ended("client"); !errors.Is(err, ErrLate) {
		t.Errorf("with a connection open: %v, want %v", err, ErrLate)
	}
	w.timeout = timeout
	c.Close()
	for _, h := range TwoHosts {
		if err := w.Ended(h); err != nil {
			t.Error(err)
		}
	}
}
