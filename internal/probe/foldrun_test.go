// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"seine/internal/object"
)

// A writer makes up programs. They are groups of instructions; jumps lead to where groups begin.
type writer struct{ *rand.Rand }

var (
	registersUsed = []asm.Register{asm.R0, asm.R2, asm.R3, asm.R4, asm.R5, asm.R6, asm.R7, asm.R8}
	operations    = []asm.ALUOp{asm.Add, asm.Sub, asm.Mul, asm.Div, asm.Mod, asm.Or, asm.And, asm.Xor, asm.LSh, asm.RSh, asm.ArSh, asm.Mov, asm.Neg}
	comparisons   = []asm.JumpOp{asm.JEq, asm.JNE, asm.JGT, asm.JGE, asm.JLT, asm.JLE, asm.JSGT, asm.JSGE, asm.JSLT, asm.JSLE, asm.JSet}
)

// constantBytes is how many bytes of constants a made-up program can read.
const constantBytes = 64

func (w *writer) register() asm.Register { return registersUsed[w.IntN(len(registersUsed))] }

// number is one that matters more often than others.
func (w *writer) number() int32 {
	return []int32{0, 0, 1, -1, 2, 3, 31, 32, 63, -1 << 31, 1<<31 - 1, w.Int32() - 1<<30}[w.IntN(12)]
}

// compute is an instruction that computes.
func (w *writer) compute() asm.Instruction {
	op, class := operations[w.IntN(len(operations))], []asm.Class{asm.ALUClass, asm.ALU64Class}[w.IntN(2)]
	ins := asm.Instruction{OpCode: asm.OpCode(class).SetALUOp(op), Dst: w.register()}
	switch {
	case op == asm.Neg:
	case w.IntN(2) == 0:
		ins.OpCode, ins.Src = ins.OpCode.SetSource(asm.RegSource), w.register()
	case op == asm.LSh, op == asm.RSh, op == asm.ArSh:
		ins.Constant = int64(w.IntN(32))
	case op == asm.Div, op == asm.Mod:
		ins.Constant = int64(1 + w.IntN(9))
	default:
		ins.Constant = int64(w.number())
	}
	return ins
}

// compare is a jump over some words.
func (w *writer) compare(words int16) asm.Instruction {
	op, class := comparisons[w.IntN(len(comparisons))], []asm.Class{asm.JumpClass, asm.Jump32Class}[w.IntN(2)]
	ins := asm.Instruction{OpCode: asm.OpCode(class).SetJumpOp(op), Dst: w.register(), Offset: words}
	if w.IntN(3) == 0 {
		ins.OpCode, ins.Src = ins.OpCode.SetSource(asm.RegSource), w.register()
	} else {
		ins.Constant = int64(w.number())
	}
	return ins
}

// read reads a constant.
func (w *writer) read() asm.Instructions {
	size := []asm.Size{asm.Byte, asm.Half, asm.Word, asm.DWord}[w.IntN(4)]
	offset, before := w.IntN(constantBytes/8)*8, w.IntN(8)*8
	return asm.Instructions{at(asm.R9, uint32(before)), asm.LoadMem(w.register(), asm.R9, int16(offset-before), size)}
}

// group is a few instructions. R9 has nothing that another group reads; the length of the packet,
// which fold does not know, is on the stack.
func (w *writer) group() asm.Instructions {
	switch w.IntN(8) {
	case 0, 1:
		return w.read()
	case 2:
		return asm.Instructions{asm.LoadMem(w.register(), asm.RFP, -8, asm.DWord)}
	case 3:
		return asm.Instructions{asm.StoreMem(asm.RFP, -16, w.register(), asm.DWord), asm.LoadMem(w.register(), asm.RFP, -16, asm.DWord)}
	case 4: // a loop
		return asm.Instructions{asm.Mov.Imm(asm.R9, int32(1+w.IntN(4))), w.compute(), w.compute(), asm.Add.Imm(asm.R9, -1), to(asm.JNE.Imm(asm.R9, 0, ""), -4)}
	case 5: // calls leave nothing in R1 to R5
		out := asm.Instructions{asm.Mov.Reg(asm.R1, w.register()), asm.Mov.Reg(asm.R2, w.register()), asm.Call.Label("f")}
		for r := asm.R2; r <= asm.R5; r++ {
			out = append(out, asm.Mov.Reg(r, asm.R0))
		}
		return out
	}
	return asm.Instructions{w.compute(), w.compute()}
}

// program is a whole program, with the function that it calls, if it does. What it returns depends on some of the registers.
func (w *writer) program() asm.Instructions {
	out := asm.Instructions{asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), asm.StoreMem(asm.RFP, -8, asm.R6, asm.DWord)}
	for _, r := range registersUsed {
		out = append(out, asm.Mov.Imm(r, w.number()))
	}
	groups := make([]asm.Instructions, 4+w.IntN(20))
	for i := range groups {
		groups[i] = w.group()
	}
	for i, g := range groups {
		words := 0
		for j := range 1 + w.IntN(min(6, len(groups)-i)) { // each group has its jump in front
			words += 1 + width(groups[i+j])
		}
		out = append(append(out, w.compare(int16(words-1))), g...)
	}
	for _, r := range registersUsed[1:] {
		if w.IntN(2) == 0 {
			out = append(out, asm.Mul.Imm(asm.R0, 31), asm.Add.Reg(asm.R0, r))
		}
	}
	out = append(out, asm.Mov.Reg(asm.R2, asm.R0), asm.RSh.Imm(asm.R2, 32), asm.Xor.Reg(asm.R0, asm.R2), asm.Return())
	if !slices.ContainsFunc(out, func(ins asm.Instruction) bool { return ins.IsFunctionCall() }) {
		return out
	}
	return append(out,
		asm.Mov.Imm(asm.R0, w.number()).WithSymbol("f"),
		asm.Add.Reg(asm.R0, asm.R2),
		to(asm.JGT.Reg(asm.R1, asm.R2, ""), 1),
		asm.Xor.Reg(asm.R0, asm.R1),
		asm.Return())
}

// TestFoldRuns: programs that are made up by chance return the same after fold.
func TestFoldRuns(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEINE_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	t.Logf("SEINE_SEED=%d makes the same programs", seed)
	w := &writer{rand.New(rand.NewPCG(seed, 0))}
	data := make([]byte, constantBytes)
	for i := range data[8:] { // the first is 0
		data[8+i] = byte(w.number())
	}
	rodata, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: constantBytes, MaxEntries: 1,
		Flags: unix.BPF_F_RDONLY_PROG, Contents: []ebpf.MapKV{{Key: uint32(0), Value: data}}})
	if err != nil {
		t.Fatal(err)
	}
	defer rodata.Close()
	if err := rodata.Freeze(); err != nil {
		t.Fatal(err)
	}
	c := constants{binary.LittleEndian, []section{{".rodata", data}}}
	const programs = 307
	ran, before, after := 0, 0, 0
	for n := range programs {
		plain := w.program()
		short := folded(t, c, plain)
		want, err := results(plain, rodata)
		if err != nil {
			continue // chance made a program that the verifier refuses
		}
		got, err := results(short, rodata)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("program %d returns %v, %v after fold, and %v before:\n%v\nafter:\n%v", n, got, err, want, plain, short)
		}
		ran, before, after = ran+1, before+width(plain), after+width(short)
	}
	t.Logf("%d programs ran, with %d of %d words", ran, after, before)
	if ran < programs/2 || after > before*3/4 {
		t.Errorf("%d of %d programs ran, with %d of %d words", ran, programs, after, before)
	}
}

// results is what a program returns for packets of some lengths.
func results(insns asm.Instructions, rodata *ebpf.Map) (out []uint32, err error) {
	insns = slices.Clone(insns)
	if err := insns.AssociateMap(".rodata", rodata); err != nil && !errors.Is(err, asm.ErrUnreferencedSymbol) {
		return nil, err
	}
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: insns},
		ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	for _, n := range []int{15, 17, 46, 78, 1014} {
		got, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, n)})
		if err != nil {
			return nil, err
		}
		out = append(out, got)
	}
	return out, nil
}

// TestFoldCopies: the copies of a program, which begin with a jump to a label, are whole after fold,
// the kernel takes them, and they do the same.
func TestFoldCopies(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w, err := newTwice()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Run("state__raw", func(t *testing.T) { foldCopies(t, w, "tcplife", "state__raw") })
	t.Run("state__btf", func(t *testing.T) { foldCopies(t, w, "flows", "state__btf") })
	t.Run("run", func(t *testing.T) { runCopies(t, w) })
}

func foldCopies(t *testing.T, w *Twice, tool, name string) {
	spec, err := object.Spec(tool)
	if err != nil {
		t.Fatal(err)
	}
	k, err := Running()
	if err != nil {
		t.Fatal(err)
	}
	opts, err := k.Load(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := constantsOf(spec)
	for _, twin := range w.Copies(spec.Programs[name]) {
		ps := c.fold(twin.ProgramSpec)
		if err := whole(ps.Instructions); err != nil {
			t.Fatalf("copy %d: %v", twin.Again, err)
		}
		if was, is := width(twin.Instructions), width(ps.Instructions); is > was*7/10 {
			t.Errorf("copy %d has %d words, before %d", twin.Again, is, was)
		}
		coll, err := ebpf.NewCollectionWithOptions(&ebpf.CollectionSpec{Maps: spec.Maps, Types: spec.Types, ByteOrder: spec.ByteOrder,
			Variables: spec.Variables, Programs: map[string]*ebpf.ProgramSpec{name: ps}}, opts)
		if err != nil {
			t.Fatalf("copy %d: %+v", twin.Again, err)
		}
		coll.Close()
	}
}

// runCopies: of the copies that are left, the first that runs does the work.
func runCopies(t *testing.T, w *Twice) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ps, counted := counter(t, "raw_tp/sys_enter")
	took := w.taken()
	for _, twin := range w.Copies(ps)[1:] {
		short := constants{}.fold(twin.ProgramSpec)
		if err := whole(short.Instructions); err != nil {
			t.Fatal(err)
		}
		prog, err := ebpf.NewProgram(short)
		if err != nil {
			t.Fatalf("copy %d: %+v", twin.Again, err)
		}
		defer prog.Close()
		l, err := bySection(prog, short, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	const calls = 997
	for range calls {
		unix.Getppid()
	}
	var got uint64
	if err := counted.Lookup(uint32(0), &got); err != nil {
		t.Fatal(err)
	}
	if got != calls || w.taken()-took < calls {
		t.Errorf("%d events were counted, %d by another copy than the first, want %d", got, w.taken()-took, calls)
	}
}
