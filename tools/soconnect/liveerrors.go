// SPDX-License-Identifier: Apache-2.0

package soconnect

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// failures: with --errors only the connects that failed are shown, by whatever call. Neither a
// success nor a connect in progress is.
func failures(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	all = keep(all, func(a lab.Attempt) bool { return a.Network.Family() != unix.AF_UNIX && a.Want != unix.ETIMEDOUT })
	well := keep(all, func(a lab.Attempt) bool { return a.Want == 0 })
	list := slices.Concat(slices.Repeat(well, 7), all)
	c, err := lab.StartConnects(x.World, "", "connects", list...)
	if err != nil {
		return err
	}
	if err := x.Attach("--errors"); err != nil {
		return err
	}
	out, err := c.Run()
	if err != nil {
		return err
	}
	out = slices.DeleteFunc(out, func(o lab.Outcome) bool { return o.Errno == 0 })
	if len(out) != 16 {
		return fmt.Errorf("%d connects failed, want 16", len(out))
	}
	rows, err := x.Exactly(len(out))
	if err != nil {
		return err
	}
	for i, o := range out {
		ended(x, rows[i], o, o.Errno, o.NS)
		x.Want(rows[i], "via", "syscall")
		x.Want(rows[i], "pid", c.PID)
	}
	x.NoneLost()
	return nil
}

const bodySockets = "soconnect-sockets"

// sockets is calls of socket(2) with one outcome.
type sockets struct {
	Family, Type, N int
	Want            syscall.Errno // EMFILE: the process has no descriptor left
	Ring            bool          // by io_uring
}

// made is sockets of several families, some of which cannot be made.
var made = []sockets{
	{unix.AF_INET, unix.SOCK_STREAM, 11, 0, false},
	{unix.AF_INET, unix.SOCK_STREAM, 7, unix.EMFILE, false},
	{unix.AF_INET6, unix.SOCK_DGRAM, 5, unix.EMFILE, false},
	{unix.AF_UNIX, unix.SOCK_STREAM, 2, unix.EMFILE, false},
	{unix.AF_NETLINK, unix.SOCK_RAW, 2, unix.EMFILE, false},
	{unix.AF_INET, 15, 3, unix.EINVAL, false}, // there is no such type
	{unix.AF_UNIX, unix.SOCK_DGRAM, 2, 0, false},
}

// startSockets starts a process that will make sockets.
func startSockets(x *trial.Trial, comm string, list []sockets) (*lab.Proc, error) {
	return x.World.Start("", comm, bodySockets, list)
}

func makeSockets(c *lab.Child) error {
	var list []sockets
	if err := c.Arg(&list); err != nil {
		return err
	}
	var ring *lab.Ring
	if slices.ContainsFunc(list, func(s sockets) bool { return s.Ring }) {
		var err error
		if ring, err = lab.NewRing(4); err != nil {
			return err
		}
		defer ring.Close()
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for _, s := range list {
		if err := s.make(ring); err != nil {
			return err
		}
	}
	return c.Report(true)
}

// make makes the calls, and closes the sockets that there are.
func (s *sockets) make(ring *lab.Ring) (err error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	if s.Want == unix.EMFILE {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	}
	for range s.N {
		fd, got := -1, error(nil)
		if s.Ring {
			var res []int32
			if res, err = ring.Do(lab.RingOp{Code: lab.RingSocket, FD: s.Family, Off: uint64(s.Type)}); err != nil {
				return err
			}
			if fd = int(res[0]); fd < 0 {
				got = unix.Errno(-fd)
			}
		} else {
			fd, got = unix.Socket(s.Family, s.Type, 0)
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		if !errors.Is(got, s.Want) && (got != nil || s.Want != 0) {
			return fmt.Errorf("socket(%d, %d): %v, want %v", s.Family, s.Type, got, s.Want)
		}
	}
	return nil
}

// noSockets: each call of socket(2) that failed is a row without address. Without --errors there
// is none.
func noSockets(x *trial.Trial) error {
	for _, flags := range [][]string{nil, {"--errors"}} {
		p, err := startSockets(x, "leaky", made)
		if err != nil {
			return err
		}
		if err := x.Attach(flags...); err != nil {
			return err
		}
		var done bool
		if err := p.Call("go", &done); err != nil {
			return err
		}
		if len(flags) == 0 {
			rows, err := x.Detach()
			if err = errors.Join(err, trial.RowCount(len(rows), 0)); err != nil {
				return err
			}
			continue
		}
		if err := shownSockets(x, p, made); err != nil {
			return err
		}
	}
	return nil
}

// shownSockets checks the rows of a process.
func shownSockets(x *trial.Trial, p *lab.Proc, list []sockets) error {
	var want []sockets
	for _, s := range list {
		if s.Want != 0 && (s.Family == unix.AF_INET || s.Family == unix.AF_INET6) {
			want = append(want, slices.Repeat([]sockets{s}, s.N)...)
		}
	}
	rows, err := x.Exactly(len(want))
	if err != nil {
		return err
	}
	for i, s := range want {
		r := rows[i]
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
		x.Want(r, "netns", p.Netns)
		x.Want(r, "family", kern.Family(s.Family))
		x.Want(r, "proto", map[int]string{unix.SOCK_STREAM: "tcp", unix.SOCK_DGRAM: "udp", 15: "0"}[s.Type])
		x.Want(r, "errno", kern.ErrnoName(int(s.Want)))
		x.Want(r, "result", map[syscall.Errno]string{unix.EMFILE: "No socket: process FD limit", unix.EINVAL: "No socket: type or protocol invalid"}[s.Want])
		x.Want(r, "via", "socket")
		for _, id := range []string{"laddr", "raddr", "lport", "rport", "latency_us", "sock"} {
			x.Want(r, id, "-")
		}
	}
	x.NoneLost()
	return nil
}

// noSocketsByUring: so do sockets that io_uring could not make.
func noSocketsByUring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	list := []sockets{
		{unix.AF_INET, unix.SOCK_STREAM, 3, 0, true},
		{unix.AF_INET, unix.SOCK_STREAM, 7, unix.EMFILE, true},
		{unix.AF_UNIX, unix.SOCK_STREAM, 2, unix.EMFILE, true},
		{unix.AF_INET6, unix.SOCK_DGRAM, 5, unix.EMFILE, true},
	}
	p, err := startSockets(x, "leaky", list)
	if err != nil {
		return err
	}
	if err := x.Attach("--errors"); err != nil {
		return err
	}
	var done bool
	if err := p.Call("go", &done); errors.Is(err, lab.ErrNotSupported) {
		x.Detach()
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	return shownSockets(x, p, list)
}

// noSocketFilters: filters apply to these rows. Filters on addresses, ports and latency leave them
// out.
func noSocketFilters(x *trial.Trial) error {
	for _, f := range []struct {
		flag string
		want int
	}{
		{"--pid=", 15}, // of the first
		{"--comm=two", 15},
		{"--family=unix", 4},
		{"--family=inet6", 10},
		{"--proto=udp", 10},
		{"--proto=tcp", 14},
		{"-4", 0},
		{"-6", 0},
		{"--rport=0-65535", 0},
		{"--addr=::/0", 0},
		{"--min=0.001ms", 0},
		{"--max=10m", 0},
	} {
		var procs []*lab.Proc
		for _, comm := range []string{"one", "two"} {
			p, err := startSockets(x, comm, made)
			if err != nil {
				return err
			}
			procs = append(procs, p)
		}
		if f.flag == "--pid=" {
			f.flag += fmt.Sprint(procs[0].PID)
		}
		if err := x.Attach("--errors", f.flag); err != nil {
			return err
		}
		for _, p := range procs {
			var done bool
			if err := p.Call("go", &done); err != nil {
				return err
			}
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		if len(rows) != f.want {
			x.Errorf("%s: %d rows, want %d", f.flag, len(rows), f.want)
		}
	}
	return nil
}
