// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWorldOfOne(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	check(t, "address", w.Addr4(""), netip.MustParseAddr("127.0.0.1"))
	var inside string
	if err := w.Do("", func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	check(t, "namespace inside", inside, fmt.Sprintf("net:[%d]", w.Netns("")))
	after, _ := os.Readlink("/proc/self/ns/net")
	check(t, "our own namespace", after, before)
}

func TestWorldIsReadyAtReturn(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	for _, from := range w.Hosts() {
		for _, to := range w.Hosts() {
			for _, addr := range []netip.Addr{w.Addr4(to), w.Addr6(to)} {
				if !addr.IsValid() {
					continue
				}
				if err := datagram(w, from, to, addr); err != nil {
					t.Errorf("%s to %s (%s): %v", from, to, addr, err)
				}
			}
		}
	}
}

// datagram sends one from host to host and sees it arrive, without a second try.
func datagram(w *World, from, to string, addr netip.Addr) error {
	net := UDP4
	if addr.Is6() {
		net = UDP6
	}
	var r, s, port int
	err := w.Do(to, func() (err error) {
		r, port, err = Listen(net, net.At(addr, 0), 0)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(r)
	err = w.Do(from, func() (err error) {
		s, err = Connect(net, net.At(addr, port))
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if _, err := unix.Write(s, []byte("hello")); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(r, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	b := make([]byte, 16)
	n, err := unix.Read(r, b)
	if err == nil && string(b[:n]) != "hello" {
		err = fmt.Errorf("got %q", b[:n])
	}
	return err
}

func TestSysctlIsTheHostsOwn(t *testing.T) {
	const path = "/proc/sys/net/ipv4/tcp_ecn"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	want := "1"
	if strings.TrimSpace(string(before)) == want {
		want = "0"
	}
	if err := w.Sysctl("", "net.ipv4.tcp_ecn", want); err != nil {
		t.Fatal(err)
	}
	var inside []byte
	if err := w.Do("", func() (err error) { inside, err = os.ReadFile(path); return err }); err != nil {
		t.Fatal(err)
	}
	check(t, "inside", strings.TrimSpace(string(inside)), want)
	after, _ := os.ReadFile(path)
	check(t, "outside", string(after), string(before))
}

func TestTwoHostsOfOneName(t *testing.T) {
	if w, err := NewWorld(Options{Hosts: []string{"a", "a"}}); err == nil {
		w.Close()
		t.Error("two hosts were called a")
	}
}

func TestUnsupported(t *testing.T) {
	if err := unsupported("x", unix.EPROTONOSUPPORT); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Errorf("got %v", err)
	}
	if err := unsupported("x", unix.EPERM); errors.Is(err, ErrNotSupported) {
		t.Errorf("got %v for EPERM", err)
	}
}

// A world may be stopped while a workload runs. The workload then ends with an
// error.
func TestStop(t *testing.T) {
	w := newWorld(t)
	done := make(chan error)
	begun := make(chan struct{}, 1)
	go func() {
		for {
			tcp, err := StartTCP(w, Sessions{Count: 3})
			if err == nil {
				_, err = tcp.Run()
			}
			if err != nil {
				done <- err
				return
			}
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	}()
	<-begun
	w.Stop()
	if err := <-done; err == nil {
		t.Error("the workload went on")
	}
}
