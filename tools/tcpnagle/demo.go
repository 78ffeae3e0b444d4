// SPDX-License-Identifier: Apache-2.0

package tcpnagle

import (
	"fmt"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

const hold = 30 * time.Millisecond

// mix is writes in every state. Some of them are held.
var mix = []lab.Writes{
	{Count: 23, Size: 100, Each: true},
	{Count: 17, Size: 100, Each: true, NoDelay: true},
	{Count: 7, Size: 11, Cork: true, Hold: hold},
	{Count: 5, Size: 11, Cork: true, NoDelay: true, Hold: hold},
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{Run: func(w *lab.World) error {
	p, err := lab.StartWriter(w, "writer", lab.TCP4, mix...)
	if err != nil {
		return err
	}
	_, err = p.Run()
	return err
}}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Run: states(lab.TCP4)},
	{Name: "ipv6", Run: states(lab.TCP6)},
}

// parts separates the rows of the two views: sends by state, and histograms by
// state and cause.
func parts(rows []*row.Row) (sends map[string]*row.Row, held map[string]*kern.Hist) {
	sends, held = map[string]*row.Row{}, map[string]*kern.Hist{}
	for _, r := range rows {
		state := r.Get("state").S
		if r.Schema.View == "held" {
			held[state+" "+r.Get("metric").S] = r.Get("held_us").Ref.(*kern.Hist)
		} else {
			sends[state] = r
		}
	}
	return sends, held
}

// states: the writes in each state are counted exactly, and data under a cork
// are held as long as the process reports.
func states(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		p, err := lab.StartWriter(x.World, "writer", network, mix...)
		if err != nil {
			return err
		}
		var out []lab.Written
		rows, err := x.Rows(func() (err error) { out, err = p.Run(); return err }, "--lport", fmt.Sprint(p.Own))
		if err != nil {
			return err
		}
		sends, held := parts(rows)
		asWritten(x, out, sends, held)
		for _, r := range sends {
			x.Want(r, "comm", "writer")
		}
		return nil
	}
}

// asWritten compares both views with the process's report of the mix.
func asWritten(x *trial.Trial, out []lab.Written, sends map[string]*row.Row, held map[string]*kern.Hist) {
	for i, state := range []string{"ON", "OFF", "CORK", "OFF|CORK"} {
		r := sends[state]
		if r == nil {
			x.Errorf("no sends in state %s", state)
			continue
		}
		x.Want(r, "count", mix[i].Count)
		x.Want(r, "bytes", mix[i].Count*mix[i].Size)
		if !mix[i].Cork {
			continue
		}
		h := held[state+" cork"]
		delete(held, state+" cork")
		if out[i].Early {
			// If the machine stands still, the kernel sends after 200 ms: see
			// tcp(7). Later writes are then held too, each for a part of the
			// time.
			if h != nil && (h.Count > uint64(out[i].Count) || int64(h.Sum)*1000 > out[i].NS) {
				x.Errorf("%s: held %v, the process wrote %d times in %d ns", state, h, out[i].Count, out[i].NS)
			}
			continue
		}
		once(x, state, h, out[i])
	}
	for k := range held {
		x.Errorf("held by %s", k)
	}
}

// once compares the histogram of data that were held once with the process's
// report.
func once(x *trial.Trial, state string, h *kern.Hist, o lab.Written) {
	if h == nil || h.Count != 1 {
		x.Errorf("%s: held %v, want one", state, h)
		return
	}
	if ns := int64(h.Sum) * 1000; ns < o.Held-int64(time.Millisecond) || ns > o.NS {
		x.Errorf("%s: held for %d ns, the process says %d to %d", state, ns, o.Held, o.NS)
	}
}
