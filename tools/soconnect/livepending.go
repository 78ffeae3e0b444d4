// SPDX-License-Identifier: Apache-2.0

package soconnect

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// hanging is connects without an answer: to two ports, by both address families,
// blocking and non-blocking.
func hanging(x *trial.Trial) (*lab.Targets, []lab.Hang, error) {
	targets, err := lab.StartTargets(x.World, "server", "targets",
		lab.Target{Network: lab.TCP4, Kind: lab.Silent}, lab.Target{Network: lab.TCP6, Kind: lab.Silent})
	if err != nil {
		return nil, nil, err
	}
	return targets, []lab.Hang{
		{Network: lab.TCP4, Addr: targets.Addrs[0]},
		{Network: lab.TCP4, Addr: targets.Addrs[0], Waits: true},
		{Network: lab.TCP6, Addr: targets.Addrs[1]},
		{Network: lab.TCP4, Addr: targets.Addrs[0]},
		{Network: lab.TCP6, Addr: targets.Addrs[1], Waits: true},
	}, nil
}

// byPort is the rows by their local port.
func byPort(rows []*row.Row) map[int]*row.Row {
	out := map[int]*row.Row{}
	for _, r := range rows {
		out[int(r.Get("lport").N)] = r
	}
	return out
}

// pending: connects without an answer at the end of the run are shown with
// their age.
func pending(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error { return pendingAtEnd(x, flags) }
}

func pendingAtEnd(x *trial.Trial, flags []string) error {
	targets, list, err := hanging(x)
	if err != nil {
		return err
	}
	h, err := lab.StartHangs(x.World, "client", "hanging", list...)
	if err != nil {
		return err
	}
	if err := x.Attach(flags...); err != nil {
		return err
	}
	begun, err := h.Begin()
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	rows, at, err := x.DetachTimed()
	h.End()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), len(begun)); err != nil {
		return err
	}
	found := byPort(rows)
	for _, b := range begun {
		r := found[b.Port]
		if r == nil {
			x.Errorf("no row of the connect from port %d", b.Port)
			continue
		}
		x.WantPending(r, "latency_us", b.Before, b.After, at)
		x.Want(r, "pid", h.PID)
		x.Want(r, "comm", "hanging")
		x.Want(r, "netns", h.Netns)
		x.Want(r, "proto", "tcp")
		x.Want(r, "result", "Pending")
		x.Want(r, "errno", "-")
		x.Want(r, "laddr", x.World.Addr("client", b.Network))
		x.Want(r, "raddr", x.World.Addr("server", b.Network))
		x.Want(r, "rport", targets.Port(map[lab.Network]int{lab.TCP4: 0, lab.TCP6: 1}[b.Network]))
	}
	return nil
}

// pendingFilters: filters apply to pending connects too.
func pendingFilters(x *trial.Trial) error {
	targets, list, err := hanging(x)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		flag string
		want int
	}{
		{"--pid=", 5}, // of the first
		{"--comm=two", 5},
		{"-6", 4},
		{fmt.Sprint("--rport=", targets.Port(0)), 6},
		{fmt.Sprint("--raddr=", x.World.Addr6("server")), 4},
		{"--rport=1", 0},
		{"--min=10m", 0},
		{"--max=1us", 0},
	} {
		var procs []*lab.Hangs
		for _, comm := range []string{"one", "two"} {
			h, err := lab.StartHangs(x.World, "client", comm, list...)
			if err != nil {
				return err
			}
			procs = append(procs, h)
		}
		if f.flag == "--pid=" {
			f.flag += fmt.Sprint(procs[0].PID)
		}
		if err := x.Attach(f.flag); err != nil {
			return err
		}
		for _, h := range procs {
			if _, err := h.Begin(); err != nil {
				return err
			}
		}
		rows, err := x.Detach()
		for _, h := range procs {
			h.End()
		}
		if err != nil {
			return err
		}
		if len(rows) != f.want {
			x.Errorf("%s: %d rows, want %d", f.flag, len(rows), f.want)
		}
	}
	return nil
}

// pendingTicks: with an interval each output shows the pending connects with
// their growing age. A connect that has ended is no longer pending.
func pendingTicks(x *trial.Trial) error {
	_, list, err := hanging(x)
	if err != nil {
		return err
	}
	h, err := lab.StartHangs(x.World, "client", "hanging", list[:2]...)
	if err != nil {
		return err
	}
	if err := x.Attach("--by=rport", "--interval=200ms"); err != nil {
		return err
	}
	begun, err := h.Begin()
	if err != nil {
		return err
	}
	x.Until(func(rows []*row.Row) bool {
		for _, b := range begun {
			ticks := 0
			for _, r := range rows {
				if r.Get("lport").N == uint64(b.Port) {
					ticks++
				}
			}
			if ticks < 3 {
				return false
			}
		}
		return true
	})
	h.End() // the sockets are closed: both connects end as given up
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	age := map[uint64]uint64{}
	ticks, ended := map[uint64]int{}, map[uint64]bool{}
	for _, r := range rows {
		port, ns := r.Get("lport").N, r.Get("latency_us").N
		if !r.Pending() {
			x.Want(r, "errno", "ECANCELED")
			ended[port] = true
		} else if ended[port] {
			x.Errorf("pending after its end: %s", trial.Dump(r))
		} else {
			ticks[port]++
		}
		if ns <= age[port] {
			x.Errorf("%d ns old, and %d before that, in %s", ns, age[port], trial.Dump(r))
		}
		age[port] = ns
	}
	for _, b := range begun {
		if p := uint64(b.Port); ticks[p] < 3 || !ended[p] {
			x.Errorf("port %d was pending at %d ticks, want 3 or more, and ended: %v", b.Port, ticks[p], ended[p])
		}
	}
	return nil
}

// preempted: several processes that only connect share one processor. The kernel
// preempts one in the middle of the tool's program and runs the next (Linux 7.0 on,
// with tracepoints of all system calls). Each row has the right process and address,
// and skipped programs are counted.
func preempted(x *trial.Trial) error {
	const procs, each = 7, 1009
	x.Way = "sys"
	var all []*lab.Proc
	port := map[string]int{}
	for i := range procs {
		targets, err := lab.StartTargets(x.World, "", fmt.Sprint("target", i), lab.Target{Network: lab.UDP4})
		if err != nil {
			return err
		}
		comm := fmt.Sprint("crowd", i)
		port[comm] = targets.Port(0)
		p, err := x.World.Start("", comm, bodyCrowd, crowd{targets.Addrs[0], each})
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	if err := x.Attach(); err != nil {
		return err
	}
	for _, p := range all {
		if err := p.Tell("go"); err != nil {
			return err
		}
	}
	for _, p := range all {
		var done int
		if err := p.Expect(&done); err != nil {
			return err
		}
	}
	x.Await(procs * each)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	ended := 0
	for _, r := range rows {
		x.Want(r, "rport", port[r.Get("comm").S])
		if !r.Pending() {
			ended++
		}
	}
	if want := procs*each - int(x.Report.Missed); ended < want || ended > procs*each {
		x.Errorf("%d rows of %d connects, and the kernel skipped %d runs", ended, procs*each, x.Report.Missed)
	}
	return nil
}

// crowd is the body of each of these processes.
type crowd struct {
	Addr  string
	Count int
}

const bodyCrowd = "soconnect-crowd"

func connectOften(c *lab.Child) error {
	var a crowd
	if err := c.Arg(&a); err != nil {
		return err
	}
	sa, err := lab.UDP4.Sockaddr(a.Addr)
	if err != nil {
		return err
	}
	if _, err := lab.Pin(0); err != nil {
		return err
	}
	fd, err := lab.Socket(lab.UDP4)
	if err != nil {
		return err
	}
	defer lab.Close(fd)
	if err := c.Await("go"); err != nil {
		return err
	}
	for range a.Count {
		if err := unix.Connect(fd, sa); err != nil {
			return err
		}
	}
	return c.Report(a.Count)
}
