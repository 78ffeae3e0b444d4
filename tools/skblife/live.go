// SPDX-License-Identifier: Apache-2.0

package skblife

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	lab.Register(bodyCrowd, crowd)
	return []trial.Case{
		{Name: "preempted", Run: preempted},
		{Name: "ticks", Hosts: lab.TwoHosts, Run: ticks},
		{Name: "tcp", Hosts: lab.TwoHosts, Run: tcp},
		{Name: "read", Hosts: lab.TwoHosts, Run: read},
		{Name: "crowded", Hosts: lab.TwoHosts, Run: crowding},
		{Name: "napi", Run: napi},
		{Name: "softirq", Hosts: lab.TwoHosts, Run: softirq},
		{Name: "merged", Hosts: lab.TwoHosts, Run: merged},
		{Name: "all", Hosts: lab.TwoHosts, Run: all},
	}
}

// functional reports whether the tool traces functions.
func functional(x *trial.Trial) bool { return x.Choices[0].Way == "fexit" }

// recycles reports whether the tool misses births of sent buffers: by tracepoints, on kernels
// whose senders take buffers from NAPI's cache.
func recycles(x *trial.Trial) bool { return !functional(x) && host.TracepointsPreempt() }

const recycled = "this kernel's senders use NAPI's cache, of which no tracepoint tells"

// ticks: buffers that are born in one interval and end in another are in the balance
// of both.
func ticks(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return ticked(x) })
}

// ticked is one round of ticks. It returns the differences.
func ticked(x *trial.Trial) (differ []error, err error) {
	const n = 53
	t, s, err := letters(x.World, n)
	if err != nil {
		return nil, err
	}
	if err := x.Attach("-p", fmt.Sprint(s.PID), "--interval=100ms"); err != nil {
		return nil, err
	}
	if _, err := s.Run(); err != nil {
		return nil, err
	}
	x.Until(func(rows []*row.Row) bool { // wait for an output in between
		births := 0
		for _, r := range balances(rows) {
			births += int(r.Get("births").N)
		}
		return births >= n
	})
	if err := errors.Join(t.End(), x.World.Grace()); err != nil {
		return nil, err
	}
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	var births, freed int
	rows = balances(rows)
	for _, r := range rows {
		births += int(r.Get("births").N)
		freed += int(r.Get("freed").N)
		if alive := int(int64(r.Get("alive").N)); alive != births-freed {
			differ = append(differ, fmt.Errorf("%d alive, of %d births and %d freed until then", alive, births, freed))
		}
	}
	if births != n || freed != n || len(rows) < 2 {
		differ = append(differ, fmt.Errorf("%d births and %d freed in %d outputs, want %d of both in several", births, freed, len(rows), n))
	}
	return differ, nil
}

// balances returns the rows of the balance for sent buffers.
func balances(rows []*row.Row) (out []*row.Row) {
	for _, r := range rows {
		if r.Schema.View == "balance" && r.Get("kind").S == "alloc" {
			out = append(out, r)
		}
	}
	return out
}

// crowding: more buffers are alive than the map has room for. After their end there
// is room again, even though the next buffers have other addresses.
func crowding(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return crowded(x) })
}

// crowded is one round of crowding. It returns the differences.
func crowded(x *trial.Trial) (differ []error, err error) {
	const many, few = 499, 101 // a socket holds more than 200
	got, err := traced(x, func() error {
		for _, n := range []int{many, few} {
			_, send, err := unreadLetters(x.World, n)
			if err != nil {
				return err
			}
			if err := send(); err != nil {
				return err
			}
		}
		return nil
	}, "--comm=sender", "--memory=64K")
	if err != nil {
		return nil, err
	}
	if recycles(x) {
		return nil, trial.Skip(recycled)
	}
	room := x.Report.Capacity("lives")
	if room <= few || room >= many {
		return nil, fmt.Errorf("room for %d, want more than %d and less than %d", room, few, many)
	}
	if a := got["alloc"]; a != (account{births: room + few, freed: room + few, lives: room + few}) {
		differ = append(differ, fmt.Errorf("%+v, want %d births, all freed", a, room+few))
	}
	if lost := x.Report.Losses[tool.LossSpan]; lost != uint64(many-room) {
		differ = append(differ, fmt.Errorf("%d births lost, want %d", lost, many-room))
	}
	return differ, nil
}

// read: a process reads the datagrams. By tracepoints the tool may miss their ends.
func read(x *trial.Trial) error {
	const n = 499
	f, err := lab.StartFlood(x.World, lab.Flood{Count: n, ClientHost: "client", ServerHost: "server"})
	if err != nil {
		return err
	}
	// Another processor may have to free the last buffers.
	got, err := traced(x, func() error { _, err := f.Run(); return errors.Join(err, x.World.Settle()) }, "-p", fmt.Sprint(f.Client.PID))
	if err != nil {
		return err
	}
	if recycles(x) {
		return trial.Skip(recycled)
	}
	a := got["alloc"]
	if a.births != n || functional(x) && a.freed != n {
		x.Errorf("%+v, want %d births, all freed", a, n)
	}
	return nil
}

// tcp: TCP keeps buffers until they are acknowledged, and sends clones of them,
// which have the age of the originals.
func tcp(x *trial.Trial) error {
	const n, size = 23, 30000
	s, err := lab.StartTCP(x.World, lab.Sessions{Count: n, Send: size, Recv: 1})
	if err != nil {
		return err
	}
	got, err := traced(x, func() error {
		_, err := s.Run()
		return errors.Join(err, x.World.Ended("client"), x.World.Ended("server"))
	})
	if err != nil {
		return err
	}
	// SYN, SYN-ACK, data, FIN, FIN. Some may still be in flight.
	if a := got["alloc"]; a.births < 5*n || a.freed+a.merged < a.births*19/20 {
		x.Errorf("%+v: fewer than 5 buffers for each of %d sessions, or not all have ended", a, n)
	}
	clones := 1 // by tracepoints: that of the SYN, which the listener frees by consume_skb
	if functional(x) {
		clones = 4 // all of the above but the SYN-ACK
	}
	if a := got["clone"]; a.births < clones*n {
		x.Errorf("%+v: fewer than %d clones for each of %d sessions", a, clones, n)
	}
	return nil
}

// softirq: datagrams to a closed port. A softirq makes the ICMP answers while the sender is the
// current task. They do not count for the sender.
func softirq(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return answered(x) })
}

// answered is one round of softirq. It returns the differences.
func answered(x *trial.Trial) (differ []error, err error) {
	const n = 101
	t, s, err := letters(x.World, n)
	if err != nil {
		return nil, err
	}
	if err := t.End(); err != nil {
		return nil, err
	}
	var answers int64
	got, err := traced(x, func() error {
		_, err := s.Run()
		c, err2 := x.World.Counters("server")
		answers = c["IcmpOutDestUnreachs"]
		return errors.Join(err, err2, x.World.Settle())
	}, "-p", fmt.Sprint(s.PID))
	if err != nil {
		return nil, err
	}
	if recycles(x) {
		return nil, trial.Skip(recycled)
	}
	if a := got["alloc"]; a.births != n || answers == 0 {
		differ = append(differ, fmt.Errorf("%+v and %d answers, want %d births, and some", a, answers, n))
	}
	return differ, nil
}

// napi: buffers from NAPI's cache.
func napi(x *trial.Trial) error {
	const n = 211
	got, err := traced(x, func() error { return x.World.Receive("", n) })
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	if err != nil {
		return err
	}
	a := got["receive"]
	// By functions there may be one more: the kernel makes it with the device.
	if a.births != n && !(functional(x) && a.births == n+1) || a.freed != a.births {
		x.Errorf("%+v, want %d births, all freed", a, n)
	}
	return nil
}

// merged: a sender cuts a buffer into segments, which have its age, and the
// receiver merges them again.
func merged(x *trial.Trial) error {
	err := errors.Join(x.World.Offload("client", false, false), x.World.Offload("server", true, true))
	if err != nil {
		return err
	}
	s, err := lab.StartTCP(x.World, lab.Sessions{Send: 3000000, Recv: 1})
	if err != nil {
		return err
	}
	got, err := traced(x, func() error { _, err := s.Run(); return err })
	if err != nil {
		return err
	}
	sum := 0
	for _, a := range got {
		sum += a.merged
	}
	k, err := probe.Running()
	if err != nil {
		return err
	}
	old := len(k.Args("kfree_skb")) < 3 // veth devices of such a kernel have no GRO
	if sum == 0 && (functional(x) || !old) {
		x.Errorf("nothing was merged: %v", got)
	}
	if functional(x) && got["segment"].births == 0 {
		x.Errorf("no segments: %v", got)
	}
	if got["merged"].lives != sum {
		x.Errorf("%d lifespans of %d that were merged", got["merged"].lives, sum)
	}
	return nil
}

// all: the whole machine, without a filter. The account balances. Sockets that are older
// than the tool give buffers of unknown birth. Buffers that are born and end during the
// run are not among them.
func all(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return orphaned(x) })
}

// orphaned is one round of all. It returns the differences.
func orphaned(x *trial.Trial) (differ []error, err error) {
	const n, known = 13, 499
	t, s, err := letters(x.World, n)
	if err != nil {
		return nil, err
	}
	if _, err := s.Run(); err != nil {
		return nil, err
	}
	_, send, err := unreadLetters(x.World, known)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(x.World.Settle(), x.AttachAll("--stats")); err != nil {
		return nil, err
	}
	if err := errors.Join(send(), t.End(), x.World.Grace()); err != nil {
		return nil, err
	}
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	// Other processes of the machine may add a few.
	if got := accounts(x, rows); got["unknown"].freed < n || got["unknown"].freed >= n+known/2 {
		differ = append(differ, fmt.Errorf("%d freed whose birth is unknown, want %d; %d have begun meanwhile", got["unknown"].freed, n, known))
	}
	return differ, nil
}

// preempted: several processes that only send and receive share one processor. The kernel
// may preempt one of them within the tool's programs (Linux 7.0 on). Buffers are missing
// only if the kernel skipped runs of programs.
func preempted(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return crowds(x) })
}

// crowds is one round of preempted. It returns the differences.
func crowds(x *trial.Trial) (differ []error, err error) {
	const procs, each = 7, 499
	var all []*lab.Proc
	for range procs {
		p, err := x.World.StartReady("", "crowd", bodyCrowd, each)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	got, err := traced(x, func() error {
		for _, p := range all {
			if err := p.Tell("go"); err != nil {
				return err
			}
		}
		for _, p := range all {
			if err := p.Wait(); err != nil {
				return err
			}
		}
		return x.World.Settle()
	}, "--comm=crowd")
	if err != nil {
		return nil, err
	}
	if recycles(x) {
		return nil, trial.Skip(recycled)
	}
	a, missed := got["alloc"], int(x.Report.Missed)
	if a.births > procs*each || a.births < procs*each-missed {
		differ = append(differ, fmt.Errorf("%+v, want %d births, and the kernel skipped %d runs", a, procs*each, missed))
	}
	if functional(x) && a.freed < a.births-missed {
		differ = append(differ, fmt.Errorf("%+v, want all freed, and the kernel skipped %d runs", a, missed))
	}
	for kind, b := range got {
		if kind != "alloc" && b != (account{}) {
			differ = append(differ, fmt.Errorf("%s: %+v, want none", kind, b))
		}
	}
	return differ, nil
}

const bodyCrowd = "skblife-crowd"

// crowd sends datagrams to itself and reads them.
func crowd(c *lab.Child) error {
	var count int
	if err := c.Arg(&count); err != nil {
		return err
	}
	if _, err := lab.Pin(0); err != nil {
		return err
	}
	fd, port, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer lab.Close(fd)
	to, err := lab.UDP4.Sockaddr(lab.UDP4.At(netip.MustParseAddr("127.0.0.1"), port))
	if err != nil {
		return err
	}
	if err := errors.Join(c.Report(true), c.Await("go")); err != nil {
		return err
	}
	buf := make([]byte, 100)
	for range count {
		if err := unix.Sendto(fd, buf, 0, to); err != nil {
			return err
		}
		if _, err := unix.Read(fd, buf); err != nil {
			return err
		}
	}
	return nil
}
