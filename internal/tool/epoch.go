// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// epochs is the Go side of COUNT_MAP in count.h: counts go to two maps in turn. turn switches the
// programs to the other map. Then nobody writes to the first one any more, and it can be read
// and emptied without losing an event.
type epochs struct {
	now  uint64         // count_epoch
	v    *ebpf.Variable // nil: there is one output, so one map is enough
	wait *grace         // nil: nothing is counted
}

// odd is the suffix of the second map's name.
const odd = "_odd"

// turn is called before an output and returns the suffix of the maps to read. Before the last
// output the programs have been detached, and it only waits for those that still run.
func (e *epochs) turn(last bool) (suffix string, err error) {
	if e.wait == nil {
		return "", nil
	}
	if e.now&1 == 1 {
		suffix = odd
	}
	if !last && e.v != nil {
		e.now++
		if err := e.v.Set(e.now); err != nil {
			return "", fmt.Errorf("count_epoch: %w", err)
		}
	}
	return suffix, e.wait.wait()
}

// grace waits for programs that run. An update of a map of maps returns only when
// no program runs any more that began before it: the kernel does so for this very
// use (maybe_wait_bpf_programs). Unlike membarrier(2) it does so on machines of one
// processor and of isolated ones too.
type grace struct{ outer, inner *ebpf.Map }

func newGrace() (*grace, error) {
	in := &ebpf.MapSpec{Name: "grace", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	inner, err := ebpf.NewMap(in)
	if err != nil {
		return nil, err
	}
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Name: "grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: in})
	if err != nil {
		inner.Close()
		return nil, err
	}
	return &grace{outer, inner}, nil
}

func (g *grace) wait() error {
	if err := g.outer.Put(uint32(0), g.inner); err != nil {
		return fmt.Errorf("waiting for programs that run: %w", err)
	}
	return nil
}

func (e *epochs) close() {
	if e.wait != nil {
		e.wait.close()
	}
}

func (g *grace) close() {
	g.outer.Close()
	g.inner.Close()
}
