// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/kern"
	"seine/internal/object"
)

// slotOf is the slot of a value by the definition of hist.h: 0 to 7 have one each, then
// every power of two up to 2^40 is divided into eight.
func slotOf(v uint64) int {
	if v < 8 {
		return int(v)
	}
	power := bits.Len64(v) - 1
	if power >= 40 {
		return kern.HistSlots - 1
	}
	eighth := (v - 1<<power) / (1 << (power - 3))
	return 8 + 8*(power-3) + int(eighth)
}

// TestSlots: flows puts a turn of each length, and its first byte, into the slot of its
// microseconds. The test runs the function that counts turns alone, with times that
// traffic could not produce.
func TestSlots(t *testing.T) {
	t.Run("flows", func(t *testing.T) {
		c := turnProgram(t)
		defer c.Close()
		const service = 7
		entry, first := make([]byte, c.Maps["flows"].ValueSize()), offsetOf(t, "flow", "first")
		binary.LittleEndian.PutUint64(entry[offsetOf(t, "flow", "service"):], service)
		for _, ns := range turnTimes() {
			other := ns/2 + 1
			binary.LittleEndian.PutUint64(entry[first:], other)
			if err := c.Maps["flows"].Put(uint64(service), entry); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Programs["count"].Run(&ebpf.RunOptions{Context: []uint64{ns, service}}); err != nil {
				t.Fatal(err)
			}
			var got [2]kern.Hist // struct turns
			if err := c.Maps["turns"].Lookup(uint64(service), &got); err != nil {
				t.Fatalf("a turn of %d ns: %v", ns, err)
			}
			if err := c.Maps["turns"].Delete(uint64(service)); err != nil {
				t.Fatal(err)
			}
			for i, ns := range []uint64{ns, other} {
				us := ns / 1000
				want := kern.Hist{Count: 1, Sum: us, Min: us, Max: us}
				want.Slots[slotOf(us)] = 1
				if got[i] != want {
					t.Fatalf("%s of %d us: got %s, want %s", []string{"a turn", "a first byte"}[i], us, oneSlot(got[i]), oneSlot(want))
				}
			}
		}
	})
}

// oneSlot is a histogram of one value, for people.
func oneSlot(h kern.Hist) string {
	return fmt.Sprintf("%d in slot %d, sum %d", h.Count, slices.Index(h.Slots[:], 1), h.Sum)
}

// turnTimes are nanoseconds on both sides of each bound of a slot, and inside of
// it.
func turnTimes() (out []uint64) {
	for us := range uint64(16) {
		out = append(out, us*1000, us*1000+999)
	}
	for power := 4; power < 53; power++ {
		for part := range uint64(64) {
			us := 1<<power + part<<power>>6
			out = append(out, us*1000-1, us*1000, us*1000+1, us*1000+part*999/63)
		}
	}
	return out
}

// turnProgram is a program that counts a turn. Its first argument is the duration, its
// second the key of the flow.
func turnProgram(t *testing.T) *ebpf.Collection {
	t.Helper()
	const name = "turn_count"
	spec, err := object.Spec("flows")
	if err != nil {
		t.Fatal(err)
	}
	code := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord).WithSymbol("count"),
		asm.LoadMem(asm.R2, asm.R1, 8, asm.DWord),
		asm.StoreMem(asm.RFP, -8, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8),
		asm.LoadMapPtr(asm.R1, 0).WithReference("flows"),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Reg(asm.R2, asm.R6),
		asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(name),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
	main := len(code)
	for _, ps := range spec.Programs {
		in := false
		for i := range ps.Instructions {
			ins := &ps.Instructions[i]
			if btf.FuncMetadata(ins) != nil {
				in = ins.Symbol() == name
			}
			if in { // without what the compiler says of types and lines
				plain := asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Offset: ins.Offset, Constant: ins.Constant}
				code = append(code, plain.WithSymbol(ins.Symbol()).WithReference(ins.Reference()))
			}
		}
		if len(code) > main {
			break
		}
	}
	if len(code) == main {
		t.Fatalf("no program of flows calls %s", name)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{
		"count": {Name: "count", Type: ebpf.RawTracepoint, License: "GPL", Instructions: code},
	}
	maps.DeleteFunc(spec.Maps, func(_ string, m *ebpf.MapSpec) bool { return m.Type == ebpf.RingBuf })
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// offsetOf is where a field of a struct of flows is.
func offsetOf(t *testing.T, name, field string) uint32 {
	t.Helper()
	spec, err := object.Spec("flows")
	if err != nil {
		t.Fatal(err)
	}
	var st *btf.Struct
	if err := spec.Types.TypeByName(name, &st); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(st.Members, func(m btf.Member) bool { return m.Name == field })
	if i < 0 {
		t.Fatalf("struct %s has no field %s", name, field)
	}
	return st.Members[i].Offset.Bytes()
}
