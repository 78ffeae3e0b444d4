// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

const (
	takerBody = "sockets-taker"
	takers    = 5 // processes that share a socket with the crowd
	takersTwo = 2 // the number of them that take further sockets
)

// give shares sockets with processes that ask for them.
func give(l int) error {
	udp, _, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	tcp, _, err := lab.Listen(lab.TCP6, "[::1]:0", 3)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for i := range takers {
		fd, err := lab.Accept(l)
		if err != nil {
			return err
		}
		fds := []int{udp, tcp, pair[0]}
		if i >= takersTwo {
			fds = fds[:1]
		}
		if err := errors.Join(unix.Sendmsg(fd, []byte("x"), unix.UnixRights(fds...), nil, 0), lab.Close(fd)); err != nil {
			return err
		}
	}
	return nil
}

// sharing is the name of the UNIX socket by which a process shares sockets.
func sharing(pid int) string { return fmt.Sprintf("@seine-share-%d", pid) }

// take asks a process for sockets and keeps them open.
func take(c *lab.Child) error {
	var from int
	if err := c.Arg(&from); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err := errors.Join(err, unix.Connect(fd, &unix.SockaddrUnix{Name: sharing(from)})); err != nil {
		return err
	}
	oob := make([]byte, 256)
	if _, _, _, _, err := unix.Recvmsg(fd, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC); err != nil {
		return err
	}
	if err := errors.Join(lab.Close(fd), c.Report(true)); err != nil {
		return err
	}
	return c.Await("end")
}

// share starts processes that take some sockets of a crowd.
func share(w *lab.World, host string, p *lab.Proc) (all []*lab.Proc, err error) {
	for range takers {
		t, err := w.Start(host, "taker", takerBody, p.PID)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if err := p.Call("share", new(bool)); err != nil {
		return nil, err
	}
	for _, t := range all {
		if err := t.Expect(new(bool)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// holding is the processes that have each socket open, by inode, from /proc.
func holding() (map[uint64][]int, error) {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	all := map[uint64][]int{}
	for _, l := range links {
		var inode uint64
		pid, _ := strconv.Atoi(strings.Split(l, "/")[2])
		to, err := os.Readlink(l)
		if _, scan := fmt.Sscanf(to, "socket:[%d]", &inode); err == nil && scan == nil && !slices.Contains(all[inode], pid) {
			all[inode] = append(all[inode], pid)
		}
	}
	return all, err
}

// holders is the processes that a row names, by PID, and the number of those that it does not name.
func holders(r *row.Row) (named map[int]string, more int) {
	named = map[int]string{}
	if pid := r.Get("pid"); pid.Kind != row.Null {
		named[int(pid.N)] = r.Get("comm").S
	}
	if c := r.Get("also"); c.Kind != row.Null {
		list, rest, _ := strings.Cut(c.S, " and ")
		fmt.Sscanf(rest, "%d more", &more)
		for one := range strings.SplitSeq(list, ",") {
			i := strings.LastIndex(one, "/")
			pid, _ := strconv.Atoi(one[i+1:])
			named[pid] = one[:i]
		}
	}
	return named, more
}

// shared: a socket that several processes have open is one row that names them.
func shared(x *trial.Trial) error {
	procs, rows, err := snapshot(x, "")
	if err != nil {
		return err
	}
	want, err := holding()
	if err != nil {
		return err
	}
	seen := map[int]int{} // number of sockets, by the number of their processes
	for _, r := range rows {
		pids := want[r.Get("inode").N]
		if !slices.Contains(pids, procs[0].PID) {
			continue
		}
		seen[len(pids)]++
		named, more := holders(r)
		x.Want(r, "holders", len(pids))
		for pid := range named {
			if !slices.Contains(pids, pid) {
				x.Errorf("%d does not have the socket, in %s", pid, trial.Dump(r))
			}
		}
		if len(named)+more != len(pids) || more > 0 && len(named) != 1+len(also{}) {
			x.Errorf("%d processes and %d more, want %v, in %s", len(named), more, pids, trial.Dump(r))
		}
		for pid, comm := range named {
			if pid != procs[0].PID && comm != "taker" {
				x.Errorf("%d is called %q, want taker", pid, comm)
			}
		}
	}
	if seen[1+takersTwo] != 2 || seen[1+takers] != 1 {
		x.Errorf("sockets by processes: %v, want 2 of %d and 1 of %d", maps.Clone(seen), 1+takersTwo, 1+takers)
	}
	x.NoneLost()
	return nil
}
