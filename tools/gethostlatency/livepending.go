// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// pending: a lookup that the name server has not answered when the run ends.
func pending(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{}); err != nil {
		return err
	}
	p, err := glibc.start(x, etc, "getaddrinfo", "mute.example")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	before := int64(kern.MonoNow())
	if err := p.Tell("go"); err != nil {
		return err
	}
	// The program says nothing of when it began: after so long it has.
	const began = time.Second
	time.Sleep(2 * began)
	rows, at, err := x.DetachTimed()
	p.Kill()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	x.WantPending(rows[0], "latency_us", before, before+int64(began), at)
	x.Want(rows[0], "pid", p.PID)
	x.Want(rows[0], "comm", p.Comm)
	x.Want(rows[0], "netns", p.Netns)
	x.Want(rows[0], "host", "mute.example")
	x.Want(rows[0], "call", "getaddrinfo")
	x.Want(rows[0], "result", "pending")
	return nil
}
