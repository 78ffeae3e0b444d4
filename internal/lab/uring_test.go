// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// needUring skips a test if io_uring is really absent. 5.10 and later have it
// unless it is not built in or switched off.
func needUring(t *testing.T) {
	t.Helper()
	if err := UringSupported(); errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func TestUringSessions(t *testing.T) {
	needUring(t)
	for name, s := range map[string]Sessions{
		"ipv4":     {Count: 23, Send: 1000, Recv: 5000},
		"ipv6":     {Count: 23, Send: 1000, Recv: 5000, Network: TCP6},
		"large":    {Count: 3, Send: 3 << 20, Recv: 1 << 20},
		"parallel": {Count: 29, Send: 100, Recv: 100, Parallel: 3},
		"held":     {Count: 13, Send: 100, Recv: 100, Hold: true},
		"reset":    {Count: 13, Send: 100, Recv: 100, Close: ByReset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Uring = true
			w := newWorld(t)
			if s.Network == TCP6 && !w.Addr6("").IsValid() {
				t.Skip("IPv6 is off")
			}
			res := run(t, w, s)
			check(t, "connects", res.Client.Tally["uring:connect"], Calls{Count: s.Count, Messages: s.Count})
			check(t, "accepts", res.Server.Tally["uring:accept"], Calls{Count: s.Count, Messages: s.Count})
			for name, c := range res.Client.Tally {
				if name == "connect" || name == "write" || name == "recvfrom" {
					t.Errorf("%d calls of %s beside the ring", c.Count, name)
				}
			}
		})
	}
}

func TestUringConnectOutcomes(t *testing.T) {
	needUring(t)
	w := newWorld(t)
	targets, err := StartTargets(w, "", "targets", Target{Network: TCP4}, Target{Network: TCP4, Kind: BoundOnly}, Target{Network: Unix})
	if err != nil {
		t.Fatal(err)
	}
	c, err := StartConnects(w, "", "ring",
		Attempt{Name: "success", Network: TCP4, Addr: targets.Addrs[0], Mode: ByUring},
		Attempt{Name: "refused", Network: TCP4, Addr: targets.Addrs[1], Mode: ByUring, Want: unix.ECONNREFUSED},
		Attempt{Name: "unix", Network: Unix, Addr: targets.Addrs[2], Mode: ByUring},
		Attempt{Name: "missing", Network: Unix, Addr: targets.Addrs[2] + ".not", Mode: ByUring, Want: unix.ENOENT},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(); err != nil {
		t.Error(err)
	}
}

// More operations than fit, one after the other and together, so that both
// queues wrap around.
func TestRingWrapsAround(t *testing.T) {
	needUring(t)
	r, err := NewRing(4)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	for i := range 31 {
		res, err := r.Do(
			RingOp{Code: RingSend, FD: p[0], Addr: make([]byte, 10+i)},
			RingOp{Code: RingWrite, FD: p[0], Addr: make([]byte, 50+i)},
			RingOp{Code: RingSend, FD: p[0], Addr: make([]byte, 90+i)},
		)
		if err != nil {
			t.Fatal(err)
		}
		for j, want := range []int{10 + i, 50 + i, 90 + i} {
			check(t, "sent", int(res[j]), want)
			n, err := r.Recv(p[1], make([]byte, 200), 0)
			if err != nil {
				t.Fatal(err)
			}
			check(t, "received", n, want)
		}
	}
	if _, err := r.Recv(p[1], make([]byte, 1), unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("receive from an empty socket: %v", err)
	}
	if _, err := r.Do(make([]RingOp, 5)...); err == nil {
		t.Error("five operations were taken by a ring of four")
	}
	if _, err := r.Do(RingOp{Code: 200}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("operation 200: %v", err)
	}
}

func TestRingMakesSockets(t *testing.T) {
	needUring(t)
	r, err := NewRing(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := newWorld(t)
	err = w.Do("", func() error {
		fd, err := r.Socket(TCP4)
		if errors.Is(err, ErrNotSupported) && r.known[RingSocket] {
			t.Errorf("the kernel has it: %v", err)
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		sa, err := TCP4.Sockaddr("127.0.0.1:80")
		if err != nil {
			return err
		}
		if err := r.Bind(fd, sa); err != nil {
			return err
		}
		port, err := LocalPort(fd)
		if err != nil {
			return err
		}
		check(t, "port", port, 80)
		return r.Listen(fd, 1)
	})
	if errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
}
