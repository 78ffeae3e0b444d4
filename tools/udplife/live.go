// SPDX-License-Identifier: Apache-2.0

package udplife

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyOverflows, overflows)
	return []trial.Case{
		{Name: "older", Run: moved(lab.Load{Network: lab.UDP4, Count: 23, Size: 101}, true)},
		{Name: "peek-and-empty", Run: moved(lab.Load{Network: lab.UDP4, Count: 13, Size: 0, Peek: 3, Again: 2, Read: lab.Recv, Write: lab.Send}, false)},
		{Name: "batches", Run: moved(lab.Load{Network: lab.UDP4, Count: 35, Size: 77, Batch: 7, Read: lab.Recvmmsg, Write: lab.Sendmmsg}, false)},
		{Name: "uring", Run: uring},
		{Name: "unconnected", Run: unconnected(false)},
		{Name: "exit", Run: unconnected(true)},
		{Name: "killed", Run: killed},
		{Name: "drops", Run: dropped},
		{Name: "earlier-drops", Run: earlierDrops},
		{Name: "refused", Run: refused},
	}
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	if x.Way == "sys" {
		return trial.Skip("this way does not see io_uring, and says so")
	}
	return moved(lab.Load{Network: lab.UDP4, Count: 23, Size: 101, Write: lab.UringSend, Read: lab.UringRecv}, false)(x)
}

// unconnected: a socket that writes to two peers, closed or left to the end of
// its process.
func unconnected(leave bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTargets(x.World, "", "sink", lab.Target{Network: lab.UDP4}, lab.Target{Network: lab.UDP4})
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		l, err := lab.StartLetters(x.World, "", "writer", lab.Letters{Network: lab.UDP4, To: t.Addrs, Rounds: 7, Size: 31, Leave: leave})
		if err != nil {
			return err
		}
		port, err := l.Run()
		if err != nil {
			return err
		}
		rows, err := x.Exactly(1)
		if err != nil {
			return err
		}
		r := rows[0]
		x.Want(r, "pid", l.PID)
		x.Want(r, "lport", port)
		x.Want(r, "raddr", "-")
		x.Want(r, "connected", 0)
		amounts(x, r, 14, 14*31, 0, 0)
		return errors.Join(t.End())
	}
}

// killed: seven sockets of a process that dies by SIGKILL.
func killed(x *trial.Trial) error {
	if err := x.Attach(); err != nil {
		return err
	}
	var targets []lab.Target
	for range 7 {
		targets = append(targets, lab.Target{Network: lab.UDP6})
	}
	t, err := lab.StartTargets(x.World, "", "victim", targets...)
	if err != nil {
		return err
	}
	t.Kill()
	for _, c := range x.Choices {
		// Every kernel of the matrix accepts these programs.
		if x.Way == "" && (c.Point == "create" || c.Point == "release") && c.Way != "cgroup" {
			x.Errorf("point %s goes by %s, want cgroup", c.Point, c.Way)
		}
	}
	x.Await(7)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	ports := map[uint64]bool{}
	for _, r := range rows {
		ports[r.Get("lport").N] = true
		x.Want(r, "pid", t.PID)
		x.Want(r, "comm", "victim")
	}
	for i := range targets {
		if !ports[uint64(t.Port(i))] {
			x.Errorf("no row for port %d", t.Port(i))
		}
	}
	x.Fail(trial.RowCount(len(rows), 7))
	return nil
}

// dropped: a reader that does not read in time.
func dropped(x *trial.Trial) error {
	if err := x.Attach(); err != nil {
		return err
	}
	f, err := lab.StartFlood(x.World, lab.Flood{Count: 211, Size: 100, RcvBuf: 4096, Idle: true})
	if err != nil {
		return err
	}
	res, err := f.Run()
	if err != nil {
		return err
	}
	x.Await(2)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if len(rows) != 2 || res.Dropped == 0 {
		return fmt.Errorf("%d rows, want 2, of %+v", len(rows), res)
	}
	for _, r := range rows {
		if int(r.Get("pid").N) == f.Client.PID {
			amounts(x, r, 211, 21100, 0, 0)
			x.Want(r, "connected", 1)
			x.Want(r, "rport", f.Port)
			continue
		}
		x.Want(r, "pid", f.Server.PID)
		x.Want(r, "lport", f.Port)
		x.Want(r, "drops", res.Dropped)
		amounts(x, r, 0, 0, res.Received, 100*res.Received)
	}
	return nil
}

const bodyOverflows = "udplife-overflows"

// overflows sends more to a socket of its own than it has room for, and again when
// it is told to. Each time it reports the drops that the socket counts.
func overflows(c *lab.Child) error {
	r, port, err := lab.Listen(lab.UDP4, "127.0.0.1:0", 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(r, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
		return err
	}
	w, err := lab.Connect(lab.UDP4, fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return err
	}
	each := 0 // the size that the socket counts for a queued datagram
	for sent := 0; sent < 2*53; {
		for range 53 {
			if _, err := unix.Write(w, make([]byte, 100)); err != nil {
				return err
			}
			if sent++; sent == 1 {
				err := lab.Until("the first datagram is there", func() (bool, error) {
					each, _, err = lab.Received(r)
					return each > 0, err
				})
				if err != nil {
					return err
				}
			}
		}
		n := 0
		err := lab.Until("each datagram is in the queue or dropped", func() (bool, error) {
			queued, dropped, err := lab.Received(r)
			n = dropped
			return queued/each+dropped == sent, err
		})
		if err != nil {
			return err
		}
		if err := c.Report([]int{n, port}); err != nil {
			return err
		}
		if err := c.Await("go"); err != nil {
			return err
		}
	}
	return errors.Join(lab.Close(w), lab.Close(r))
}

// earlierDrops: drops before the tool's start do not count.
func earlierDrops(x *trial.Trial) error {
	p, err := x.World.Start("", "overflows", bodyOverflows, nil)
	if err != nil {
		return err
	}
	var before, after []int
	if err := p.Expect(&before); err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if err := errors.Join(p.Call("go", &after), p.Tell("go"), p.Wait()); err != nil {
		return err
	}
	if before[0] == 0 || after[0] == before[0] {
		return fmt.Errorf("%d drops before, %d after: want some, and more", before[0], after[0])
	}
	x.Await(2)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), 2))
	for _, r := range rows {
		if int(r.Get("lport").N) == before[1] {
			x.Want(r, "drops", after[0]-before[0])
		} else {
			x.Want(r, "drops", 0)
		}
	}
	return nil
}

// refused: data from the error queue does not count as received.
func refused(x *trial.Trial) error {
	f, err := lab.StartRefused(x.World, "sender", 3, 101)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if err := f.Run(); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	x.Want(rows[0], "pid", f.PID)
	amounts(x, rows[0], 3, 303, 0, 0)
	return nil
}
