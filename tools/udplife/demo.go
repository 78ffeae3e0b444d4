// SPDX-License-Identifier: Apache-2.0

package udplife

import (
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		for _, l := range []lab.Load{
			{Network: lab.UDP4, Count: 17, Size: 512}, {Network: lab.UDP6, Count: 5, Size: 1200},
		} {
			o, err := lab.StartIO(w, "", "media", l)
			if err != nil {
				return err
			}
			if _, err := o.Run(); err != nil {
				return err
			}
		}
		f, err := lab.StartFlood(w, lab.Flood{Count: 400, RcvBuf: 4096, Idle: true, ClientComm: "logger", ServerComm: "collector"})
		if err != nil {
			return err
		}
		_, err = f.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Run: moved(lab.Load{Network: lab.UDP4, Count: 23, Size: 101}, false)},
	{Name: "ipv6", Run: moved(lab.Load{Network: lab.UDP6, Count: 23, Size: 101}, false)},
}

// moved makes a case of one connection with both ends in one process.
func moved(l lab.Load, older bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if !older {
			if err := x.Attach(); err != nil {
				return err
			}
		}
		o, err := lab.StartIO(x.World, "", "mover", l)
		if err != nil {
			return err
		}
		if older {
			if err := x.Attach(); err != nil {
				return err
			}
		}
		if _, err := o.Run(); err != nil {
			return err
		}
		rows, err := x.Exactly(2)
		if err != nil {
			return err
		}
		for _, r := range rows {
			tx, rx := l.Count, 0
			peer := o.Ends[0].ReaderPort
			if int(r.Get("lport").N) == o.Ends[0].ReaderPort {
				tx, rx, peer = 0, l.Count, o.Ends[0].WriterPort
			}
			x.Want(r, "pid", o.PID)
			x.Want(r, "comm", o.Comm)
			x.Want(r, "netns", o.Netns)
			if r.Get("connected").N != 0 {
				x.Want(r, "rport", peer)
				x.Want(r, "raddr", x.World.Addr("", l.Network))
			}
			amounts(x, r, tx, tx*l.Size, rx, rx*l.Size)
			x.Want(r, "drops", 0)
			if known := r.Get("duration_ms").Kind != row.Null; known == older {
				x.Errorf("a duration that should not be known, or should be: %s", trial.Dump(r))
			}
		}
		x.NoneLost()
		return nil
	}
}

func amounts(x *trial.Trial, r *row.Row, tx, txBytes, rx, rxBytes int) {
	x.Want(r, "tx_datagrams", tx)
	x.Want(r, "tx_bytes", txBytes)
	x.Want(r, "rx_datagrams", rx)
	x.Want(r, "rx_bytes", rxBytes)
}
