// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strings"

	"seine/internal/probe"
)

// Operations that have begun and not ended are in a map of the kernel side: a connect, a lookup,
// an echo request. Before each output the session runs the BPF iterators of the points whose
// names begin with Pending's. Each walks over such a map (PENDING in bpf/pending.h) and sends
// every entry as its tool sends an end, with the same filters. Such a row has the age in place
// of the latency and is marked by kern.Pending.
//
// So the kernel side keeps only the start time, the process and the socket of an operation. The
// addresses are read from the socket during the walk.

// Pending is the point of these programs.
var Pending = PendingAt("pending")

// PendingAt is Pending under another name, for a view that needs only some of the iterators.
func PendingAt(name string) probe.Point {
	return probe.Point{Name: name, Optional: true, Misses: "operations that have begun and not ended when the run ends"}
}

// tellPending runs the iterators and shows their rows.
func (s *Session) tellPending() error {
	var walks []func() error
	for name, iters := range s.set.Iters {
		if !strings.HasPrefix(name, Pending.Name) {
			continue
		}
		for _, it := range iters {
			walks = append(walks, func() error {
				if err := drain(it); err != nil {
					return fmt.Errorf("point %s: %w", name, err)
				}
				return nil
			})
		}
	}
	if walks == nil {
		return nil
	}
	return s.during(append(walks, s.synced)...)
}
