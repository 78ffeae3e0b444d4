// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
)

// numbers are the constants of hand-written programs.
var numbers = constants{binary.LittleEndian, []section{{".rodata", []byte{
	7, 0, 0, 0, 9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, // 0: 7 and 9; 8: too many bits for one word
	0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // 16: -2
}}}}

// at loads the address of a constant.
func at(r asm.Register, offset uint32) asm.Instruction {
	return asm.LoadMapValue(r, 0, offset).WithReference(".rodata")
}

// to is a jump with an offset, as jumps in objects are.
func to(ins asm.Instruction, n int16) asm.Instruction {
	ins = ins.WithReference("")
	ins.Offset = n
	return ins
}

// TestFold: a load becomes the constant that it reads, if its address is the same whichever way the
// program has come.
func TestFold(t *testing.T) {
	load := asm.LoadMem(asm.R0, asm.R6, 4, asm.Word)
	unknown := to(asm.JEq.Imm(asm.R1, 0, ""), 2)
	for name, test := range map[string]struct {
		insns asm.Instructions
		want  int64 // what is in R0 instead of the last load
		still bool  // it is still a load
	}{
		"direct":       {asm.Instructions{at(asm.R6, 0), load}, 9, false},
		"byte":         {asm.Instructions{at(asm.R6, 0), asm.LoadMem(asm.R0, asm.R6, 0, asm.Byte)}, 7, false},
		"half":         {asm.Instructions{at(asm.R6, 8), asm.LoadMem(asm.R0, asm.R6, 0, asm.Half)}, 0xffff, false},
		"unsigned":     {asm.Instructions{at(asm.R6, 4), load}, 0xffffffff, false},
		"64 bits":      {asm.Instructions{at(asm.R6, 16), asm.LoadMem(asm.R0, asm.R6, 0, asm.DWord)}, -2, false},
		"too large":    {asm.Instructions{at(asm.R6, 8), asm.LoadMem(asm.R0, asm.R6, 0, asm.DWord)}, 0, true},
		"behind":       {asm.Instructions{at(asm.R6, 20), load}, 0, true},
		"before":       {asm.Instructions{at(asm.R6, 0), asm.Add.Imm(asm.R6, -8), load}, 0, true},
		"sum":          {asm.Instructions{at(asm.R6, 4), asm.Add.Imm(asm.R6, -4), load}, 9, false},
		"difference":   {asm.Instructions{at(asm.R6, 4), asm.Mov.Imm(asm.R2, 4), asm.Sub.Reg(asm.R6, asm.R2), load}, 9, false},
		"copy":         {asm.Instructions{at(asm.R7, 0), asm.Mov.Reg(asm.R6, asm.R7), load}, 9, false},
		"half a copy":  {asm.Instructions{at(asm.R7, 0), asm.Mov.Reg32(asm.R6, asm.R7), load}, 0, true},
		"other map":    {asm.Instructions{asm.LoadMapValue(asm.R6, 0, 0).WithReference(".bss"), load}, 0, true},
		"overwritten":  {asm.Instructions{at(asm.R6, 0), asm.Mov.Reg(asm.R6, asm.R1), load}, 0, true},
		"sum of two":   {asm.Instructions{at(asm.R6, 0), asm.Add.Reg(asm.R6, asm.R1), load}, 0, true},
		"over a call":  {asm.Instructions{at(asm.R6, 0), asm.FnKtimeGetNs.Call(), load}, 9, false},
		"lost by call": {asm.Instructions{at(asm.R1, 0), asm.FnKtimeGetNs.Call(), asm.LoadMem(asm.R0, asm.R1, 4, asm.Word)}, 0, true},
		"fetched": {asm.Instructions{at(asm.R6, 0), {OpCode: asm.OpCode(asm.StXClass).SetMode(asm.AtomicMode).SetSize(asm.DWord), Dst: asm.RFP,
			Src: asm.R6, Offset: -8, Constant: 1}, load}, 0, true},
		"same either way":  {asm.Instructions{at(asm.R6, 0), unknown, at(asm.R6, 0), load}, 9, false},
		"other either way": {asm.Instructions{at(asm.R6, 0), unknown, at(asm.R6, 4), load}, 0, true},
		"only one way":     {asm.Instructions{unknown, at(asm.R6, 0), load}, 0, true},
		"never otherwise":  {asm.Instructions{at(asm.R6, 0), to(asm.Ja.Label(""), 1), asm.Mov.Imm(asm.R6, 0), load}, 9, false},
		"loop":             {asm.Instructions{at(asm.R6, 0), load, asm.Mov.Imm(asm.R6, 0), to(asm.JEq.Imm(asm.R1, 0, ""), -3)}, 0, true},
		"steady loop":      {asm.Instructions{at(asm.R6, 0), load, asm.Mov.Imm(asm.R7, 0), to(asm.JEq.Imm(asm.R1, 0, ""), -3)}, 9, false},
		"next function":    {asm.Instructions{at(asm.R6, 0), asm.Call.Label("f"), asm.Return(), load.WithSymbol("f")}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			out := folded(t, numbers, append(test.insns, asm.Return()))
			var last asm.Instruction
			for _, ins := range out {
				if ins.OpCode.Class() == asm.LdXClass || ins.Dst == asm.R0 && ins.OpCode.Class().IsALU() {
					last = ins
				}
			}
			got, still := last.Constant, last.OpCode.Class() == asm.LdXClass
			if last.OpCode.Class() == asm.ALUClass {
				got = int64(uint32(got))
			}
			if still != test.still || !still && got != test.want {
				t.Errorf("got %v, want %d (still a load: %v):\n%v", last, test.want, test.still, out)
			}
		})
	}
}

// folded is a program after fold, which must have left it whole.
func folded(t *testing.T, c constants, insns asm.Instructions) asm.Instructions {
	t.Helper()
	out := c.fold(&ebpf.ProgramSpec{Instructions: insns}).Instructions
	if err := whole(out); err != nil {
		t.Fatalf("%v:\n%v", err, out)
	}
	return out
}

// TestFoldCode: what becomes of small programs.
func TestFoldCode(t *testing.T) {
	r0, r1, r2, r6, r7 := asm.R0, asm.R1, asm.R2, asm.R6, asm.R7
	set := func(n int32) asm.Instruction { return asm.Mov.Imm(r0, n) }
	read := func(r asm.Register) asm.Instruction { return asm.LoadMem(r, r1, 0, asm.DWord) } // of a number that nobody knows
	end := asm.Return()
	skip := func(op asm.JumpOp, r asm.Register, n int32, words int16) asm.Instruction {
		return to(op.Imm(r, n, ""), words)
	}
	skip32 := func(op asm.JumpOp, r asm.Register, n int32, words int16) asm.Instruction {
		return to(op.Imm32(r, n, ""), words)
	}
	ja := func(words int16) asm.Instruction { return to(asm.Ja.Label(""), words) }
	far := func(words int64) asm.Instruction { return asm.Instruction{OpCode: gotol, Constant: words} }
	relocated := btf.WithCORERelocationMetadata(asm.Mov.Imm(r6, 1), &btf.CORERelocation{})
	may := asm.Instruction{OpCode: asm.JCOND.Op(asm.ImmSource), Offset: 0}
	imm32 := func(r asm.Register, n int32) asm.Instruction { return asm.Mov.Imm32(r, n) }
	type prog = asm.Instructions
	for name, test := range map[string]struct{ in, want prog }{
		"always":                 {prog{asm.Mov.Imm(r6, 1), skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"never":                  {prog{asm.Mov.Imm(r6, 0), skip(asm.JNE, r6, 0, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"unknown":                {prog{read(r6), skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}, prog{read(r6), skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}},
		"option":                 {prog{at(r6, 0), asm.LoadMem(r6, r6, 4, asm.Word), skip(asm.JGT, r6, 8, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"32 bits":                {prog{asm.LoadImm(r6, 1<<32|3, asm.DWord), skip32(asm.JEq, r6, 3, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"64 bits":                {prog{asm.LoadImm(r6, 1<<32|3, asm.DWord), skip(asm.JEq, r6, 3, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"signed":                 {prog{asm.Mov.Imm(r6, -1), skip(asm.JSLT, r6, 0, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"not signed":             {prog{asm.Mov.Imm(r6, -1), skip(asm.JLT, r6, 2, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"half signed":            {prog{imm32(r6, -1), skip32(asm.JSLT, r6, 0, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"zero-extended":          {prog{imm32(r6, -1), skip(asm.JSLT, r6, 0, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"bits":                   {prog{asm.Mov.Imm(r6, 5), skip(asm.JSet, r6, 2, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"less than zero":         {prog{read(r6), skip(asm.JLT, r6, 0, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"zero and more":          {prog{read(r6), skip(asm.JGE, r6, 0, 2), set(1), end, set(2), end}, prog{set(2), end}},
		"masked out":             {prog{read(r6), asm.And.Imm(r6, 0), skip(asm.JNE, r6, 0, 2), set(1), end, set(2), end}, prog{set(1), end}},
		"divided by zero":        {prog{asm.Mov.Imm(r6, 5), asm.Mov.Imm(r7, 0), asm.Div.Reg(r6, r7), asm.Mov.Reg(r0, r6), end}, prog{imm32(r0, 0), end}},
		"rest by zero":           {prog{asm.Mov.Imm(r6, 5), asm.Mov.Imm(r7, 0), asm.Mod.Reg(r6, r7), asm.Mov.Reg(r0, r6), end}, prog{imm32(r0, 5), end}},
		"equal from here":        {prog{read(r6), skip(asm.JNE, r6, 3, 2), asm.Mov.Reg(r0, r6), end, set(2), end}, prog{read(r6), skip(asm.JNE, r6, 3, 2), imm32(r0, 3), end, set(2), end}},
		"half equal":             {prog{read(r6), skip32(asm.JNE, r6, 3, 2), asm.Mov.Reg(r0, r6), end, set(2), end}, prog{read(r6), skip32(asm.JNE, r6, 3, 2), asm.Mov.Reg(r0, r6), end, set(2), end}},
		"number of others":       {prog{relocated, skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}, prog{relocated, skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}},
		"operand":                {prog{read(r6), at(r7, 0), asm.LoadMem(r7, r7, 0, asm.Word), asm.Add.Reg(r6, r7), asm.Mov.Reg(r0, r6), end}, prog{read(r6), asm.Add.Imm(r6, 7), asm.Mov.Reg(r0, r6), end}},
		"operand of no division": {prog{read(r6), asm.Mov.Imm(r7, 0), asm.Div.Reg(r6, r7), asm.Mov.Reg(r0, r6), end}, prog{read(r6), asm.Mov.Imm(r7, 0), asm.Div.Reg(r6, r7), asm.Mov.Reg(r0, r6), end}},
		"not read":               {prog{asm.Mov.Reg(r6, r1), at(r7, 0), read(r2), set(1), end}, prog{set(1), end}},
		"not read in the loop":   {prog{read(r6), asm.Add.Imm(r7, 1), asm.Sub.Imm(r6, 1), skip(asm.JNE, r6, 0, -3), set(1), end}, prog{read(r6), asm.Sub.Imm(r6, 1), skip(asm.JNE, r6, 0, -2), set(1), end}},
		"read by a call":         {prog{at(r1, 0), at(r2, 4), asm.FnGetCurrentComm.Call(), end}, prog{at(r1, 0), at(r2, 4), asm.FnGetCurrentComm.Call(), end}},
		"not taken by a call":    {prog{at(r1, 0), asm.FnKtimeGetNs.Call(), end}, prog{asm.FnKtimeGetNs.Call(), end}},
		"nothing on one side":    {prog{read(r6), skip(asm.JEq, r6, 0, 1), asm.Mov.Imm(r7, 1), set(1), end}, prog{set(1), end}},
		"jump back":              {prog{set(0), asm.FnKtimeGetNs.Call(), at(r7, 0), asm.Mov.Imm(r6, 1), skip(asm.JEq, r0, 0, -5), end}, prog{asm.FnKtimeGetNs.Call(), skip(asm.JEq, r0, 0, -2), end}},
		"far jump":               {prog{read(r6), far(1), set(1), at(r7, 0), asm.Mov.Reg(r0, r6), end}, prog{read(r6), asm.Mov.Reg(r0, r6), end}},
		"far jump back":          {prog{read(r6), asm.FnKtimeGetNs.Call(), at(r7, 0), far(-4)}, prog{asm.FnKtimeGetNs.Call(), far(-2)}},
		"jump that may":          {prog{may, set(1), end}, prog{may, set(1), end}},
		"label": {prog{read(r6), asm.JEq.Imm(r6, 1, "there"), set(1), end, at(r7, 0).WithSymbol("there"), set(2), end},
			prog{read(r6), skip(asm.JEq, r6, 1, 2), set(1), end, set(2), end}},
		"into a constant":    {prog{ja(1), at(r7, 0), set(1), end}, prog{ja(1), at(r7, 0), set(1), end}},
		"out of the program": {prog{set(1), ja(7), end}, prog{set(1), ja(7), end}},
	} {
		t.Run(name, func(t *testing.T) {
			out := numbers.fold(&ebpf.ProgramSpec{Instructions: test.in}).Instructions
			if got, want := listing(out), listing(test.want); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// listing is instructions without their symbols.
func listing(insns asm.Instructions) string {
	var b strings.Builder
	for _, ins := range insns {
		fmt.Fprintln(&b, ins)
	}
	return b.String()
}

// TestFoldFunctions: functions that nobody calls go, and those that stay keep what says where they
// begin, also if their first instruction goes.
func TestFoldFunctions(t *testing.T) {
	function := func(name string) *btf.Func { return &btf.Func{Name: name, Type: &btf.FuncProto{}} }
	begin := func(ins asm.Instruction, name string) asm.Instruction {
		return btf.WithFuncMetadata(ins.WithSymbol(name), function(name)).WithSource(asm.Comment(name))
	}
	callback := asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference("callback")
	out := folded(t, numbers, asm.Instructions{
		begin(at(asm.R6, 0), "main"),
		asm.LoadMem(asm.R6, asm.R6, 0, asm.Word),
		to(asm.JEq.Imm(asm.R6, 7, ""), 1),
		asm.Call.Label("never"),
		asm.Call.Label("often"),
		callback,
		asm.FnForEachMapElem.Call(),
		asm.Return(),
		begin(asm.Mov.Imm(asm.R0, 1), "never"), asm.Call.Label("never too"), asm.Return(),
		begin(asm.Mov.Imm(asm.R6, 1), "often"), asm.Mov.Imm(asm.R0, 0).WithSource(asm.Comment("own")), asm.Return(),
		begin(asm.Mov.Imm(asm.R6, 1), "callback"), asm.Mov.Imm(asm.R0, 0), asm.Return(),
		begin(asm.Mov.Imm(asm.R0, 1), "never too"), asm.Return(),
	})
	want := []string{"main main", "often own", "callback callback"}
	var got []string
	for i := range out {
		ins := &out[i]
		if ins.Symbol() == "" {
			continue
		}
		got = append(got, fmt.Sprint(ins.Symbol(), " ", ins.Source()))
		if f := btf.FuncMetadata(ins); f == nil || f.Name != ins.Symbol() {
			t.Errorf("%s has the type of %v", ins.Symbol(), f)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("functions and their lines are %q, want %q:\n%v", got, want, out)
	}
}

// whole says what is wrong with a program: the kernel refuses one with an instruction that nothing
// leads to, with a jump to no instruction of the function, or with a function that goes on past its
// end.
func whole(insns asm.Instructions) error {
	var c code
	if !c.read(insns) {
		return fmt.Errorf("a jump or a call leads nowhere")
	}
	lines, end := false, len(insns)
	for i := range insns {
		lines = lines || insns[i].Source() != nil
	}
	for i := len(insns) - 1; i >= 0; i-- {
		if op := insns[i].OpCode.JumpOp(); i+1 == end && op != asm.Exit && op != asm.Ja {
			return fmt.Errorf("%d: the function goes on past its end", i)
		}
		if c.flags[i]&begins == 0 {
			continue
		}
		for j := i; j < end; j++ {
			if to := int(c.target[j]); to >= 0 && !insns[j].IsFunctionReference() && (to < i || to >= end) {
				return fmt.Errorf("%d: jumps out of the function", j)
			}
		}
		if lines && insns[i].Source() == nil {
			return fmt.Errorf("%d: a function begins without a line", i)
		}
		end = i
	}
	for i, led := range led(&c) {
		if !led {
			return fmt.Errorf("%d: nothing leads to it", i)
		}
	}
	return nil
}

// led is the instructions that something leads to, whatever is in the registers.
func led(c *code) []bool {
	out := make([]bool, len(c.insns))
	var follow []int
	reach := func(i int) {
		if i < len(out) && !out[i] {
			out[i] = true
			follow = append(follow, i)
		}
	}
	for reach(0); len(follow) > 0; {
		i := follow[len(follow)-1]
		follow = follow[:len(follow)-1]
		if to := c.target[i]; to != none {
			reach(int(to))
		}
		if op := c.insns[i].OpCode.JumpOp(); op != asm.Exit && op != asm.Ja {
			reach(i + 1)
		}
	}
	return out
}

// width is the length of a program in words.
func width(insns asm.Instructions) (n int) {
	for i := range insns {
		n += int(insns[i].Width())
	}
	return n
}

// everySpec calls f with the object of each tool, its options set.
func everySpec(t *testing.T, f func(name string, spec *ebpf.CollectionSpec)) {
	files, err := fs.Glob(os.DirFS("../object/amd64"), "*.o.zst")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d objects, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".o.zst")
		spec, err := object.Spec(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := setOptions(spec); err != nil {
			t.Fatal(err)
		}
		f(name, spec)
	}
}

// TestFoldAll: the programs of all tools are whole after fold, have lost more than half of their
// words, and no load of a constant is left but of numbers that do not fit.
func TestFoldAll(t *testing.T) {
	words, left := 0, 0
	var took time.Duration
	everySpec(t, func(name string, spec *ebpf.CollectionSpec) {
		c := constantsOf(spec)
		for _, ps := range spec.Programs {
			began := time.Now()
			out := c.fold(ps)
			took += time.Since(began)
			words, left = words+width(ps.Instructions), left+width(out.Instructions)
			if err := whole(out.Instructions); err != nil {
				t.Errorf("%s: %s: %v", name, ps.Name, err)
				continue
			}
			for _, ins := range unfolded(&c, out.Instructions) {
				t.Errorf("%s: %s: %v still reads a constant", name, ps.Name, ins)
			}
		}
	})
	t.Logf("%d of %d words are left; it took %v", left, words, took)
	if words < 1_000_000 || left > words*4/10 {
		t.Errorf("%d of %d words are left, want less than 40 %%", left, words)
	}
}

// unfolded is the loads of constants that could be numbers.
func unfolded(c *constants, insns asm.Instructions) (out asm.Instructions) {
	var p code
	if !p.read(insns) {
		return nil
	}
	p.follow(c)
	for i, ins := range insns {
		now := ins
		if set(&now, p.value[i]); p.flags[i]&sets != 0 && ins.OpCode.Class() == asm.LdXClass && now.OpCode != ins.OpCode {
			out = append(out, ins)
		}
	}
	return out
}
