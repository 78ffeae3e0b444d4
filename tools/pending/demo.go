// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"slices"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is traffic with many operations that hang.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		p, err := start(w, lab.TCP4)
		if err != nil {
			return err
		}
		if _, err := p.begin(true); err != nil {
			return err
		}
		time.Sleep(2500 * time.Millisecond) // a second, and the output after it
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{{Name: "kinds", Hosts: lab.TwoHosts, Run: kinds(lab.TCP4)}}

// kinds: one operation of each kind begins to hang while the tool runs, beside healthy
// connections. Each is shown when it is a second old, with the age that both ends
// measured. Nothing else is shown.
func kinds(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		p, err := start(x.World, n)
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		began, err := p.begin(true)
		if err != nil {
			return err
		}
		began = slices.DeleteFunc(began, usual)
		x.Until(func(rows []*row.Row) bool { return len(latest(rows)) >= len(began) })
		rows, at, err := x.DetachTimed()
		if err != nil {
			return err
		}
		p.compare(x, latest(rows), began, at)
		for _, r := range rows {
			if age := r.Get("age_ms").N; age < uint64(time.Second) {
				x.Errorf("%d ns old, want a second at least, in %s", age, trial.Dump(r))
			}
		}
		x.NoneLost()
		return nil
	}
}

func usual(b began) bool { return b.Usual }

// latest is the rows of the last output with rows.
func latest(rows []*row.Row) []*row.Row {
	if len(rows) == 0 {
		return nil
	}
	at := rows[len(rows)-1].Get("time").N
	i := slices.IndexFunc(rows, func(r *row.Row) bool { return r.Get("time").N == at })
	return rows[i:]
}

// compare compares rows with everything that hangs.
func (p *players) compare(x *trial.Trial, rows []*row.Row, began []began, at trial.Ended) {
	found := map[string]*row.Row{}
	for _, r := range rows {
		found[name(trial.Value(r.Get("what")), int(r.Get("lport").N), int(r.Get("rport").N), trial.Value(r.Get("type")))] = r
	}
	for _, b := range began {
		key := name(b.What, b.Lport, b.Rport, b.Type)
		r := found[key]
		if r == nil {
			x.Fail(&trial.Missing{Text: "no row of " + key})
			continue
		}
		delete(found, key)
		p.one(x, r, b, at)
	}
	for key, r := range found {
		x.Errorf("a row of %s, which does not hang: %s", key, trial.Dump(r))
	}
	if len(rows) > len(began) {
		x.Errorf("%d rows, want %d", len(rows), len(began))
	}
}

// name identifies an operation that hangs. The port of a lookup is not known.
func name(what string, lport, rport int, typ string) string {
	if what == "lookup" {
		return what + " " + typ
	}
	return fmt.Sprint(what, " ", lport, " → ", rport)
}

// one compares a row with one operation.
func (p *players) one(x *trial.Trial, r *row.Row, b began, at trial.Ended) {
	owner, host, other := p.client, "client", "server"
	switch b.What {
	case "lookup":
		owner = p.asker
	case "accept", "queued", "silent", "unread":
		owner, host, other = p.server, "server", "client"
	}
	x.Want(r, "pid", owner.PID)
	x.Want(r, "comm", owner.Comm)
	x.Want(r, "netns", owner.Netns)
	x.Want(r, "holders", 1)
	if b.What != "lookup" {
		x.Want(r, "laddr", x.World.Addr(host, p.network))
		x.Want(r, "proto", "tcp")
	}
	switch b.What {
	case "lookup":
		x.Want(r, "raddr", "127.0.0.1")
		x.Want(r, "name", muteName)
		x.Want(r, "proto", "udp")
	case "accept":
		x.Want(r, "raddr", "-")
	default:
		x.Want(r, "raddr", x.World.Addr(other, p.network))
	}
	bytes, count := any("-"), any("-")
	if b.Bytes >= 0 {
		bytes = b.Bytes
	}
	if b.What == "queued" {
		count = b.Count
	}
	x.Want(r, "bytes", bytes)
	x.Want(r, "count", count)
	// TCP keeps the time of a SYN in milliseconds. It keeps the time of the last
	// received data in jiffies, and so it does for sent data if its finer timestamp
	// was reset.
	slack := map[string]time.Duration{"connect": time.Millisecond, "unread": 2 * kern.Jiffy(), "request": 2 * kern.Jiffy()}[b.What]
	age := time.Duration(r.Get("age_ms").N)
	if least, most := time.Duration(at.From-b.After)-slack, time.Duration(at.To-b.Before)+slack; age < least || age > most {
		x.Errorf("%v old, want %v to %v by the stopwatch, in %s", age, least, most, trial.Dump(r))
	}
}
