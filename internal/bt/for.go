// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// for ($kv : @map) { … } is a function that the kernel calls for each entry of the
// map, by bpf_for_each_map_elem of Linux 5.13. It has a frame of its own, on the
// same 512 bytes of stack. Variables that it shares with the code around it are in scratch
// memory, about which the verifier assumes nothing: before 6.7 it assumes that the function is
// called once, and would drop branches that later calls need.

// while and for over numbers are such functions too, called by bpf_loop of Linux 5.17,
// so that the verifier need not see that they end. Before, and where they have few
// turns or are nested deeply, they are jumps.

// stackRooms is how much stack a clause has whose loops are nested so deep, and a
// loop in it, and one in that.
var stackRooms = [...][]int{{stackRoom}, {288, 192}, {224, 160, 96}, {160, 128, 96, 96}}

// maxTurns is BPF_MAX_LOOPS, the turns after which the kernel ends a loop.
const maxTurns = 1 << 23

// fewTurns is how many turns a loop has at most that is jumps on every kernel.
const fewTurns = 32

// mention notes which function uses a variable.
func (c *checker) mention(v *Var) {
	if home, ok := c.homes[v.Name]; ok && home != c.fn {
		c.homes[v.Name] = shared
	} else {
		c.homes[v.Name] = c.fn
	}
}

func (c *checker) needForEach(m *MapRef, what string) {
	if err := c.kernel.forEach(); err != nil {
		pos, end := m.span()
		panic(&unsupportedError{c.src.errorf(pos, end, "%s needs Linux 5.13: print(%s) prints all of it", what, m.Name)})
	}
}

func (c *checker) forEach(s *For) {
	d := c.maps[s.Map.Name]
	if c.final && (d == nil || d.value == nil) {
		c.failAt(s.Map, "%s is read but never assigned", s.Map.Name)
	}
	if d == nil || !d.used {
		return // the keys are not known yet
	}
	if !d.keyed {
		c.failAt(s.Map, "%s has no keys for a loop to go over", s.Map.Name)
	}
	c.needForEach(s.Map, "for over maps")
	if c.nested+1 == len(stackRooms) {
		c.fail(s.pos, s.end, "loops over maps are nested more than %d deep", len(stackRooms)-1)
	}
	t := &Type{Kind: Combo, Elems: []*Type{d.keys[0], unknown}}
	if len(d.keys) > 1 {
		t.Elems[0] = &Type{Kind: Combo, Elems: d.keys}
	}
	if d.value != nil {
		t.Elems[1] = c.readValue(s.Map, d)
	}
	s.Map.setType(typeVoid)
	s.Var.setType(t)
	name := s.Var.Name
	old, each := c.vars[name], c.each[name]
	s.fn = c.function(func() {
		c.vars[name], c.each[name] = t, true
		c.stmts(s.Body)
		c.vars[name], c.each[name] = old, each
	})
	if old == nil {
		delete(c.vars, name)
	}
}

// function checks the body of a loop that is a function, and gives its number.
func (c *checker) function(check func()) int {
	fn, loops := c.fn, c.loops
	c.fns++
	n := c.fns
	c.fn, c.loops = n, 1
	c.nested++
	c.deepest = max(c.deepest, c.nested)
	check()
	c.nested--
	c.fn, c.loops = fn, loops
	return n
}

func (c *checker) while(s *While) {
	check := func() {
		c.condition(s.Cond)
		c.stmts(s.Body)
	}
	s.fn = 0
	if !s.few && c.nested+1 < len(stackRooms) && c.kernel.loop() {
		s.fn = c.function(check)
		return
	}
	c.loops++
	check()
	c.loops--
}

// A callback is the instructions of a body.
type callback struct {
	ins   asm.Instructions
	spans [][2]Pos
}

func (e *emitter) forEach(s *For) {
	d := e.c.maps[s.Map.Name]
	name := e.label("each")
	kv := e.inScratch(s.Var.typ().store())
	e.mark(s.Map)
	e.callbacks = append(e.callbacks, e.body(name, asm.R4, func() { e.entry(s, d, kv) }))
	e.pass()
	e.callEach(d.name, name)
	e.leftLoop()
}

// whileCall is a while that is a function.
func (e *emitter) whileCall(s *While) {
	name := e.label("turn")
	e.mark(s.Cond)
	e.callbacks = append(e.callbacks, e.body(name, asm.R2, func() {
		e.prepareVars(s.fn)
		e.condition(s.Cond, e.loops[0].done)
		e.stmts(s.Body)
	}))
	e.pass()
	fine := e.label("turned")
	e.add(
		asm.Mov.Imm(asm.R1, maxTurns), functionPtr(name), asm.Mov.Imm(asm.R4, 0), asm.FnLoop.Call(),
		asm.JLT.Imm(asm.R0, maxTurns, fine),
	)
	e.lose(lostTurns)
	e.here(fine)
	e.leftLoop()
}

// pass leaves in R3 the address of what a loop's function gets: the context and
// scratch memory.
func (e *emitter) pass() {
	pass := e.onStack(16)
	e.store(pass, asm.R6)
	e.store(pass.at(8), asm.R7)
	e.address(asm.R3, pass)
}

// leftLoop ends the clause if the loop did.
func (e *emitter) leftLoop() {
	e.load(asm.R0, e.left)
	e.add(asm.JNE.Imm(asm.R0, 0, e.out))
}

func functionPtr(name string) asm.Instruction {
	return asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference(name)
}

// callEach makes the kernel call a function for each entry with the pointer in R3, and leaves the
// number of calls in R0.
func (e *emitter) callEach(mapName, name string) {
	e.mapPtr(asm.R1, mapName)
	e.add(functionPtr(name), asm.Mov.Imm(asm.R4, 0), asm.FnForEachMapElem.Call())
}

// count leaves the number of a map's entries in R0: the calls of a function that
// does nothing.
func (e *emitter) count(m *MapRef) {
	name := e.label("each")
	ins := asm.Instructions{btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, 0).WithSymbol(name), funcOf(name, btf.StaticFunc)), asm.Return()}
	e.callbacks = append(e.callbacks, callback{ins, [][2]Pos{e.span, e.span}})
	e.add(asm.Mov.Imm(asm.R3, 0))
	e.callEach(m.Name, name)
}

// body emits the function of a loop. It gets the caller's context and scratch memory
// by way of a register, and returns 1 to be the last.
func (e *emitter) body(name string, given asm.Register, emit func()) callback {
	outer := *e
	e.ins, e.spans, e.pending, e.stack = nil, nil, name, 0
	e.depth++
	e.room = stackRooms[e.c.deepest][e.depth]
	next, last := e.label("next"), e.label("last")
	e.loops, e.out = []loop{{next, last}}, e.label("leave")
	e.add(asm.LoadMem(asm.R6, given, 0, asm.DWord), asm.LoadMem(asm.R7, given, 8, asm.DWord))
	emit()
	e.span = outer.span
	e.here(next)
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	e.here(e.out)
	e.add(storeImm(e.left.reg, e.left.off, 1))
	e.here(last)
	e.add(asm.Mov.Imm(asm.R0, 1), asm.Return())
	e.ins[0] = btf.WithFuncMetadata(e.ins[0], funcOf(name, btf.StaticFunc))

	f := callback{e.ins, e.spans}
	e.ins, e.spans, e.pending, e.stack, e.span = outer.ins, outer.spans, outer.pending, outer.stack, outer.span
	e.depth, e.room, e.loops, e.out = outer.depth, outer.room, outer.loops, outer.out
	return f
}

// entry emits the body of a loop over a map, whose key is in R2 and value in R3.
func (e *emitter) entry(s *For, d *mapDef, kv loc) {
	value := e.slot()
	e.store(value, asm.R3)
	e.add(asm.Mov.Reg(asm.R0, asm.R2))
	e.copyFrom(d.keySize(), kv)
	t, at := s.Var.typ().Elems[1], kv.at(d.keySize())
	e.load(asm.R0, value)
	if t.word() {
		e.loadValue(d)
		e.store(at, asm.R0)
	} else {
		e.copyFrom(t.store(), at)
	}
	old, had := e.vars[s.Var.Name]
	e.vars[s.Var.Name] = kv
	e.prepareVars(s.fn)
	e.stmts(s.Body)
	if delete(e.vars, s.Var.Name); had {
		e.vars[s.Var.Name] = old
	}
}

// funcOf is the type of a function, without which the kernel takes no address of
// it.
func funcOf(name string, linkage btf.FuncLinkage) *btf.Func {
	return &btf.Func{Name: name, Linkage: linkage, Type: &btf.FuncProto{Return: &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}}}
}
