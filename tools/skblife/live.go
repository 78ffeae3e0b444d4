// SPDX-License-Identifier: Apache-2.0

package skblife

import (
	"errors"
	"fmt"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w, lab.Sessions{Count: 5, Send: 100000, Recv: 100}); err != nil {
			return err
		}
		f, err := lab.StartFlood(w, lab.Flood{Count: 101, ClientHost: "client", ServerHost: "server"})
		if err != nil {
			return err
		}
		_, err = f.Run()
		return err
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "unread", Hosts: lab.TwoHosts, Run: unread},
	{Name: "ticks", Hosts: lab.TwoHosts, Run: ticks},
	{Name: "tcp", Hosts: lab.TwoHosts, Run: tcp},
	{Name: "read", Hosts: lab.TwoHosts, Run: read},
	{Name: "crowded", Hosts: lab.TwoHosts, Run: crowding},
	{Name: "napi", Run: napi},
	{Name: "merged", Hosts: lab.TwoHosts, Run: merged},
	{Name: "all", Hosts: lab.TwoHosts, Run: all},
}

// account is a row of the balance, and how many lifespans there are.
type account struct{ births, freed, merged, unseen, alive, lives int }

// accounts reads the rows of both views, and checks that they agree.
func accounts(x *trial.Trial, rows []*row.Row) map[string]account {
	got := map[string]account{}
	var ended, lives int
	for _, r := range rows {
		kind := r.Get("kind").S
		a := got[kind]
		if r.Schema.View == "lives" {
			a.lives = int(r.Get("life_ns").Ref.(*kern.Hist).Count)
			lives += a.lives
		} else {
			n := func(id string) int { return int(int64(r.Get(id).N)) }
			a.births, a.freed, a.merged, a.unseen, a.alive = n("births"), n("freed"), n("merged"), n("unseen"), n("alive")
			if kind != "unknown" {
				ended += a.freed + a.merged
				if a.births != a.freed+a.merged+a.unseen+a.alive || a.alive < 0 {
					x.Errorf("%s does not add up: %+v", kind, a)
				}
			}
		}
		got[kind] = a
	}
	if lives != ended {
		x.Errorf("%d lifespans of %d ends, in %v", lives, ended, got)
	}
	alive := 0
	for _, a := range got {
		alive += a.alive
	}
	for _, m := range x.Report.MapUse {
		if m.Name == "lives" && int(m.Used) < alive {
			x.Errorf("%d buffers are alive, but %d are known, in %v", alive, m.Used, got)
		}
	}
	return got
}

// functional says whether functions are traced.
func functional(x *trial.Trial) bool { return x.Choices[0].Way == "fexit" }

// traced runs the traffic and reads the accounts.
func traced(x *trial.Trial, traffic func() error, flags ...string) (map[string]account, error) {
	rows, err := x.Rows(traffic, append(flags, "--stats")...)
	if err != nil {
		return nil, err
	}
	return accounts(x, rows), nil
}

// unread: datagrams that nobody reads before their socket is closed. A softirq ends them.
func unread(x *trial.Trial) error {
	const n = 997
	return lab.Undisturbed(func() (differ []error, err error) {
		sender, send, err := unreadLetters(x.World, n)
		if err != nil {
			return nil, err
		}
		got, err := traced(x, send, "-p", fmt.Sprint(sender))
		if err != nil {
			return nil, err
		}
		if a := got["alloc"]; a != (account{births: n, freed: n, lives: n}) {
			differ = append(differ, fmt.Errorf("%+v, want %d births, all freed", a, n))
		}
		return differ, nil
	})
}

// ticks: buffers that begin in one interval and end in another are in the balance
// of both.
func ticks(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return ticked(x) })
}

// ticked is one round of ticks, and returns what is wrong.
func ticked(x *trial.Trial) (differ []error, err error) {
	const n = 53
	t, err := lab.StartTargets(x.World, "server", "holder", lab.Target{Network: lab.UDP4})
	if err != nil {
		return nil, err
	}
	s, err := lab.StartLetters(x.World, "client", "sender", lab.Letters{Network: lab.UDP4, To: t.Addrs, Rounds: n, Size: 100})
	if err != nil {
		return nil, err
	}
	if err := x.Attach("-p", fmt.Sprint(s.PID), "--interval=100ms"); err != nil {
		return nil, err
	}
	if _, err := s.Run(); err != nil {
		return nil, err
	}
	x.Until(func(rows []*row.Row) bool { // there is an output between
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

// balances are the rows of the balance that are of buffers which somebody sends.
func balances(rows []*row.Row) (out []*row.Row) {
	for _, r := range rows {
		if r.Schema.View == "balance" && r.Get("kind").S == "alloc" {
			out = append(out, r)
		}
	}
	return out
}

// unreadLetters readies a process that sends n datagrams to one that never reads them
// and then ends, when send is called.
func unreadLetters(w *lab.World, n int) (sender int, send func() error, err error) {
	t, err := lab.StartTargets(w, "server", "holder", lab.Target{Network: lab.UDP4})
	if err != nil {
		return 0, nil, err
	}
	s, err := lab.StartLetters(w, "client", "sender", lab.Letters{Network: lab.UDP4, To: t.Addrs, Rounds: n, Size: 100})
	if err != nil {
		return 0, nil, err
	}
	return s.PID, func() error {
		_, err := s.Run()
		return errors.Join(err, t.End(), w.Grace())
	}, nil
}

// crowding: more buffers at once than the map has room for. When they have ended
// there is room again, though the next ones are elsewhere.
func crowding(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return crowded(x) })
}

// crowded is one round of crowding, and returns what is wrong.
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

// read: datagrams that are read. By tracepoints their ends may pass unseen.
func read(x *trial.Trial) error {
	const n = 499
	f, err := lab.StartFlood(x.World, lab.Flood{Count: n, ClientHost: "client", ServerHost: "server"})
	if err != nil {
		return err
	}
	// Another processor may be left with the last buffers, to free them.
	got, err := traced(x, func() error { _, err := f.Run(); return errors.Join(err, x.World.Settle()) }, "-p", fmt.Sprint(f.Client.PID))
	if err != nil {
		return err
	}
	a := got["alloc"]
	if a.births != n || functional(x) && a.freed != n {
		x.Errorf("%+v, want %d births, all freed", a, n)
	}
	return nil
}

// tcp: sessions; what TCP keeps until it is acknowledged is sent as clones,
// which are as old as what they are clones of.
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
	// SYN, SYN-ACK, data, FIN, FIN. Some may still be under way.
	if a := got["alloc"]; a.births < 5*n || a.freed+a.merged < a.births*19/20 {
		x.Errorf("%+v: fewer than 5 buffers for each of %d sessions, or not all have ended", a, n)
	}
	if a := got["clone"]; functional(x) && a.births < 4*n { // as above but for the SYN-ACK
		x.Errorf("%+v: fewer than 4 clones for each of %d sessions", a, n)
	}
	return nil
}

// napi: buffers that come from NAPI's cache.
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
	// By functions one more is seen, which making the device takes.
	if a.births != n && !(functional(x) && a.births == n+1) || a.freed != a.births {
		x.Errorf("%+v, want %d births, all freed", a, n)
	}
	return nil
}

// merged: a sender cuts segments, which are as old as what they are cut from,
// and the receiver joins them again.
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
	old := len(k.Args("kfree_skb")) < 3 // and so its veth devices have no GRO
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

// all: everything that goes on, without a filter: the account holds, and
// sockets that were there before may give buffers of unknown birth.
func all(x *trial.Trial) error {
	return lab.Undisturbed(func() ([]error, error) { return orphaned(x) })
}

// orphaned is one round of all, and returns what is wrong.
func orphaned(x *trial.Trial) (differ []error, err error) {
	t, err := lab.StartTargets(x.World, "server", "holder", lab.Target{Network: lab.UDP4})
	if err != nil {
		return nil, err
	}
	const n = 13
	s, err := lab.StartLetters(x.World, "client", "sender", lab.Letters{Network: lab.UDP4, To: t.Addrs, Rounds: n, Size: 100})
	if err != nil {
		return nil, err
	}
	if _, err := s.Run(); err != nil {
		return nil, err
	}
	if err := errors.Join(x.World.Settle(), x.AttachAll("--stats")); err != nil {
		return nil, err
	}
	if err := errors.Join(t.End(), x.World.Grace()); err != nil {
		return nil, err
	}
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	if got := accounts(x, rows); got["unknown"].freed < n {
		differ = append(differ, fmt.Errorf("%d freed whose birth is unknown, want %d", got["unknown"].freed, n))
	}
	return differ, nil
}
