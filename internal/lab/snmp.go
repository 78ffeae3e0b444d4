// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	seinehost "seine/internal/host"
)

// Counters are a host's protocol counters: what the kernel counted, to compare
// with what a workload or a tool says.
type Counters = seinehost.Counters

// Counters reads /proc/net/snmp, netstat and snmp6 of a host.
func (w *World) Counters(host string) (c Counters, err error) {
	err = w.Do(host, func() (err error) {
		c, err = seinehost.ReadCounters("/proc/thread-self/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lab: counters: %w", err)
	}
	return c, nil
}

// Counted is what moved in a host while fn ran.
func (w *World) Counted(host string, fn func() error) (Counters, error) {
	before, err := w.Counters(host)
	if err != nil {
		return nil, err
	}
	if err := fn(); err != nil {
		return nil, err
	}
	after, err := w.Counters(host)
	return after.Since(before), err
}
