// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/object"
)

// asked counts the places of a program where owner_has asks for an option, and those where it is answered.
func asked(p *ebpf.ProgramSpec) (open, on int) {
	for _, ins := range p.Instructions {
		if ins.OpCode != asm.Mov.Op(asm.ImmSource) {
			continue
		}
		if ins.Constant&^0xffff == hasOption {
			open++
		}
		if ins.Constant == 1 {
			on++
		}
	}
	return open, on
}

// TestOptions: each question of a program for an option of owner.h is answered, by what owner_options has then.
func TestOptions(t *testing.T) {
	const none, all = 0, 0xffff
	for _, options := range []int{none, all} {
		spec, err := object.Spec("owners")
		if err != nil {
			t.Fatal(err)
		}
		p := spec.Programs["owner_state__btf"]
		open, before := asked(p)
		if open < 5 {
			t.Fatalf("%s asks for %d options", p.Name, open)
		}
		if err := spec.Variables["owner_options"].Set(uint32(options)); err != nil {
			t.Fatal(err)
		}
		if err := setOptions(spec); err != nil {
			t.Fatal(err)
		}
		left, on := asked(p)
		if left != 0 {
			t.Errorf("with %#x, %d questions are not answered", options, left)
		}
		if want := map[int]int{none: 0, all: open}[options]; on-before != want {
			t.Errorf("with %#x, %d of %d answers are yes, want %d", options, on-before, open, want)
		}
	}
}
