// SPDX-License-Identifier: Apache-2.0

package so1stbyte

import (
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

const think = 50 * time.Millisecond

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w,
			lab.Sessions{Count: 41, Send: 100, Recv: 1000, ClientComm: "browser"},
			lab.Sessions{Count: 7, Send: 100, Recv: 1000, Think: think, ClientComm: "report"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "think", Run: histogram},
}

// histogram: the delay of a server puts all connections into the expected
// buckets.
func histogram(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 100, Recv: 1000, Think: think})
	if err != nil {
		return err
	}
	rows, res, err := trial.RowsOf(x, 0, t.Run, "--by=comm,rport")
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		x.Errorf("%d rows, want 1", len(rows))
		return nil
	}
	x.Want(rows[0], "comm", t.Client.Comm)
	x.Want(rows[0], "rport", t.Port)
	h := rows[0].Get("latency_us").Ref.(*kern.Hist)
	if h.Count != 7 || h.Min < 50000 {
		x.Errorf("%d connections, the least of %d us, want 7 of 50000 or more", h.Count, h.Min)
	}
	var most, sum uint64
	for _, s := range res.Client.Sessions {
		most, sum = max(most, uint64(s.FirstNS)/1000), sum+uint64(s.FirstNS)/1000
	}
	if h.Max > most || h.Sum > sum {
		x.Errorf("the longest of %d us and all of %d us, want at most %d and %d", h.Max, h.Sum, most, sum)
	}
	quick := uint64(0) // by the client's own stopwatch, which starts before and ends after
	for _, s := range res.Client.Sessions {
		if s.FirstNS < 65536*1000 {
			quick++
		}
	}
	if b := h.Buckets()[0]; quick > 0 && (b.Lo != 32768 || b.Count < quick) {
		x.Errorf("%d in [%d, %d), want %d or more in [32768, 65536)", b.Count, b.Lo, b.Hi, quick)
	}
	return nil
}
