// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/object"
	"seine/internal/tool"
)

// privateStack is BPF_PRIV_STACK_MIN_SIZE: from 6.13 on, a function that uses this
// much stack gets a per-CPU stack instead of the task's.
const privateStack = 64

// TestUprobeStacks: a task can be preempted inside of a uprobe program, and the
// kernel still runs the program for the next task. Both would use the same private
// stack. So no function of such a program may be large enough to get one.
func TestUprobeStacks(t *testing.T) {
	checked := 0
	for _, tl := range All {
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			if !strings.HasPrefix(p.SectionName, "uprobe") && !strings.HasPrefix(p.SectionName, "uretprobe") {
				continue
			}
			checked++
			for fn, n := range stacks(p.Instructions) {
				if n >= privateStack {
					t.Errorf("%s: function %s of %s uses %d bytes of stack, want less than %d", tl.Name, fn, name, n, privateStack)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no tool has a uprobe")
	}
}

// mostStack is MAX_BPF_STACK. Kernels before 6.13 round each function up to 32 bytes, and the chain of calls that has
// most may have no more than this; newer ones count less.
const mostStack = 512

// TestStacks: every kernel has room for what a chain of calls puts on the stack.
func TestStacks(t *testing.T) {
	each(t, func(t *testing.T, tl *tool.Tool, spec *ebpf.CollectionSpec) {
		for name, p := range spec.Programs {
			own, calls := stacks(p.Instructions), callees(p.Instructions)
			var deepest func(fn string) (int, string)
			deepest = func(fn string) (most int, chain string) {
				for _, to := range calls[fn] {
					if n, c := deepest(to); n > most {
						most, chain = n, " → "+c
					}
				}
				return most + max(32, (own[fn]+31)&^31), fn + chain
			}
			if n, chain := deepest(p.Instructions[0].Symbol()); n > mostStack {
				t.Errorf("%s: %d bytes of stack in %s, want %d at most", name, n, chain, mostStack)
			}
		}
	})
}

// callees lists the functions that each function calls.
func callees(insns asm.Instructions) map[string][]string {
	out := map[string][]string{}
	fn := ""
	for _, ins := range insns {
		if s := ins.Symbol(); s != "" {
			fn = s
		}
		if ins.IsFunctionCall() {
			out[fn] = append(out[fn], ins.Reference())
		}
	}
	return out
}

// stacks is the stack size of each function, in bytes.
func stacks(insns asm.Instructions) map[string]int {
	out := map[string]int{}
	fn := ""
	for i, ins := range insns {
		if s := ins.Symbol(); s != "" {
			fn = s
		}
		use := 0
		switch class := ins.OpCode.Class(); {
		case class.IsLoad() && ins.Src == asm.R10, class.IsStore() && ins.Dst == asm.R10:
			use = -int(ins.Offset)
		case ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource && i > 0 &&
			insns[i-1].OpCode.ALUOp() == asm.Mov && insns[i-1].Src == asm.R10 && insns[i-1].Dst == ins.Dst:
			use = -int(ins.Constant)
		}
		out[fn] = max(out[fn], use)
	}
	return out
}
