// SPDX-License-Identifier: Apache-2.0

package soconnlat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyDial, dial)
	lab.Register(bodyIdle, idle)
	return []trial.Case{
		{Name: "stack", Run: stack},
		{Name: "wait", Run: wait},
		{Name: "by", Hosts: lab.TwoHosts, Run: by},
		{Name: "uring", Run: uring},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "min", Hosts: lab.TwoHosts, Run: slow("--min"), Slow: true},
		{Name: "max", Hosts: lab.TwoHosts, Run: slow("--max"), Slow: true},
	}
}

// by: a histogram for each destination.
func by(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	list := inet(all, func(a lab.Attempt) bool { return a.Name == "success" || a.Name == "udp" || a.Name == "refused" })
	out, rows, err := attempts(x, list, "--by=raddr,rport,proto")
	if err != nil {
		return err
	}
	got, want := map[string]uint64{}, map[string]uint64{}
	for _, r := range rows {
		if m := r.Get("metric").S; m != "wait" {
			raddr := r.Get("raddr").IP().String()
			if strings.Contains(raddr, ":") {
				raddr = "[" + raddr + "]"
			}
			got[fmt.Sprintf("%s %s:%d %s", m, raddr, r.Get("rport").N, r.Get("proto").S)] += r.Get("latency_us").Ref.(*kern.Hist).Count
		}
	}
	for _, o := range out {
		m := "connect"
		if o.Errno != 0 {
			m = "failed"
		}
		want[fmt.Sprintf("%s %s %s", m, o.Attempt.Addr, strings.TrimRight(string(o.Attempt.Network), "46"))]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.Errorf("counted %v, want %v", got, want)
	}
	return nil
}

// slow: two connects time out. --min shows only these, and --max all others. Other
// connects that took as long because the machine stood still, by the process's
// stopwatch, may be in either.
func slow(flag string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		_, all, err := lab.Outcomes(x.World, "targets")
		if err != nil {
			return err
		}
		list := inet(all, func(lab.Attempt) bool { return true })
		out, rows, err := attempts(x, list, "--by=comm", flag+"=200ms")
		if err != nil {
			return err
		}
		held := func(o lab.Outcome) bool { return quick(o.Attempt) && o.NS >= int64(200*time.Millisecond) }
		late := flag == "--min"
		out = slices.DeleteFunc(out, func(o lab.Outcome) bool { return quick(o.Attempt) == late && !held(o) })
		most := expect(out)
		least := expect(slices.DeleteFunc(out, held))
		got := metrics(x, rows)
		for m, g := range got {
			if g.count < least[m].count || g.count > most[m].count || g.us > most[m].us {
				x.Errorf("%s: %d in %d us, want from %d to %d within %d us", m, g.count, g.us, least[m].count, most[m].count, most[m].us)
			}
		}
		for m, w := range least {
			if got[m].count == 0 {
				x.Errorf("%s: none, want %d", m, w.count)
			}
		}
		// Each retransmits its SYN after a second.
		if us := uint64(2 * time.Second / time.Microsecond); late && got["failed"].us < us {
			x.Errorf("the failed ones took %d us, want %d or more", got["failed"].us, us)
		}
		return nil
	}
}

// uring: io_uring makes no system call for a connect; the time comes from TCP's
// states.
func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	list := inet(all, func(a lab.Attempt) bool {
		return a.Mode == lab.Blocking && (a.Name == "success" || a.Name == "refused")
	})
	for i := range list {
		list[i].Mode = lab.ByUring
	}
	out, rows, err := attempts(x, list, "--by=comm")
	if err != nil {
		return err
	}
	check(x, metrics(x, rows), expect(out))
	return nil
}

// mptcp: a connection and its subflow are one connect.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	targets, err := lab.StartTargets(x.World, "server", "targets",
		lab.Target{Network: lab.MPTCP4}, lab.Target{Network: lab.MPTCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	var list []lab.Attempt
	for _, mode := range []lab.Mode{lab.Blocking, lab.Nonblocking} {
		list = append(list,
			lab.Attempt{Name: "success", Network: lab.MPTCP4, Addr: targets.Addrs[0], Mode: mode},
			lab.Attempt{Name: "refused", Network: lab.MPTCP4, Addr: targets.Addrs[1], Mode: mode, Want: unix.ECONNREFUSED})
	}
	out, rows, err := attempts(x, list, "--by=comm")
	if err != nil {
		return err
	}
	check(x, metrics(x, rows), expect(out))
	return nil
}

const bodyDial, bodyIdle = "soconnlat-dial", "soconnlat-idle"

// dial connects seven times after "go", once more after "again", and ends.
func dial(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	for _, step := range []struct {
		word string
		n    int
	}{{"go", 7}, {"again", 1}} {
		if err := c.Await(step.word); err != nil {
			return err
		}
		if err := dialHere(addr, step.n); err != nil {
			return err
		}
		if err := c.Report(0); err != nil {
			return err
		}
	}
	return nil
}

// dialHere is the function whose name must be in the stack.
//
//go:noinline
func dialHere(addr string, n int) error {
	for range n {
		fd, err := lab.Connect(lab.TCP4, addr)
		if err != nil {
			return err
		}
		if err := lab.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// stack: the stack of a connect has the name of its function, even if the
// process ends before the output.
func stack(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4})
	if err != nil {
		return err
	}
	p, err := x.World.Start("", "dialer", bodyDial, targets.Addrs[0])
	if err != nil {
		return err
	}
	if err := x.Attach("--interval=100ms"); err != nil {
		return err
	}
	var done int
	if err := p.Call("go", &done); err != nil {
		return err
	}
	x.Await(1) // an output: by then the tool has read the process's memory map
	if err := errors.Join(p.Call("again", &done), p.Wait()); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	var count uint64
	for _, r := range rows {
		x.Want(r, "comm", "dialer")
		st, ok := r.Get("ustack").Ref.(*kern.Stack)
		if !ok {
			x.Errorf("no stack in %s", trial.Dump(r))
			continue
		}
		if !slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return strings.HasSuffix(f.Sym, "soconnlat.dialHere") }) {
			x.Errorf("dialHere is not in %v", st.Frames)
		}
		if r.Get("metric").S == "connect" {
			count += r.Get("latency_us").Ref.(*kern.Hist).Count
		}
	}
	if count != 8 {
		x.Errorf("%d connects, want 8", count)
	}
	return nil
}

// idleFor is how long a connection is unused in the case wait.
const idleFor = 30 * time.Millisecond

// idled is the idle time by the process's own stopwatch.
type idled struct{ ConnectNS, WaitNS int64 }

// idle makes a non-blocking connect, does something else, and then reads.
func idle(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, addr, 1)
	if err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	start := time.Now()
	fd, err := lab.ConnectNonblock(lab.TCP4, strings.TrimSuffix(addr, "0")+fmt.Sprint(port))
	if err != nil {
		return err
	}
	connected := time.Since(start)
	peer, err := lab.Accept(l)
	if err != nil {
		return err
	}
	if err := lab.SendAll(peer, []byte("x")); err != nil {
		return err
	}
	time.Sleep(idleFor)
	if err := lab.RecvAll(fd, make([]byte, 1)); err != nil {
		return err
	}
	return c.Report(idled{int64(connected), int64(time.Since(start))})
}

// wait: the time in which the program does not use the connection is not part
// of the connect.
func wait(x *trial.Trial) error {
	p, err := x.World.Start("", "idler", bodyIdle, lab.TCP4.At(x.World.Addr4(x.World.Hosts()[0]), 0))
	if err != nil {
		return err
	}
	var took idled
	rows, err := x.Rows(func() error { return errors.Join(p.Call("go", &took), p.Wait()) }, "--by=comm")
	if err != nil {
		return err
	}
	got := metrics(x, rows)
	check(x, got, map[string]sum{"connect": {1, uint64(took.ConnectNS) / 1000}, "wait": {1, uint64(took.WaitNS) / 1000}})
	if w := time.Duration(got["wait"].us) * time.Microsecond; w < idleFor {
		x.Errorf("waited %v, want at least %v", w, idleFor)
	}
	return nil
}
