// SPDX-License-Identifier: Apache-2.0

package skblife

import (
	"errors"
	"fmt"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "unread", Hosts: lab.TwoHosts, Run: unread},
}

// account is a row of the balance, and the number of lifetimes in the histogram.
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

// traced runs the traffic and reads the accounts.
func traced(x *trial.Trial, traffic func() error, flags ...string) (map[string]account, error) {
	rows, err := x.Rows(traffic, append(flags, "--stats")...)
	if err != nil {
		return nil, err
	}
	return accounts(x, rows), nil
}

// unread: the socket is closed before anybody reads its datagrams. A softirq frees them.
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

// letters prepares a process with a socket that it never reads, and one that sends n datagrams
// to it.
func letters(w *lab.World, n int) (*lab.Targets, *lab.Sender, error) {
	t, err := lab.StartTargets(w, "server", "holder", lab.Target{Network: lab.UDP4})
	if err != nil {
		return nil, nil, err
	}
	s, err := lab.StartLetters(w, "client", "sender", lab.Letters{Network: lab.UDP4, To: t.Addrs, Rounds: n, Size: 100})
	return t, s, err
}

// unreadLetters prepares a process that sends n datagrams to another one when send is called.
// The other process never reads them, and then ends.
func unreadLetters(w *lab.World, n int) (sender int, send func() error, err error) {
	t, s, err := letters(w, n)
	if err != nil {
		return 0, nil, err
	}
	return s.PID, func() error {
		_, err := s.Run()
		return errors.Join(err, t.End(), w.Grace())
	}, nil
}
