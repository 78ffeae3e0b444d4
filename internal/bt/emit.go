// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Registers: R6 holds the context, R7 this run's scratch memory, R8 and R9 are
// kept over calls within one statement. Results are in R0.
//
// Stack, from the top: the key of the scratch map, the pointer to it, the bit of
// the slot taken, then slots.
const (
	stackKey  = -8
	stackBase = -16
	stackBit  = -24
	stackUsed = 24
	stackRoom = 480 // of 512

)

// Names of the maps that are there besides the script's.
const (
	mapRing    = "ring"
	mapScratch = "scratch"
	mapCounts  = "counts" // what was lost; then the start
	mapZeroes  = "zeroes"
	mapEnded   = "ended" // one word, not 0 once END begins
)

// Indices in the map counts.
const (
	lostEvents = iota
	lostUpdates
	lostScratch
	lostStacks
	lostTurns
	startTime
	countSlots
)

// A unit is what the programs of a script share: actions and the sizes of maps.
type unit struct {
	c       *checker
	actions []*action
	known   map[string]int       // actions by what they are
	stacks  map[string]stackSpec // maps of stacks in use
	scratch int                  // bytes of a slot
	zeroes  int
	pids    []uint32
	family  bool // the processes are in a map
	reads   bool // tell of reads that fail
	ends    bool // there is an END
	stamped bool // records carry their time
	names   []*Target
}

// A loc is a fixed place: on the stack or in scratch memory.
type loc struct {
	reg asm.Register
	off int
}

func (l loc) at(off int) loc { return loc{l.reg, l.off + off} }

// An emitter writes the instructions of one program.
type emitter struct {
	u      *unit
	c      *checker
	target *Target
	cookie bool // the target's number comes with the event
	calls  *calls
	number loc // where calls leave the target's number

	ins   asm.Instructions
	spans [][2]Pos // of each instruction
	span  [2]Pos

	stack, scratch int // in use
	stackMax       int
	scratchMax     int
	usesScratch    bool
	labels         int
	pending        string            // a label without its instruction
	alias          map[string]string // labels of one place
	vars           map[string]loc
	loops          []loop
	rounds         int // of unroll

	room, depth int        // of the stack; loops over maps around
	out         string     // where the function ends
	left        loc        // not 0: a loop's body has ended the clause
	result      loc        // what a test returns
	callbacks   []callback // bodies of loops over maps
}

type loop struct{ next, done string }

// A code is the instructions of a program and where each came from.
type code struct {
	ins   asm.Instructions
	spans [][2]Pos
}

// emit compiles a clause that has just been checked for the target.
func (u *unit) emit(cl *Clause, t *Target, cookie bool, via *calls) (_ *code, err error) {
	defer catch(&err)
	e := &emitter{u: u, c: u.c, target: t, cookie: cookie, calls: via, stack: stackUsed, vars: map[string]loc{}, alias: map[string]string{}}
	e.span = [2]Pos{t.pos.pos, t.pos.end}
	e.room, e.out = stackRoom, "out"
	if u.c.fns > 0 {
		e.room = stackRooms[u.c.deepest][0]
		e.left = e.inScratch(8)
		e.zero(e.left, 8)
	}
	if via != nil {
		e.number = e.slot()
	}
	if t.Kind == Test {
		e.result = e.inScratch(8)
		e.zero(e.result, 8)
	}
	e.prepareVars(shared)
	e.prepareVars(0)
	if cl.Pred != nil {
		e.mark(cl.Pred)
		e.condition(cl.Pred, "out")
	}
	e.stmts(cl.Body)
	e.span = [2]Pos{t.pos.pos, t.pos.end}
	return e.finish(), nil
}

func (e *emitter) fail(x Expr, format string, args ...any) { e.c.failAt(x, format, args...) }

func (e *emitter) mark(x Expr) { e.span[0], e.span[1] = x.span() }

func (e *emitter) add(ins ...asm.Instruction) {
	e.c.step()
	for range ins {
		e.spans = append(e.spans, e.span)
	}
	if e.pending != "" {
		ins[0] = ins[0].WithSymbol(e.pending)
		e.pending = ""
	}
	e.ins = append(e.ins, ins...)
	if len(e.ins) > maxCode {
		e.c.fail(e.span[0], e.span[1], "the program is too large: more than %d instructions", maxCode)
	}
}

// maxCode is well below the million that the verifier looks at.
const maxCode = 200_000

func (e *emitter) label(word string) string {
	e.labels++
	return fmt.Sprintf("%s%d", word, e.labels)
}

// here puts a label on the instruction that comes next.
func (e *emitter) here(label string) {
	if e.pending == "" {
		e.pending = label
	} else {
		e.alias[label] = e.pending
	}
}

// A frame remembers what of stack and scratch is in use.
type frame struct{ stack, scratch int }

func (e *emitter) enter() frame  { return frame{e.stack, e.scratch} }
func (e *emitter) leave(f frame) { e.stack, e.scratch = f.stack, f.scratch }
func (e *emitter) slot() loc     { return e.onStack(8) }
func (e *emitter) imm(v int64) asm.Instruction {
	if v >= math.MinInt32 && v <= math.MaxInt32 {
		return asm.Mov.Imm(asm.R0, int32(v))
	}
	return asm.LoadImm(asm.R0, v, asm.DWord)
}

func (e *emitter) onStack(n int) loc {
	e.stack += round8(n)
	if e.stack > e.room {
		e.c.fail(e.span[0], e.span[1], "this expression needs more than the %d bytes of stack that BPF has: split it", 512)
	}
	e.stackMax = max(e.stackMax, e.stack)
	return loc{asm.RFP, -e.stack}
}

// alloc takes n bytes, on the stack if they are few.
func (e *emitter) alloc(n int) loc {
	n = round8(n)
	if n <= e.c.set.onStack && e.stack+n <= e.room-160 {
		return e.onStack(n)
	}
	return e.inScratch(n)
}

func (e *emitter) inScratch(n int) loc {
	n = round8(n)
	l := loc{asm.R7, e.scratch}
	e.usesScratch = true
	e.scratch += n
	e.scratchMax = max(e.scratchMax, e.scratch)
	if e.scratch > 30<<10 {
		e.c.fail(e.span[0], e.span[1], "this clause needs more than 30 kB of memory: use shorter strings")
	}
	return l
}

// address puts the address of a place into a register.
func (e *emitter) address(dst asm.Register, l loc) {
	e.add(asm.Mov.Reg(dst, l.reg))
	if l.off != 0 {
		e.add(asm.Add.Imm(dst, int32(l.off)))
	}
}

func (e *emitter) store(l loc, r asm.Register) {
	e.add(asm.StoreMem(l.reg, int16(l.off), r, asm.DWord))
}
func (e *emitter) load(r asm.Register, l loc) { e.add(asm.LoadMem(r, l.reg, int16(l.off), asm.DWord)) }

func (e *emitter) zero(l loc, n int) {
	for i := 0; i < n; i += 8 {
		e.add(storeImm(l.reg, l.off+i, 0))
	}
}

// copy moves n bytes between places.
func (e *emitter) copy(dst, src loc, n int) {
	if n > 128 {
		e.address(asm.R3, src)
		e.readTo(dst, n, InKernel)
		return
	}
	for i := 0; i < n; i += 8 {
		e.load(asm.R1, src.at(i))
		e.store(dst.at(i), asm.R1)
	}
}

// readTo reads n bytes from the address in R3.
func (e *emitter) readTo(dst loc, n int, space Space) {
	e.address(asm.R1, dst)
	fn := asm.FnProbeReadKernel
	if space == InUser {
		fn = asm.FnProbeReadUser
	}
	e.add(asm.Mov.Imm(asm.R2, int32(n)))
	e.read(fn)
}

// readStringTo reads a string of at most n bytes from the address in R3.
func (e *emitter) readStringTo(dst loc, n int, space Space) {
	e.address(asm.R1, dst)
	fn := asm.FnProbeReadKernelStr
	if space == InUser {
		fn = asm.FnProbeReadUserStr
	}
	e.add(asm.Mov.Imm(asm.R2, int32(n)))
	e.read(fn)
}

func (e *emitter) mapPtr(r asm.Register, name string) {
	e.add(asm.LoadMapPtr(r, 0).WithReference(name))
}

// global puts the address of a slot of the map counts into a register.
func (e *emitter) global(r asm.Register, slot int) {
	e.add(asm.LoadMapValue(r, 0, uint32(8*slot)).WithReference(mapCounts))
}

// lose counts something that could not be kept.
func (e *emitter) lose(what int) {
	e.global(asm.R1, what)
	e.add(asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord))
}

// prepareVars gives every $variable of a function its place, filled with zeroes.
func (e *emitter) prepareVars(home int) {
	words := 0
	for _, name := range sortedKeys(e.c.vars) {
		t := e.c.vars[name]
		switch {
		case e.c.homes[name] != home:
			continue
		case home == shared:
			e.vars[name] = e.inScratch(t.store())
		case t.word() && words < 16 && e.stack+8 <= e.room/2:
			words++
			e.vars[name] = e.slot()
		default:
			e.vars[name] = e.alloc(t.store())
		}
		e.zero(e.vars[name], t.store())
	}
}

// finish puts beginning and end around the body.
func (e *emitter) finish() *code {
	body, spans, last := e.ins, e.spans, e.pending
	e.ins, e.spans, e.pending = nil, nil, ""
	e.add(asm.Mov.Reg(asm.R6, asm.R1))
	if len(e.u.pids) > 0 && !e.target.Kind.ownTask() {
		e.add(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
		if e.u.family {
			e.inFamily("mine")
		}
		for _, p := range e.u.pids {
			if e.u.family {
				break
			}
			e.add(asm.JEq.Imm(asm.R0, int32(p), "mine"))
		}
		e.add(asm.Ja.Label("end"))
		e.here("mine")
	}
	if e.u.ends && e.target.Kind != Begin && e.target.Kind != End {
		e.add(asm.LoadMapValue(asm.R1, 0, 0).WithReference(mapEnded), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), asm.JNE.Imm(asm.R1, 0, "end"))
	}
	if e.calls != nil {
		e.dispatch()
	}
	if e.target.iter != nil {
		e.noObject("end")
	}
	if e.usesScratch {
		e.takeScratch("", "end", lostScratch)
	}
	body, spans = e.rare(body, spans)
	if len(body) > 0 {
		if e.pending != "" {
			body[0] = body[0].WithSymbol(e.pending) // no label leads to the first
			e.pending = ""
		}
		e.ins, e.spans = append(e.ins, body...), append(e.spans, spans...)
	}
	if last != "" {
		e.here(last)
	}
	e.here("out")
	if e.target.Kind == Test {
		e.load(asm.R9, e.result)
	}
	if e.usesScratch {
		e.releaseScratch()
	}
	if e.target.Kind == Test {
		e.add(asm.Mov.Reg(asm.R0, asm.R9), asm.Return())
	}
	e.here("end")
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	starts := []int{0}
	for _, f := range e.callbacks {
		starts = append(starts, len(e.ins))
		e.ins, e.spans = append(e.ins, f.ins...), append(e.spans, f.spans...)
	}
	for i := range e.ins {
		for ref := e.ins[i].Reference(); e.alias[ref] != ""; ref = e.alias[ref] {
			e.ins[i] = e.ins[i].WithReference(e.alias[ref])
		}
	}
	e.prune(starts)
	if len(e.callbacks) > 0 {
		e.ins[0] = btf.WithFuncMetadata(e.ins[0], funcOf("seine_bt", btf.GlobalFunc))
	}
	e.u.scratch = max(e.u.scratch, e.scratchMax)
	return &code{e.ins, e.spans}
}

// prune removes code that cannot be reached, as after exit(): the verifier refuses it.
func (e *emitter) prune(starts []int) {
	labels := map[string]int{}
	for i := range e.ins {
		if s := e.ins[i].Symbol(); s != "" {
			labels[s] = i
		}
	}
	reached := make([]bool, len(e.ins))
	for todo := starts; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[i] {
			continue
		}
		reached[i] = true
		in := &e.ins[i]
		op := in.OpCode.JumpOp()
		if to, ok := labels[in.Reference()]; ok && in.OpCode.Class().IsJump() {
			todo = append(todo, to)
		}
		if op != asm.Ja && op != asm.Exit && i+1 < len(e.ins) {
			todo = append(todo, i+1)
		}
	}
	ins, spans := e.ins[:0:0], e.spans[:0:0]
	for i := range e.ins {
		if reached[i] {
			ins, spans = append(ins, e.ins[i]), append(spans, e.spans[i])
		}
	}
	e.ins, e.spans = ins, spans
}

// scratchSlots is how many runs of programs can nest on one CPU: a fentry
// program may be interrupted by one in an interrupt, and that by one in an NMI.
const scratchSlots = 4

// takeScratch finds a free slot of this CPU's scratch memory and sets R7 to it. The first word has
// the bits of the slots in use. A program that interrupts us between the read and the add has
// ended when we add. A program that preempts us may not have ended: on such kernels the bit is
// taken only if nobody else has taken it meanwhile. If no slot is free, that is counted under
// what, and the program goes on at none.
func (e *emitter) takeScratch(mark, none string, what int) {
	e.add(storeImm(asm.RFP, stackKey, 0))
	e.mapPtr(asm.R1, mapScratch)
	e.add(
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, none),
		asm.StoreMem(asm.RFP, stackBase, asm.R0, asm.DWord),
		// R2 = the lowest zero bit
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Xor.Imm(asm.R1, -1), asm.And.Imm(asm.R1, 1<<scratchSlots-1),
		asm.Mov.Reg(asm.R2, asm.R1), asm.Neg.Imm(asm.R2, 0), asm.And.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.RFP, stackBit, asm.R2, asm.DWord),
		asm.JNE.Imm(asm.R2, 0, "free"+mark),
	)
	e.here("none free" + mark)
	e.lose(what)
	e.add(asm.Ja.Label(none))
	e.here("free" + mark)
	e.add(
		asm.LoadMem(asm.R0, asm.RFP, stackBase, asm.DWord),
		asm.LoadMem(asm.R2, asm.RFP, stackBit, asm.DWord),
	)
	if e.c.kernel.preempt() {
		e.add(
			asm.Mov.Reg(asm.R1, asm.R2), fetchOr(asm.R0, asm.R1),
			asm.And.Reg(asm.R1, asm.R2), asm.JNE.Imm(asm.R1, 0, "none free"+mark),
		)
	} else {
		e.add(asm.StoreXAdd(asm.R0, asm.R2, asm.DWord))
	}
	e.add(
		// 1, 2, 4, 8 become 0, 1, 2, 3
		asm.Mov.Reg(asm.R1, asm.R2), asm.RSh.Imm(asm.R1, 1), asm.RSh.Imm(asm.R2, 3), asm.Sub.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, scratchSlots-1),
		// The size of a slot is known when all programs are.
		asm.LoadImm(asm.R2, 0, asm.DWord).WithReference(slotSizeRef),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R7, asm.R0), asm.Add.Imm(asm.R7, 8), asm.Add.Reg(asm.R7, asm.R1),
	)
}

// releaseScratch gives the slot back.
func (e *emitter) releaseScratch() {
	e.add(
		asm.LoadMem(asm.R1, asm.RFP, stackBase, asm.DWord), asm.LoadMem(asm.R2, asm.RFP, stackBit, asm.DWord),
		asm.Neg.Imm(asm.R2, 0), asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
	)
}
