// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"seine/internal/lab"
)

// settle is the time that the last events of a workload have to become rows.
const settle = 300 * time.Millisecond

// demoTraffic is a workload that runs beside a command.
type demoTraffic struct {
	world *lab.World
	ended chan error // nil: not started
}

// begin starts the workload, and calls then after its last events have become rows.
func (d *demoTraffic) begin(work func() error, then func()) {
	d.ended = make(chan error, 1)
	go func() {
		d.ended <- work()
		time.Sleep(settle)
		then()
	}()
}

// end is called when the command has ended with err. It stops a workload that still runs and
// ignores its error: then the user, -n or -d ended the command first.
func (d *demoTraffic) end(err error) error {
	if d.ended == nil {
		return err
	}
	select {
	case trouble := <-d.ended:
		return errors.Join(err, trouble)
	default:
		d.world.Stop()
		<-d.ended
		return err
	}
}
