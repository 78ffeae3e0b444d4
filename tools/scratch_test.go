// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"reflect"
	"testing"

	"github.com/cilium/ebpf"

	"seine/internal/tool"
)

// perCPU is the per-CPU arrays that programs keep state in, and why that is safe
// although another program run may come in between on the same processor.
var perCPU = map[string]string{
	"hardirqs began":   "a handler of a hard interrupt is not preempted",
	"softirqs begins":  "a softirq is not interrupted by another one of its processor",
	"skblife gros":     "GRO runs in a softirq, which is not interrupted by another one of its processor",
	"skblife softirqs": "only softirqs write it, and one is not interrupted by another one of its processor",
}

// TestScratch: no tool uses a per-CPU array as scratch memory. From Linux 7.0 on a
// program on a tracepoint can be preempted, and the next task on that processor runs it
// too; before, a softirq interrupts a program that runs for a process. Then one run
// would read what the other has written. Arrays of counts are allowed, because programs
// only add to them.
func TestScratch(t *testing.T) {
	used := map[string]bool{}
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		counts := map[string]bool{}
		for _, cfg := range configs(tl) {
			for _, v := range tl.Views(cfg) {
				if f := reflect.ValueOf(v.Output).FieldByName("Map"); f.IsValid() {
					counts[f.String()], counts[f.String()+"_odd"] = true, true
				}
			}
		}
		for name, m := range spec.Maps {
			key := tl.Name + " " + name
			switch {
			case m.Type != ebpf.PerCPUArray || counts[name]:
			case perCPU[key] != "":
				used[key] = true
			default:
				t.Errorf("map %s is a per-CPU array that programs keep state in: another run may come between; use the stack, or insert into a hash and fill in place", name)
			}
		}
	})
	for key := range perCPU {
		if !used[key] {
			t.Errorf("%s: no such per-CPU array any more: take it off the list", key)
		}
	}
}
