// SPDX-License-Identifier: Apache-2.0

// Package probe attaches the points of a tool, each by the best way that the running kernel
// offers, and explains what it chose.
package probe

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// A Point is an event that a tool needs to see.
type Point struct {
	Name     string // first part of its programs' names
	Optional bool   // the tool is of use without it
	Misses   string // what is not seen if an optional point cannot be attached

	// Needed says whether the point is needed on a kernel; nil: yes.
	Needed func(*Kernel) bool

	// Ways are the alternatives, best first: by exactness, then by cost. Nil:
	// one for each way among the programs <Name>__<way>[__<part>], in the order of
	// ways that see an event at the same moment.
	Ways []Way

	// NotTCP says that what its programs see of TCP's sockets does not matter.
	NotTCP bool

	// Attach attaches the programs of a way if their section alone does not say how. Nil: by
	// section.
	Attach func(*ebpf.Program, *ebpf.ProgramSpec) (io.Closer, error)
}

// A Way is one alternative: a set of programs that is taken whole.
type Way struct {
	Name     string              // btf, raw, tp, fentry, fexit, kprobe, iter, cgroup …
	Programs []string            // a trailing * stands for any ending
	Fits     func(*Kernel) error // decides from BTF; nil: always
	Misses   string              // what this way does not see, for doctor

	// Nested says that its programs are also hit in interrupts, where nothing matters. The
	// kernel skips such runs within a run, and that is not a loss.
	Nested bool
}

// order ranks ways that see an event at the same moment, cheapest first. A tracepoint of one
// system call comes before sys_enter and sys_exit, which cost every system call.
var order = []string{"btf", "raw", "tp", "sys", "fentry", "fexit", "kprobe", "cgroup", "iter", "perf", "uprobe"}

// resolve returns the point's ways with the names of their programs spelled out.
func (p Point) resolve(spec *ebpf.CollectionSpec) []Way {
	if p.Ways == nil {
		return derive(p.Name, spec)
	}
	ways := slices.Clone(p.Ways)
	for i := range ways {
		ways[i].Programs = expand(ways[i].Programs, spec)
	}
	return ways
}

func derive(point string, spec *ebpf.CollectionSpec) []Way {
	byWay := map[string]*Way{}
	for _, name := range inOrder(spec) {
		parts := strings.SplitN(name, "__", 3)
		if len(parts) < 2 || parts[0] != point {
			continue
		}
		way := parts[1]
		if s := spec.Programs[name].SectionName; s == "tp_btf/sys_enter" || s == "tp_btf/sys_exit" {
			way = "sys"
		}
		if byWay[way] == nil {
			byWay[way] = &Way{Name: way}
		}
		byWay[way].Programs = append(byWay[way].Programs, name)
	}
	var ways []Way
	for _, w := range byWay {
		if w.Name == "sys" {
			w.Misses = "nothing, but every system call of the machine pays for it"
		}
		ways = append(ways, *w)
	}
	slices.SortFunc(ways, func(a, b Way) int {
		return cmp.Compare(slices.Index(order, a.Name), slices.Index(order, b.Name))
	})
	return ways
}

// inOrder lists programs in the order of attaching: those that see the end of a call before those
// that see its beginning. Otherwise a beginning whose end was not seen would be kept for good.
func inOrder(spec *ebpf.CollectionSpec) []string {
	names := slices.Sorted(maps.Keys(spec.Programs))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case atEnd(a) == atEnd(b):
			return 0
		case atEnd(a):
			return -1
		}
		return 1
	})
	return names
}

// atEnd goes by the names that probe.h, syscall.h and tools give to such programs.
func atEnd(name string) bool {
	part := name[strings.LastIndex(name, "__")+1:]
	return strings.HasPrefix(part, "_exit_") || strings.HasSuffix(part, "_ret") || strings.HasSuffix(part, "_out") || part == "_return"
}

func expand(patterns []string, spec *ebpf.CollectionSpec) []string {
	var out []string
	for _, p := range patterns {
		prefix, wild := strings.CutSuffix(p, "*")
		for _, name := range inOrder(spec) {
			if name == p || wild && strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		}
	}
	return out
}

// WaysIn lists the ways of a point and the programs of each, for tests and doctor.
func (p Point) WaysIn(spec *ebpf.CollectionSpec) []Way { return p.resolve(spec) }

// Uses are the maps that programs of these points refer to, by whatever way.
func Uses(spec *ebpf.CollectionSpec, points []Point) map[string]bool {
	maps := map[string]bool{}
	for _, p := range points {
		for _, w := range p.WaysIn(spec) {
			for _, name := range w.Programs {
				for _, ins := range spec.Programs[name].Instructions {
					if ins.IsLoadFromMap() {
						maps[ins.Reference()] = true
					}
				}
			}
		}
	}
	return maps
}
