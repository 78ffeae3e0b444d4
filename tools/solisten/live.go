// SPDX-License-Identifier: Apache-2.0

package solisten

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyLongest, func(c *lab.Child) error {
		var path string
		if err := c.Arg(&path); err != nil {
			return err
		}
		fd, err := lab.Socket(lab.Unix)
		if err != nil {
			return err
		}
		sa := unix.RawSockaddrUnix{Family: unix.AF_UNIX}
		for i := range sa.Path {
			sa.Path[i] = int8(path[i])
		}
		// unix.Bind takes no such path.
		if _, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa)); errno != 0 {
			return fmt.Errorf("bind: %w", errno)
		}
		if err := unix.Listen(fd, 3); err != nil {
			return err
		}
		return errors.Join(unix.Close(fd), c.Report(true))
	})
	lab.Register(bodyFailures, func(c *lab.Child) error {
		udp, _, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
		if err != nil {
			return err
		}
		if unix.Listen(udp, 5) == nil || unix.Listen(1<<20, 6) == nil || unix.Listen(0, 7) == nil {
			return errors.New("a listen succeeded that cannot")
		}
		return c.Report(true)
	})
	lab.Register(bodyUring, func(c *lab.Child) error {
		ring, err := lab.NewRing(2)
		if err != nil {
			return err
		}
		fd, port, err := lab.Bind(lab.TCP4, "127.0.0.1:0")
		if err != nil {
			return err
		}
		if err := ring.Listen(fd, 19); err != nil {
			return err
		}
		return c.Report(port)
	})
	return []trial.Case{
		{Name: "netns", Hosts: lab.TwoHosts, Run: netns},
		{Name: "failures", Run: failures},
		{Name: "uring", Run: uring},
		{Name: "longest", Run: longest},
	}
}

// netns: only the namespace of --netns is shown.
func netns(x *trial.Trial) error {
	if err := x.AttachAll(fmt.Sprintf("--netns=%d", x.World.Netns("server"))); err != nil {
		return err
	}
	var server *lab.Targets
	for _, host := range x.World.Hosts() {
		t, err := lab.StartTargets(x.World, host, host, lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP6}, lab.Target{Network: lab.Unix})
		if err != nil {
			return err
		}
		if err := t.End(); err != nil {
			return err
		}
		server = t
	}
	x.Await(3)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), 3))
	for _, r := range rows {
		x.Want(r, "pid", server.PID)
		x.Want(r, "netns", x.World.Netns("server"))
	}
	return nil
}

// longest: a path of the greatest length has no NUL at its end.
func longest(x *trial.Trial) error {
	dir, err := x.World.Dir()
	if err != nil {
		return err
	}
	path := dir + "/"
	path += strings.Repeat("x", pathRoom-len(path))
	if err := x.Attach(); err != nil {
		return err
	}
	p, err := x.World.Start("", "listener", bodyLongest, path)
	if err != nil {
		return err
	}
	var done bool
	if err := errors.Join(p.Expect(&done), p.Wait()); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	x.Want(rows[0], "laddr", path)
	x.Want(rows[0], "pid", p.PID)
	return nil
}

const (
	bodyFailures = "solisten-failures"
	bodyUring    = "solisten-uring"
	bodyLongest  = "solisten-longest"
)

const pathRoom = len(unix.RawSockaddrUnix{}.Path)

func failures(x *trial.Trial) error {
	if err := x.Attach(); err != nil {
		return err
	}
	p, err := x.World.Start("", "clumsy", bodyFailures, nil)
	if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return err
	}
	want := []struct{ errno, family, proto string }{{"EOPNOTSUPP", "inet", "udp"}, {"EBADF", "-", "-"}, {"ENOTSOCK", "-", "-"}}
	rows, err := x.Exactly(len(want))
	if err != nil {
		return err
	}
	for i, w := range want {
		x.Want(rows[i], "errno", w.errno)
		x.Want(rows[i], "family", w.family)
		x.Want(rows[i], "proto", w.proto)
		x.Want(rows[i], "backlog", 5+i)
		x.Want(rows[i], "limit", "-")
	}
	return nil
}

// uring: listen through io_uring, from 6.11 on.
func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	if err := x.Attach(); err != nil {
		return err
	}
	p, err := x.World.Start("", "ring", bodyUring, nil)
	if err != nil {
		return err
	}
	var port int
	if err := p.Expect(&port); errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	x.Want(rows[0], "pid", p.PID)
	x.Want(rows[0], "lport", port)
	x.Want(rows[0], "backlog", "-")
	x.Want(rows[0], "limit", 19)
	x.Want(rows[0], "via", "uring")
	return nil
}
