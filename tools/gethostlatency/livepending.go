// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"seine/internal/lab"
	"seine/internal/trial"
)

// pending: a lookup that the name server has not answered when the run ends.
func pending(x *trial.Trial) error {
	server, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{})
	if err != nil {
		return err
	}
	p, err := glibc().start(x, etc, "getaddrinfo", "mute.example")
	if err != nil {
		return err
	}
	rows, err := x.Unanswered(p, server, 1, "latency_us")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	x.Want(rows[0], "pid", p.PID)
	x.Want(rows[0], "comm", p.Comm)
	x.Want(rows[0], "netns", p.Netns)
	x.Want(rows[0], "host", "mute.example")
	x.Want(rows[0], "call", "getaddrinfo")
	x.Want(rows[0], "result", "pending")
	return nil
}
