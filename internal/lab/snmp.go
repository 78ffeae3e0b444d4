// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"time"

	seinehost "seine/internal/host"
)

// Counters are a host's protocol counters, to compare the kernel's counts with
// those of a workload or a tool.
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

// Quiet waits until no host has a TCP segment under way: work that a busy processor has deferred
// comes after the processes have ended. A connection that is about to end has a FIN under way,
// unless its peer is silent for good.
func (w *World) Quiet() error {
	silent := time.Now().Add(10 * time.Second)
	for last, same := int64(-1), 0; same < 3; time.Sleep(10 * time.Millisecond) {
		sum, ending := int64(0), false
		for _, h := range w.Hosts() {
			c, err := w.Counters(h)
			if err != nil {
				return err
			}
			sum += c["TcpInSegs"] + c["TcpOutSegs"]
			all, err := w.connections(h)
			if err != nil {
				return err
			}
			ending = ending || slices.ContainsFunc(all, connection.ending)
		}
		if sum == last && (!ending || time.Now().After(silent)) {
			same++
		} else {
			last, same = sum, 0
		}
	}
	return nil
}

// Counted is the growth of a host's counters while fn ran.
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
