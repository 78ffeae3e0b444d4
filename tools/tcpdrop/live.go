// SPDX-License-Identifier: Apache-2.0

package tcpdrop

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, list, err := refused(w, lab.TCP4, 2)
		if err != nil {
			return err
		}
		defer t.End()
		c, err := lab.StartConnects(w, "", "prober", list...)
		if err != nil {
			return err
		}
		if _, err := c.Run(); err != nil {
			return err
		}
		s, err := lab.StartTCP(w, lab.Sessions{Send: 333, Recv: 1, ClientComm: "browser", ServerComm: "web"})
		if err != nil {
			return err
		}
		return deaf(s)
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "no-socket", Hosts: lab.TwoHosts, Run: noSocket(lab.TCP4)},
	{Name: "no-socket-ipv6", Hosts: lab.TwoHosts, Run: noSocket(lab.TCP6)},
	{Name: "old-data", Hosts: lab.TwoHosts, Run: oldData(lab.TCP4)},
	{Name: "old-data-ipv6", Hosts: lab.TwoHosts, Run: oldData(lab.TCP6)},
	{Name: "two-tracers", Hosts: lab.TwoHosts, Run: twoTracers},
	{Name: "none", Hosts: lab.TwoHosts, Run: none},
}

// refused gives n connects to a port that nobody listens on.
func refused(w *lab.World, network lab.Network, n int) (*lab.Targets, []lab.Attempt, error) {
	t, err := lab.StartTargets(w, "server", "holder", lab.Target{Network: network, Kind: lab.BoundOnly})
	if err != nil {
		return nil, nil, err
	}
	var list []lab.Attempt
	for range n {
		list = append(list, lab.Attempt{Name: "refused", Network: network, Addr: t.Addrs[0], Want: unix.ECONNREFUSED})
	}
	return t, list, nil
}

// deaf makes the session of s with a client that hears neither that its data came
// nor the answer nor that once more: it sends its data again, which the server has.
func deaf(s *lab.TCP) error {
	l, err := lab.StartLoss(lab.Loss{From: s.Port, Flags: lab.ACK, Skip: 1, Count: 3})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = s.Run()
	return err
}

// named is a reason as this kernel tells it.
func named(reason string) string {
	k, err := probe.Running()
	if err != nil || len(k.Args("kfree_skb")) < 3 {
		return "-"
	}
	return reason
}

// noSocket: a SYN to a port that nobody listens on. Those who are refused drop
// nothing themselves.
func noSocket(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, list, err := refused(x.World, network, 23)
		if err != nil {
			return err
		}
		c, err := lab.StartConnects(x.World, "", "prober", list...)
		if err != nil {
			return err
		}
		rows, _, err := trial.RowsOf(x, 23, c.Run, "--lport", fmt.Sprint(t.Port(0)))
		if err != nil {
			return err
		}
		if err := trial.RowCount(len(rows), 23); err != nil {
			return err
		}
		for _, r := range rows {
			x.Want(r, "reason", named("NO_SOCKET"))
			x.Want(r, "flags", "S")
			x.Want(r, "dport", t.Port(0))
			x.Want(r, "lport", t.Port(0))
			x.Want(r, "daddr", x.World.Addr("server", network))
			x.Want(r, "saddr", x.World.Addr("client", network))
			x.Want(r, "bytes", 0)
			x.Want(r, "pid", "-")
			reached(x, r, map[lab.Network]string{lab.TCP4: "tcp_v4_rcv", lab.TCP6: "tcp_v6_rcv"}[network])
		}
		return nil
	}
}

// twoTracers: the kernel calls two programs through a function of its own, which is
// no part of how a packet came to be dropped.
func twoTracers(x *trial.Trial) error {
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer other.Close()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: other})
	if err != nil {
		return err
	}
	defer l.Close()
	return noSocket(lab.TCP4)(x)
}

// reached checks that the stack of a row goes through a function, and begins where
// the packet was dropped, not where that is told.
func reached(x *trial.Trial, r *row.Row, function string) {
	st, ok := r.Get("kstack").Ref.(*kern.Stack)
	if !ok {
		x.Errorf("no stack in %s", trial.Dump(r))
		return
	}
	if !slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return f.Sym == function }) {
		x.Errorf("%s is not in the stack %v", function, st.Frames)
	}
	if strings.Contains(st.Frames[0].Sym, "trace") {
		x.Errorf("the stack begins with its tracer: %v", st.Frames)
	}
}

// oldData: a segment that was received before is dropped by its socket. On a busy
// machine the answer may overtake the loss; the server's count says whether the
// client sent again.
func oldData(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error { // a timer sends again
		return x.Timed(func() error { return oldDataOnce(x, network) })
	}
}

func oldDataOnce(x *trial.Trial, network lab.Network) error {
	const again = "TcpExtTCPDSACKOldSent"
	var s *lab.TCP
	var rows []*row.Row
	for tries, happened := 0, false; !happened; tries++ {
		if tries == 3 {
			return fmt.Errorf("no client sent again")
		}
		before, err := x.World.Counters("server")
		if err != nil {
			return err
		}
		if s, err = lab.StartTCP(x.World, lab.Sessions{Send: 333, Recv: 1, Network: network}); err != nil {
			return err
		}
		if err := x.Attach("--lport", fmt.Sprint(s.Port)); err != nil {
			return err
		}
		if err := deaf(s); err != nil {
			return err
		}
		after, err := x.World.Counters("server")
		if err != nil {
			return err
		}
		if happened = after.Since(before)[again] > 0; happened {
			x.Await(1)
		}
		if rows, err = x.Detach(); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return trial.RowCount(0, 1)
	}
	for _, r := range rows {
		if !socketTold() {
			continue
		}
		x.Want(r, "pid", s.Server.PID)
		x.Want(r, "comm", s.Server.Comm)
		x.Want(r, "lport", s.Port)
		x.Want(r, "state", "ESTABLISHED")
		x.Want(r, "reason", named("TCP_OLD_DATA"))
		x.Want(r, "flags", "P.")
		x.Want(r, "bytes", 333)
		x.Want(r, "sport", r.Get("rport").N)
		x.Want(r, "seq", rows[0].Get("seq").N)
		if r.Get("seq").N == 0 {
			x.Errorf("no seq")
		}
	}
	return nil
}

// socketTold says whether the socket of a drop is known here.
func socketTold() bool {
	k, err := probe.Running()
	if err != nil || !needsSocket(k) {
		return err == nil
	}
	offers := k.Offers()
	return offers["fentry"] == nil || offers["kprobe"] == nil
}

// none: sessions that lose nothing, and --no-stack. A timer may send a segment again where
// the machine stands still. The peer has it and drops it, and the kernel counts it.
func none(x *trial.Trial) error {
	s, err := lab.StartTCP(x.World, lab.Sessions{Count: 23, Send: 1000, Recv: 1000})
	if err != nil {
		return err
	}
	c, err := x.World.Dial("client", "server")
	if err != nil {
		return err
	}
	defer c.Close()
	again := func() (n int64, err error) {
		for _, h := range x.World.Hosts() {
			c, e := x.World.Counters(h)
			n, err = n+c["TcpRetransSegs"], errors.Join(err, e)
		}
		return n, err
	}
	before, err := again()
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error {
		_, err := s.Run()
		return errors.Join(err, c.CloseApart())
	}, "--no-stack")
	if err != nil {
		return err
	}
	after, err := again()
	for i, r := range rows {
		if int64(i) >= after-before {
			x.Errorf("a row without a drop: %s", trial.Dump(r))
		}
	}
	return err
}
