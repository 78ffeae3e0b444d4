// SPDX-License-Identifier: Apache-2.0

package tcpdrop

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "old-data", Hosts: lab.TwoHosts, Run: oldData(lab.TCP4)},
		{Name: "old-data-ipv6", Hosts: lab.TwoHosts, Run: oldData(lab.TCP6)},
		{Name: "two-tracers", Hosts: lab.TwoHosts, Run: twoTracers},
		{Name: "none", Hosts: lab.TwoHosts, Run: trial.Undisturbed(none)},
		{Name: "few-waits", Hosts: lab.TwoHosts, Run: trial.Undisturbed(fewWaits)}, // ACKs come in softirq
	}
}

// twoTracers: with two programs on the tracepoint the kernel calls them through a
// function of its own. That function is not in the stack.
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

// oldData: a segment that was received before is dropped by its socket. On a busy
// machine the answer may overtake the loss; the server's count says whether the
// client sent again.
func oldData(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error { // a timer retransmits
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

// socketTold reports whether the socket of a drop is known on this kernel.
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

// fewWaits: more connections are in TIME_WAIT than the map has room for. Segments
// that the others processed are shown as drops, at most as often as entries are
// counted as lost.
func fewWaits(x *trial.Trial) error {
	const n = 101
	flag, err := x.Few()
	if err != nil {
		return err
	}
	var all []*lab.Conn
	for range n {
		c, err := x.World.Dial("client", "server")
		if err != nil {
			return err
		}
		defer c.Close()
		all = append(all, c)
	}
	rows, err := x.Rows(func() error {
		for _, c := range all {
			if err := c.CloseServer(); err != nil {
				return err
			}
		}
		for _, c := range all {
			if err := c.CloseClient(); err != nil {
				return err
			}
		}
		return x.World.Settle()
	}, "--no-stack", "--stats", flag)
	if err != nil {
		return err
	}
	k, err := probe.Running()
	if err != nil {
		return err
	}
	room := x.Report.Capacity("waits")
	lost := int(x.Report.Losses[tool.LossSpan]) - max(0, n-x.Report.Capacity("listeners"))
	switch {
	case len(rows) > lost:
		x.Errorf("%d rows without a drop, and %d entries lost of %d; there is room for %d: %s", len(rows), lost, n, room, trial.Dump(rows[0]))
	case needsSocket(k) && lost < n-room:
		x.Errorf("%d entries lost of %d, and there is room for %d", lost, n, room)
	}
	return nil
}
