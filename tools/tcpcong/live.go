// SPDX-License-Identifier: Apache-2.0

package tcpcong

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "dist", Run: trial.Undisturbed(stays)},
		{Name: "ticks", Run: trial.Undisturbed(ticks)},
		{Name: "disorder", Run: trial.Undisturbed(disorder)},
		{Name: "cwr", Run: trial.Undisturbed(reduced)},
		{Name: "recoveries", Hosts: lab.TwoHosts, Run: trial.Undisturbed(recoveries)},
		{Name: "none", Hosts: lab.TwoHosts, Run: trial.Undisturbed(none)},
	}
}

// stays: the connection has one stay in recovery and one in loss, and two in open: before the loss and after it.
func stays(x *trial.Trial) error {
	p, err := x.World.Start("", "talker", body, opened{Network: lab.TCP4, Behind: many})
	if err != nil {
		return err
	}
	var s seen
	rows, err := x.Rows(func() (err error) {
		s, err = lose(p, lostTimes)
		return err
	}, "--dist", "--by=ca_state,pid,lport")
	if err != nil {
		return err
	}
	got := map[string]*kern.Hist{}
	var wall uint64
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "lport", s.Port)
		h := r.Get("stay_us").Ref.(*kern.Hist)
		got[r.Get("ca_state").S] = h
		wall += h.Sum
	}
	for state, n := range map[string]uint64{"open": 2, "recovery": 1, "loss": 1} {
		if h := got[state]; h == nil || h.Count != n {
			x.Fail(trial.Fewer(0, 1, "%d rows, and %s: %+v; want %d stays", len(rows), state, h, n))
			return nil
		}
	}
	if d := got["disorder"]; len(got) > 4 || len(got) == 4 && (d == nil || d.Count != 1) {
		x.Errorf("%d states, want open, recovery, loss, and disorder once at most", len(got))
	}
	// The histogram counts whole microseconds.
	for i, name := range map[int]string{caRecovery: "recovery", caLoss: "loss"} {
		want := span{s.State[i].Least - 1000, s.State[i].Most}
		if ns := got[name].Sum * 1000; !want.holds(ns) {
			x.Errorf("%v in %s, and TCP_INFO says %v", time.Duration(ns), name, want)
		}
	}
	if want := (span{s.Wall.Least - 5000, s.Wall.Most}); !want.holds(wall * 1000) {
		x.Errorf("%d us in all states, and the connection was there for %v", wall, want)
	}
	x.NoneLost()
	return nil
}

// disorder: two segments arrive after a lost one. Without SACK that is not enough for TCP to
// assume a loss, and without tail loss probes only the timeout ends the disorder. The first ACK
// of a connection is not a duplicate ACK, because it changes the window.
func disorder(x *trial.Trial) error {
	if err := errors.Join(x.World.Sysctl("", "net.ipv4.tcp_sack", "0"), x.World.Sysctl("", "net.ipv4.tcp_early_retrans", "0")); err != nil {
		return err
	}
	return one(x, opened{Network: lab.TCP4, Behind: 2}, 1, caDisorder)
}

// reduced: the device sends two segments at once, and its queue has room for two more. It
// refuses the fifth one. TCP sends that when there is room.
func reduced(x *trial.Trial) error {
	const size, wire = 1000, 1000 + 14 + 20 + 32 // with the headers of Ethernet, IP and TCP
	err := x.World.SetQdisc("", "lo", lab.Qdisc{Kind: "tbf", Rate: 50 * wire, Burst: 2*wire + 100, Limit: 2*wire + 200})
	if err != nil {
		return err
	}
	// Without pacing, TCP sends each write at once. It sends only the refused segment later.
	for name, value := range map[string]string{"tcp_congestion_control": "reno", "tcp_autocorking": "0", "tcp_early_retrans": "0"} {
		if err := x.World.Sysctl("", "net.ipv4."+name, value); err != nil {
			return err
		}
	}
	return one(x, opened{Network: lab.TCP4, Behind: 4, Size: size}, 0, caCWR)
}

// one: a connection that enters a state has a row with the times of TCP_INFO.
func one(x *trial.Trial, o opened, lost, state int) error {
	p, err := x.World.Start("", "talker", body, o)
	if err != nil {
		return err
	}
	var s seen
	rows, err := x.Rows(func() (err error) {
		s, err = lose(p, lost)
		return err
	}, "--interval=1m")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	r := rows[0]
	x.Want(r, "pid", p.PID)
	x.Want(r, "lport", s.Port)
	for i, id := range stateIDs {
		if ns := r.Get(id).N; i != caOpen && !s.State[i].holds(ns) {
			x.Errorf("%s is %v, and TCP_INFO says %v", id, time.Duration(ns), s.State[i])
		}
	}
	if s.State[state].Least == 0 {
		x.Errorf("TCP_INFO never told of %s: %v", stateIDs[state], s.State)
	}
	x.NoneLost()
	return nil
}

// ticks: the rows of many outputs add up to the times of the whole connection, counted from the
// last output before its first change. The connection is older than the tool.
func ticks(x *trial.Trial) error {
	p, err := x.World.Start("", "talker", body, opened{Network: lab.TCP4, Behind: many})
	if err != nil {
		return err
	}
	var port, own int
	if err := p.Expect(&port); err != nil {
		return err
	}
	if err := p.Call("connect", &own); err != nil {
		return err
	}
	var s seen
	rows, err := x.Rows(func() error {
		losing, err := lab.StartLoss(lab.Loss{To: port, Data: large, Count: lostTimes})
		if err != nil {
			return err
		}
		defer losing.Close()
		if err := p.Call("send", &s); err != nil {
			return err
		}
		return p.Wait()
	}, "--interval=50ms")
	if err != nil {
		return err
	}
	// A row has the time when its output was complete, which is after the look at the connection. An emulated
	// machine may lose its processor in between.
	late := time.Millisecond
	if lab.Emulated() {
		late = 20 * time.Millisecond
	}
	var sum [caStates]uint64
	var changes uint64
	for n, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "lport", s.Port)
		var all uint64
		for i, id := range stateIDs {
			sum[i] += r.Get(id).N
			all += r.Get(id).N
		}
		changes += r.Get("changes").N
		if n == 0 {
			continue
		}
		// An output without news of the connection has no row.
		if since := int64(r.Get("time").N - rows[n-1].Get("time").N); int64(all) > since+int64(late) {
			x.Errorf("%v after the row before, and the states took %v", time.Duration(since), time.Duration(all))
		}
	}
	// Two timeouts of at least 200 ms make 12 outputs. A busy machine has fewer.
	if len(rows) < 3 {
		x.Errorf("%d rows, want one of each output of 50 ms in %v", len(rows), s.State)
	}
	for i := range sum {
		if i != caOpen && !s.State[i].holds(sum[i]) {
			x.Errorf("%s is %v, and TCP_INFO says %v", stateIDs[i], time.Duration(sum[i]), s.State[i])
		}
	}
	if changes != 3 && changes != 4 {
		x.Errorf("%d changes, want 3 or 4", changes)
	}
	x.NoneLost()
	return nil
}

// recoveries: the number of stays in recovery is the kernel's count of recoveries.
func recoveries(x *trial.Trial) error {
	const sessions = 3
	var all []*row.Row
	counted, err := x.World.Counted("client", func() error {
		t, err := lab.StartTCP(x.World, lab.Sessions{Count: sessions, Send: 1 << 20, Recv: 1})
		if err != nil {
			return err
		}
		all, err = x.Rows(func() error {
			return t.RunLossy(lab.Loss{To: t.Port, Data: 1, Skip: 9, Count: 1})
		}, "--dist", "--by=ca_state,netns")
		return err
	})
	if err != nil {
		return err
	}
	want := counted["TcpExtTCPSackRecovery"] + counted["TcpExtTCPRenoRecovery"]
	var got int64
	for _, r := range all {
		if r.Get("ca_state").S == "recovery" && trial.Value(r.Get("netns")) == fmt.Sprint(x.World.Netns("client")) {
			got += int64(r.Get("stay_us").Ref.(*kern.Hist).Count)
		}
	}
	if want == 0 {
		x.Errorf("the kernel counts no recovery")
	}
	x.Fail(trial.Fewer(int(got), int(want), "%d stays in recovery, and the kernel counts %d", got, want))
	x.NoneLost()
	return nil
}

// none: connections without loss have no row. On a machine that stalls, TCP may assume a loss,
// or segments may arrive out of order: the kernel counts both.
func none(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 20001, Recv: 50003})
	if err != nil {
		return err
	}
	var rows []*row.Row
	var of [2]lab.Counters
	of[0], err = x.World.Counted("client", func() (err error) {
		of[1], err = x.World.Counted("server", func() (err error) {
			rows, err = x.Rows(func() error { _, err := t.Run(); return err }, "--interval=1m")
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	late := int64(0)
	for _, c := range of {
		late += c["TcpRetransSegs"] + c["TcpExtTCPOFOQueue"]
	}
	if late == 0 && len(rows) > 0 {
		x.Errorf("%d rows, and nothing was lost: %s", len(rows), trial.Dump(rows[0]))
	}
	x.NoneLost()
	return nil
}
