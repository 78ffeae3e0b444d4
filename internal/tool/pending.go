// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"strings"

	"seine/internal/probe"
)

// What has begun and not ended is in a map of the kernel side: a connect, a lookup, an
// echo. Before each output the session runs the BPF iterators of the points whose
// names begin with Pending's: each walks over such a map (PENDING in bpf/pending.h)
// and tells of every entry as its tool tells of an end, with the same filters, but
// with its age in the place of the latency and marked by kern.Pending.
//
// So the kernel side need keep no more of a thing than where to look at it: since
// when, whose, and the socket, whose addresses are read when it is told of.

// Pending is the point of these programs.
var Pending = PendingAt("pending")

// PendingAt is the same by another name, for a view that needs only some of them.
func PendingAt(name string) probe.Point {
	return probe.Point{Name: name, Optional: true, Misses: "what has begun and not ended when the run ends"}
}

// tellPending runs the iterators and shows what they tell.
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
