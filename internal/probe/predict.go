// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"

	"seine/internal/host"
)

// Predict says which way each point would take, from BTF alone: nothing is
// loaded, and no privilege is needed. The verifier may still refuse.
func Predict(k *Kernel, spec *ebpf.CollectionSpec, points []Point, f Force) []Choice {
	var out []Choice
	for _, p := range points {
		c := Choice{Point: p.Name, Misses: p.Misses}
		ways := p.resolve(spec)
		forced, _ := f.of(p.Name, ways)
		for _, w := range only(ways, forced) {
			err := k.Fits(spec, w)
			if err == nil {
				c.Way, c.Programs, c.Misses = w.Name, w.Programs, w.Misses
				break
			}
			c.refuse(w.Name, err)
		}
		out = append(out, c)
	}
	return out
}

// Fits says whether everything that a way's programs attach to is there.
func (k *Kernel) Fits(spec *ebpf.CollectionSpec, w Way) error {
	if w.Fits != nil {
		if err := w.Fits(k); err != nil {
			return err
		}
	}
	for _, name := range w.Programs {
		if err := k.target(spec.Programs[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// target checks that the kernel has what a program attaches to.
func (k *Kernel) target(ps *ebpf.ProgramSpec) error {
	kind, target, _ := strings.Cut(ps.SectionName, "/")
	switch kind {
	case "tp_btf", "raw_tp":
		if k.Args(target) == nil {
			return fmt.Errorf("%w: no tracepoint %s", ErrNotSupported, target)
		}
	case "fentry", "fexit", "kprobe", "kretprobe":
		// Without a target the point's Attach knows where.
		if target != "" && !k.HasFunc(target) {
			return fmt.Errorf("%w: no function %s", ErrNotSupported, target)
		}
		if !k.stored {
			return k.can(kind)
		}
	case "iter":
		if !k.HasFunc("bpf_iter_" + target) {
			return fmt.Errorf("%w: no iterator over %s", ErrNotSupported, target)
		}
	case "tracepoint":
		if k.stored {
			return nil
		}
		group, name, _ := strings.Cut(target, "/")
		_, err := host.TracepointID(group, name)
		return err
	}
	return nil
}

// Missing is the choices of points that the tool needs and that have no way.
func Missing(points []Point, choices []Choice) []Choice {
	var out []Choice
	for i, c := range choices {
		if c.Way == "" && !points[i].Optional {
			out = append(out, c)
		}
	}
	return out
}
