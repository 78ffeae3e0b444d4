// SPDX-License-Identifier: Apache-2.0

package tcptop

import (
	"net/netip"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		r, err := lab.StartPingPong(w, lab.PingPong{Size: 200, Answer: 4000, Parallel: 2, ClientComm: "api", ServerComm: "db"})
		if err != nil {
			return err
		}
		if err := r.Begin(); err != nil {
			return err
		}
		for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
			if err := lab.RunTCP(w,
				lab.Sessions{Count: 3, Send: 1000, Recv: 1234567, ClientComm: "browser", ServerComm: "web"},
				lab.Sessions{Count: 1, Send: 7654321, Recv: 10, Network: lab.TCP6, ClientComm: "backup", ServerComm: "store"}); err != nil {
				return err
			}
		}
		_, err = r.End()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "sums", Hosts: lab.TwoHosts, Run: sums(oneOutput)},
}

// oneOutput is an interval that is longer than any case.
const oneOutput = "--interval=1m"

// end is one end of a session: the process and the addresses.
type end struct {
	pid           int
	local, remote string
}

type moved struct{ tx, rx int }

// add adds up rows by end.
func add(x *trial.Trial, rows []*row.Row) map[end]moved {
	got := map[end]moved{}
	for _, r := range rows {
		e := end{int(r.Get("pid").N), r.Get("local").S, r.Get("remote").S}
		m := got[e]
		got[e] = moved{m.tx + int(r.Get("tx_bytes").N), m.rx + int(r.Get("rx_bytes").N)}
		if r.Get("total_bytes").N != r.Get("tx_bytes").N+r.Get("rx_bytes").N {
			x.Errorf("total_bytes is not the sum in %s", trial.Dump(r))
		}
	}
	x.NoneLost()
	return got
}

// ends adds both ends of each session of t to want.
func ends(x *trial.Trial, t *lab.TCP, res lab.TCPResult, want map[end]moved) {
	s := t.Sessions
	client := x.World.Addr(s.ClientHost, s.Network)
	for _, one := range res.Client.Sessions {
		c := netip.AddrPortFrom(client, uint16(one.ClientPort)).String()
		v := netip.AddrPortFrom(one.Addr, uint16(t.Port)).String()
		want[end{t.Client.PID, c, v}] = moved{s.Send, s.Recv}
		want[end{t.Server.PID, v, c}] = moved{s.Recv, s.Send}
	}
}

func compare(x *trial.Trial, got, want map[end]moved) {
	for e, w := range want {
		if g, seen := got[e]; !seen {
			x.Fail(trial.Fewer(0, 1, "%v: no row, want %v moved", e, w))
		} else if g != w {
			x.Errorf("%v: moved %v, want %v", e, g, w)
		}
	}
	for e, g := range got {
		if _, ok := want[e]; !ok {
			x.Errorf("%v: moved %v, want no such row", e, g)
		}
	}
}

// sums: sessions of both families, within one interval or across several, are
// each counted exactly once, at both ends.
func sums(interval string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		var all []*lab.TCP
		for _, s := range []lab.Sessions{
			{Count: 23, Send: 1000, Recv: 77777},
			{Count: 23, Send: 54321, Recv: 10, Network: lab.TCP6},
			{Count: 7, Send: 100, Recv: 100, Close: lab.ByServer},
		} {
			t, err := lab.StartTCP(x.World, s)
			if err != nil {
				return err
			}
			all = append(all, t)
		}
		want := map[end]moved{}
		rows, err := x.Rows(func() error {
			for _, t := range all {
				res, err := t.Run()
				if err != nil {
					return err
				}
				ends(x, t, res, want)
			}
			return nil
		}, interval)
		if err != nil {
			return err
		}
		if len(want) != 106 {
			x.Errorf("%d ends of sessions, want 106", len(want))
		}
		compare(x, add(x, rows), want)
		if interval == oneOutput {
			sameTime(x, rows)
		}
		return nil
	}
}

// sameTime: all rows of one output have its time, also those of sessions that
// ended earlier.
func sameTime(x *trial.Trial, rows []*row.Row) {
	for _, r := range rows {
		if got, want := r.Get("time").N, rows[0].Get("time").N; got != want {
			x.Errorf("a row is %v older than another of its output, want the output's time in both", time.Duration(want-got))
			return
		}
	}
}
