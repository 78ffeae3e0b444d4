// SPDX-License-Identifier: Apache-2.0

package sormem

import (
	"time"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		f, err := lab.StartFlood(w, lab.Flood{Count: 23, Size: 500, RcvBuf: 4096, Idle: true, ServerComm: "sleepy"})
		if err != nil {
			return err
		}
		if _, err := f.Run(); err != nil {
			return err
		}
		return lab.RunTCP(w, lab.Sessions{Count: 3, Send: 100, Recv: 1 << 20})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "udp", Run: udp(lab.UDP4)},
	{Name: "udp6", Run: udp(lab.UDP6)},
}

// split separates the rows by view.
func split(rows []*row.Row) (fills, overflows []*row.Row) {
	for _, r := range rows {
		if r.Schema.View == "overflow" {
			overflows = append(overflows, r)
		} else {
			fills = append(fills, r)
		}
	}
	return fills, overflows
}

// dropped is the number of dropped packets in rows. There must be few rows: one at once,
// one for each second of the run, and one at the end.
func dropped(x *trial.Trial, overflows []*row.Row, ran time.Duration) (n int) {
	for _, r := range overflows {
		n += int(r.Get("drops").N)
	}
	if most := 2 + int(ran/time.Second); len(overflows) > most {
		x.Errorf("%d rows of one socket in %v, want %d at the most", len(overflows), ran, most)
	}
	return n
}

// udp makes a case of a receiver with a small buffer that does not read. The rows
// count each datagram that the socket counts as dropped.
func udp(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if k, err := probe.Running(); n == lab.UDP6 && err == nil && len(k.Args("udp_fail_queue_rcv_skb")) < 3 {
			return trial.Skip("this kernel's udp_fail_queue_rcv_skb is of the days when IPv6 did not call it")
		}
		f, err := lab.StartFlood(x.World, lab.Flood{Network: n, Count: 101, Size: 100, RcvBuf: 4096, Idle: true})
		if err != nil {
			return err
		}
		start := time.Now()
		rows, res, err := trial.RowsOf(x, 0, f.Run, "--by=comm")
		if err != nil {
			return err
		}
		_, overflows := split(rows)
		if n := dropped(x, overflows, time.Since(start)); res.Dropped == 0 || n != res.Dropped {
			x.Errorf("%d overflows, want %d", n, res.Dropped)
		}
		for _, r := range overflows {
			x.Want(r, "pid", f.Server.PID)
			x.Want(r, "comm", f.Server.Comm)
			x.Want(r, "proto", "udp")
			x.Want(r, "lport", f.Port)
			x.Want(r, "reason", "buffer full")
			x.Want(r, "kind", "receive")
			x.Want(r, "limit_bytes", res.RcvBuf)
			if used := r.Get("used_bytes").N; used == 0 || used > 2*uint64(res.RcvBuf) {
				x.Errorf("%d bytes in the buffer, want some of %d", used, res.RcvBuf)
			}
		}
		return nil
	}
}
