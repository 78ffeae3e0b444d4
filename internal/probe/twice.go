// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/host"
)

// The kernel skips a program if the processor is already in the middle of it. Since 7.0 tasks can
// be preempted inside tracepoints. Then an event of one task is skipped because another task,
// which does not run now, was stopped in the program.
//
// On such kernels each program is attached several times. Each copy leaves a mark: the address of
// its context, with its own number. The context is on the stack of the task at the tracepoint, so
// it belongs to this event alone. A copy that finds the mark of an earlier copy returns. If all
// earlier copies were skipped, it does the work. An event that all copies skipped is lost, and
// counted.
//
// Any number of tasks may be preempted, each in another copy, so no number of copies is
// certain to lose nothing. Of 98,882 sends by 14 threads on one emulated
// processor of 7.2, one copy lost 4,556 to 11,424, two 287 to 1,406, three 0 to 60, four
// 0 to 13, five none. Each copy takes as long to load as the first, and some 25 ns an
// event.
const copies = 3

const (
	markBits  = 15
	markShift = 11 // stacks are 16 KiB or more; an interrupt's part of one is far from the task's
	markBytes = 8 << markBits
	markApart = 1021 // slots between programs, since one may run in the middle of another
)

// Twice makes more copies of programs. One that is nil makes none.
type Twice struct {
	marks *ebpf.Map // the contexts' addresses
	took  *ebpf.Map // how often another copy did the work of the first
	pairs int32
	began uint64 // taken when all copies were attached: by copies that were without the first so far
}

// NewTwice is nil on kernels that do not skip programs in this way.
func NewTwice() (*Twice, error) {
	if !host.TracepointsPreempt() {
		return nil, nil
	}
	return newTwice()
}

func newTwice() (*Twice, error) {
	marks, err := ebpf.NewMap(&ebpf.MapSpec{Name: "marks", Type: ebpf.Array, KeySize: 4, ValueSize: markBytes, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("making marks: %w", err)
	}
	took, err := ebpf.NewMap(&ebpf.MapSpec{Name: "took", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		marks.Close()
		return nil, fmt.Errorf("making a count: %w", err)
	}
	return &Twice{marks: marks, took: took}, nil
}

// A Copy is one of the programs that see the same events.
type Copy struct {
	*ebpf.ProgramSpec
	Again int // 0: the first one. Others work only where those before them were skipped
}

// Copies is the copies of a program, in the order to attach them in; one where the
// kernel does not skip programs of this kind so.
func (w *Twice) Copies(ps *ebpf.ProgramSpec) []Copy { return w.copies(ps, true) }

// Uncounted is Copies of a program that Missed is not asked about.
func (w *Twice) Uncounted(ps *ebpf.ProgramSpec) []Copy { return w.copies(ps, false) }

func (w *Twice) copies(ps *ebpf.ProgramSpec, counted bool) []Copy {
	function := ps.AttachType == ebpf.AttachTraceFEntry || ps.AttachType == ebpf.AttachTraceFExit
	if w == nil || !function && ps.AttachType != ebpf.AttachTraceRawTp && ps.Type != ebpf.RawTracepoint {
		return []Copy{{ps, 0}}
	}
	w.pairs++
	var out []Copy
	for n := range copies {
		out = append(out, Copy{w.copy(ps, n, counted), n})
	}
	if function { // on functions, the program that was attached last runs first
		slices.Reverse(out)
	}
	return out
}

// Begin is called when all copies are attached. Missed is right if other copies are
// detached before the first ones, or if it is asked before.
func (w *Twice) Begin() {
	if w != nil {
		w.began = w.taken()
	}
}

// Missed is how many events were lost because the kernel skipped one of these
// programs, which are first copies or the only ones.
func (w *Twice) Missed(progs []*ebpf.Program) (n uint64) {
	for _, p := range progs {
		if st, err := p.Stats(); err == nil {
			n += st.RecursionMisses
		}
	}
	if w != nil {
		n -= min(n, w.taken()-w.began)
	}
	return n
}

// taken is how often a copy did the work of the first.
func (w *Twice) taken() (n uint64) {
	if w.took.Lookup(uint32(0), &n) != nil {
		return 0
	}
	return n
}

// Close frees the marks.
func (w *Twice) Close() {
	if w != nil {
		w.marks.Close()
		w.took.Close()
	}
}

// copy is copy n of a program, counted from 0. It leaves its number with the mark, and
// works if no copy before it has.
func (w *Twice) copy(ps *ebpf.ProgramSpec, n int, counted bool) *ebpf.ProgramSpec {
	const alone = "alone"
	code := append(w.mark(),
		asm.LoadMem(asm.R4, asm.R3, 0, asm.DWord),
		asm.StoreMem(asm.R3, 0, asm.R1, asm.DWord),
		asm.LoadMem(asm.R5, asm.R3, 0, asm.DWord), // read back it is a number
		asm.Add.Imm(asm.R5, int32(n)),
		asm.StoreMem(asm.R3, 0, asm.R5, asm.DWord),
	)
	if n == 0 {
		return begin(ps, code)
	}
	code = append(code,
		asm.Add.Imm(asm.R4, 1),
		asm.Sub.Reg(asm.R5, asm.R4),
		asm.JGE.Imm(asm.R5, int32(n), alone),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R4, 1).WithSymbol(alone),
	)
	if counted {
		code = append(code,
			asm.LoadMapValue(asm.R3, w.took.FD(), 0),
			asm.AddAtomic.Mem(asm.R3, asm.R4, asm.DWord, 0))
	}
	return begin(ps, code)
}

// mark leaves the place of this event's mark in R3, and R1 as it was.
func (w *Twice) mark() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg32(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, markShift),
		asm.Add.Imm(asm.R2, w.pairs*markApart),
		asm.And.Imm(asm.R2, 1<<markBits-1),
		asm.LSh.Imm(asm.R2, 3),
		asm.LoadMapValue(asm.R3, w.marks.FD(), 0),
		asm.Add.Reg(asm.R3, asm.R2),
	}
}

// begin puts code in front of a program.
func begin(ps *ebpf.ProgramSpec, code asm.Instructions) *ebpf.ProgramSpec {
	ps = ps.Copy()
	old := &ps.Instructions[0]
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(old.Symbol()), btf.FuncMetadata(old)).WithSource(old.Source())
	*old = btf.WithFuncMetadata(old.WithSymbol(""), nil)
	ps.Instructions = append(code, ps.Instructions...)
	return ps
}
