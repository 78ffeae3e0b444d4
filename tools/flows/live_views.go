// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// thinker and sleeper are talks that span several outputs.
var (
	thinker = lab.Talk{Name: "think", Turns: 13, Think: 40 * ms, Gap: 10 * ms}
	sleeper = lab.Talk{Name: "late", Turns: 11, Late: 30 * ms, Gap: 10 * ms}
)

// intervals: rows of connections cover one interval each. Each adds up to it, and all
// together to the connection.
func intervals(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTalks(x.World, "asker", "answerer", thinker, sleeper)
		if err != nil {
			return err
		}
		rows, said, err := trial.RowsOf(x, 0, t.Run, append(flags, "--view=connections", "--interval=100ms", "--all")...)
		if err != nil {
			return err
		}
		for i, talk := range t.Talks {
			for _, r := range []role{client, server} {
				x.Whole(func() { together(x, rows, r, &talk, t.Ports[i], &said[i]) })
			}
		}
		for _, r := range rows {
			addsUp(x, r)
		}
		x.NoneLost()
		return nil
	}
}

// together compares the sum of all rows of one side of a talk.
func together(x *trial.Trial, rows []*row.Row, r role, talk *lab.Talk, port int, said *lab.TalkResult) {
	part, from, to := []string{"app"}, said.Server.Think, said.Client.Exchanges()
	if talk.Late > 0 {
		// A request may seem to have arrived during the client's pause.
		part, from, to = []string{"unread"}, said.Server.Late-int64(talk.Turns)*int64(jiffy()+2*ms), to+said.Client.Gap
	}
	if r == client {
		part = []string{"peer", "unread"}
		from -= int64(talk.Turns) * int64(jiffy()+2*ms)
	}
	from -= int64(talk.Turns) * max(said.Client.RTT, said.Server.RTT)
	sum := add(rows, r, port)
	who := fmt.Sprintf("%s, %s", talk.Name, r)
	// Four rows are an output. If there are few, the machine was too busy for more.
	if sum.rows == 0 || (sum.rows == 1 && len(rows) >= 4*5) {
		x.Errorf("%s: %d of %d rows", who, sum.rows, len(rows))
	}
	if sum.of["turns"] != int64(talk.Turns) {
		x.Errorf("%s: %d turns in all rows, want %d", who, sum.of["turns"], talk.Turns)
	}
	var got int64
	for _, p := range part {
		got += sum.of[p+"_ms"]
	}
	if most := to + to/20 + int64(talk.Turns)*int64(jiffy()); got < from || got > most {
		x.Errorf("%s: %s is %v in all rows, want %v to %v", who, part, time.Duration(got), time.Duration(from), time.Duration(most))
	}
	if wall := sum.of["wall_ms"]; wall < said.Client.Exchanges()+said.Client.Gap {
		x.Errorf("%s: all rows cover %v of %v", who, time.Duration(wall), time.Duration(said.Client.Whole))
	}
}

// sums is what rows of one connection add up to.
type sums struct {
	rows int
	of   map[string]int64
}

func add(rows []*row.Row, side role, port int) sums {
	s := sums{of: map[string]int64{}}
	for _, r := range rows {
		id := "lport"
		if side == client {
			id = "rport"
		}
		if r.Get(id).N != uint64(port) {
			continue
		}
		s.rows++
		for i, c := range r.Schema.Columns {
			if c.Sum && r.Cells[i].Kind == row.Uint {
				s.of[c.ID] += int64(r.Cells[i].N)
			}
		}
	}
	return s
}

// grouped: several connections of one service are one row, with the turns of all.
func grouped(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTalks(x.World, "asker", "answerer", thinker, sleeper)
		if err != nil {
			return err
		}
		rows, said, err := trial.RowsOf(x, 0, t.Run, append(flags, "--interval=10m")...)
		if err != nil {
			return err
		}
		for i, talk := range t.Talks {
			for _, side := range []role{client, server} {
				id, name, verdict := "lport", fmt.Sprintf("answerer :%d (in)", t.Ports[i]), []string{"app", "unread"}[i]
				if side == client {
					id, name, verdict = "rport", fmt.Sprintf("asker → %s", talk.Addr), "peer"
				}
				r := find(rows, id, t.Ports[i])
				if r == nil {
					x.Fail(&trial.Missing{Text: "no row of " + name}) // the rows are counted
					continue
				}
				x.Whole(func() {
					x.Want(r, "service", name)
					x.Want(r, "conns", 1)
					x.Want(r, "turns", talk.Turns)
					// The server's time must be most of it;
					// a busy machine adds its own.
					if took := said[i].Server.Think + said[i].Server.Late; took > said[i].Client.Exchanges()*6/10 {
						x.Want(r, "verdict", verdict)
					}
					turn(x, r, "turn_us", talk.Turns, &said[i], exactly(flags))
					if side == client {
						turn(x, r, "first_us", talk.Turns, &said[i], exactly(flags))
					}
				})
			}
		}
		x.Fail(trial.RowCount(len(rows), 4))
		x.NoneLost()
		return nil
	}
}

// subflows: an MPTCP connection with two subflows. The application's reads and writes are
// not seen on either.
func subflows(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := lab.MPTCPSupported(); err != nil {
			return trial.Skip("%v", err)
		}
		w := x.World
		second, err := w.OpenPath("client", "server", lab.Path{})
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		defer second.Close()
		if err := w.Subflow("client", "server", second.From); err != nil {
			return err
		}
		t, err := lab.StartTalks(w, "asker", "answerer", lab.Talk{Name: "two", Network: lab.MPTCP4, Turns: 11, Think: 20 * ms, Gap: 20 * ms})
		if err != nil {
			return err
		}
		rows, said, err := trial.RowsOf(x, 4, t.Run, append(flags, "--closed")...)
		if err != nil {
			return err
		}
		joined := 0
		for _, r := range rows {
			addsUp(x, r)
			x.Whole(func() {
				if got, least := int64(r.Get("unknown_ms").N), said[0].Server.Think/2; got < least {
					x.Errorf("unknown is %v, want %v at least, in %s", time.Duration(got), time.Duration(least), trial.Dump(r))
				}
			})
			if r.Get("laddr").IP() == second.From || r.Get("raddr").IP() == second.From {
				joined++
				x.Want(r, "accept_ms", 0) // nobody accepts it
			}
		}
		if joined != 2 {
			x.Fail(&trial.Missing{Text: fmt.Sprintf("%d rows of the second subflow", joined)})
		}
		x.Fail(trial.RowCount(len(rows), 4))
		x.NoneLost()
		return nil
	}
}

// quiet: connections that carry no data belong to their services too.
func quiet(x *trial.Trial) error {
	const n = 3
	var all [2]*lab.TCP
	for i := range all {
		var err error
		if all[i], err = lab.StartTCP(x.World, lab.Sessions{Count: n}); err != nil {
			return err
		}
	}
	rows, err := x.Rows(func() error {
		for _, t := range all {
			if _, err := t.Run(); err != nil {
				return err
			}
		}
		return nil
	}, "--interval=10m")
	if err != nil {
		return err
	}
	for _, t := range all {
		for _, id := range []string{"lport", "rport"} {
			r := find(rows, id, t.Port)
			if r == nil {
				x.Errorf("no row of %s %d", id, t.Port)
				continue
			}
			x.Want(r, "conns", n)
			x.Want(r, "turns", 0)
		}
	}
	x.Fail(trial.RowCount(len(rows), 2*len(all)))
	return nil
}

func exactly(flags []string) bool { return len(flags) > 0 }

// turn checks the count of a histogram, and that its sum agrees with the
// stopwatches.
func turn(x *trial.Trial, r *row.Row, id string, n int, said *lab.TalkResult, exact bool) {
	from, to := said.Server.Think+said.Server.Late, said.Client.Exchanges()
	h, ok := r.Get(id).Ref.(*kern.Hist)
	if !ok {
		x.Errorf("no %s in %s", id, trial.Dump(r))
		return
	}
	each := jiffy() + 2*ms
	if exact {
		each = 2 * ms
	} else {
		to += said.Client.Gap // a request may seem to have come before it was sent
	}
	// A message counts as delivered a round trip after it was sent, and the handshake of a
	// busy machine may have been slow.
	slack := int64(n) * (int64(each) + max(said.Client.RTT, said.Server.RTT))
	to += said.Server.Send // the call may return long after the client has the answer
	var least, most uint64
	for _, b := range h.Buckets() {
		least += b.Lo * b.Count
		most += b.Hi * b.Count
	}
	if h.Sum < least || h.Sum > most {
		x.Errorf("%s is %d us together, but its buckets hold %d to %d, in %s", id, h.Sum, least, most, trial.Dump(r))
	}
	if got := int64(h.Sum) * 1000; h.Count != uint64(n) || got < from-slack || got > to+slack {
		x.Errorf("%s is %d turns of %v together, want %d of %v to %v; said %+v; in %s", id, h.Count, time.Duration(got), n, time.Duration(from-slack), time.Duration(to+slack), *said, trial.Dump(r))
	}
}
