// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/object"
)

// TestFold: a load becomes the constant that it reads, if its address is the same whichever way the
// program has come.
func TestFold(t *testing.T) {
	c := constants{".rodata": {7, 0, 0, 0, 9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0}}
	at := func(r asm.Register, offset uint32) asm.Instruction {
		return asm.LoadMapValue(r, 0, offset).WithReference(".rodata")
	}
	to := func(ins asm.Instruction, n int16) asm.Instruction { // jumps have offsets in objects
		ins = ins.WithReference("")
		ins.Offset = n
		return ins
	}
	load := asm.LoadMem(asm.R0, asm.R6, 4, asm.Word)
	for name, test := range map[string]struct {
		insns asm.Instructions
		want  int64 // what is in R0 instead of the last load; -1: it is still a load
	}{
		"direct":       {asm.Instructions{at(asm.R6, 0), load}, 9},
		"byte":         {asm.Instructions{at(asm.R6, 0), asm.LoadMem(asm.R0, asm.R6, 0, asm.Byte)}, 7},
		"unsigned":     {asm.Instructions{at(asm.R6, 4), load}, 0xffffffff},
		"too large":    {asm.Instructions{at(asm.R6, 8), asm.LoadMem(asm.R0, asm.R6, 0, asm.DWord)}, -1},
		"behind":       {asm.Instructions{at(asm.R6, 12), load}, -1},
		"sum":          {asm.Instructions{at(asm.R6, 4), asm.Add.Imm(asm.R6, -4), load}, 9},
		"copy":         {asm.Instructions{at(asm.R7, 0), asm.Mov.Reg(asm.R6, asm.R7), load}, 9},
		"other map":    {asm.Instructions{asm.LoadMapValue(asm.R6, 0, 0).WithReference(".bss"), load}, -1},
		"overwritten":  {asm.Instructions{at(asm.R6, 0), asm.Mov.Reg(asm.R6, asm.R1), load}, -1},
		"sum of two":   {asm.Instructions{at(asm.R6, 0), asm.Add.Reg(asm.R6, asm.R1), load}, -1},
		"over a call":  {asm.Instructions{at(asm.R6, 0), asm.FnKtimeGetNs.Call(), load}, 9},
		"lost by call": {asm.Instructions{at(asm.R1, 0), asm.FnKtimeGetNs.Call(), asm.LoadMem(asm.R0, asm.R1, 4, asm.Word)}, -1},
		"fetched": {asm.Instructions{at(asm.R6, 0), {OpCode: asm.OpCode(asm.StXClass).SetMode(asm.AtomicMode).SetSize(asm.DWord), Dst: asm.RFP,
			Src: asm.R6, Offset: -8, Constant: 1}, load}, -1},
		"same either way":  {asm.Instructions{at(asm.R6, 0), to(asm.JEq.Imm(asm.R1, 0, ""), 2), at(asm.R6, 0), load}, 9},
		"other either way": {asm.Instructions{at(asm.R6, 0), to(asm.JEq.Imm(asm.R1, 0, ""), 2), at(asm.R6, 4), load}, -1},
		"only one way":     {asm.Instructions{to(asm.JEq.Imm(asm.R1, 0, ""), 2), at(asm.R6, 0), load}, -1},
		"never otherwise":  {asm.Instructions{at(asm.R6, 0), to(asm.Ja.Label(""), 1), asm.Mov.Imm(asm.R6, 0), load}, 9},
		"loop":             {asm.Instructions{at(asm.R6, 0), load, asm.Mov.Imm(asm.R6, 0), to(asm.JEq.Imm(asm.R1, 0, ""), -3)}, -1},
		"steady loop":      {asm.Instructions{at(asm.R6, 0), load, asm.Mov.Imm(asm.R7, 0), to(asm.JEq.Imm(asm.R1, 0, ""), -3)}, 9},
		"next function":    {asm.Instructions{at(asm.R6, 0), asm.Return(), load.WithSymbol("f")}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			ps := &ebpf.ProgramSpec{Instructions: append(test.insns, asm.Return())}
			out := c.fold(ps, binary.LittleEndian).Instructions
			if was, is := width(ps.Instructions), width(out); is != was {
				t.Errorf("%d words, before %d: jumps lead elsewhere", is, was)
			}
			got := int64(-1)
			for _, ins := range out {
				if ins.Dst == asm.R0 && ins.OpCode == asm.Mov.Op32(asm.ImmSource) {
					got = int64(uint32(ins.Constant))
				}
			}
			if got != test.want {
				t.Errorf("got %d, want %d:\n%v", got, test.want, out)
			}
		})
	}
}

// width is the length of a program in words.
func width(insns asm.Instructions) (n int) {
	for i := range insns {
		n += int(insns[i].Width())
	}
	return n
}

// TestFoldAll: in the programs of all tools no load of a constant is left, except of numbers that do not
// fit, and no program has another length.
func TestFoldAll(t *testing.T) {
	files, err := fs.Glob(os.DirFS("../object/amd64"), "*.o.gz")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d objects, %v", len(files), err)
	}
	folded := 0
	for _, file := range files {
		name := strings.TrimSuffix(file, ".o.gz")
		spec, err := object.Spec(name)
		if err != nil {
			t.Fatal(err)
		}
		c := constantsOf(spec)
		for _, ps := range spec.Programs {
			out := c.fold(ps, spec.ByteOrder)
			folded += len(newCode(ps.Instructions).loads())
			for _, l := range newCode(out.Instructions).loads() {
				ins := &out.Instructions[l.index]
				if v, ok := c.read(l.from, ins.OpCode.Size(), spec.ByteOrder); ok && v>>32 == 0 {
					t.Errorf("%s: %s: %v still reads %d", name, ps.Name, ins, v)
				}
			}
			if was, is := width(ps.Instructions), width(out.Instructions); is != was {
				t.Errorf("%s: %s has %d words, before %d", name, ps.Name, is, was)
			}
		}
	}
	if folded < 10_000 {
		t.Errorf("only %d loads of constants in all programs", folded)
	}
}
