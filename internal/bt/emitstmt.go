// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"maps"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// maxRounds bounds all the unrolling of a clause together.
const maxRounds = 10_000

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (e *emitter) stmts(list []Stmt) {
	for _, s := range list {
		f := e.enter()
		e.stmt(s)
		e.leave(f)
	}
}

// discard evaluates an expression for its effect.
func (e *emitter) discard(x Expr) {
	if t := kept(x.typ()); t.word() {
		e.scalar(x)
	} else {
		e.value(x, t, e.alloc(t.store()))
	}
}

func (e *emitter) stmt(s Stmt) {
	switch s := s.(type) {
	case *ExprStmt:
		e.mark(s.X)
		switch x := s.X.(type) {
		case *Call:
			e.callStmt(x)
		case *Ternary:
			e.stmt(&If{Cond: x.C, Then: []Stmt{&ExprStmt{x.X}}, Else: []Stmt{&ExprStmt{x.Y}}})
		case *BlockExpr:
			e.stmts(x.Body)
			if x.X != nil {
				e.stmt(&ExprStmt{x.X})
			}
		default:
			e.discard(s.X)
		}
	case *Assign:
		e.span[0], _ = s.Target.span()
		_, e.span[1] = s.Value.span()
		e.assign(s)
	case *Let:
		if s.Value != nil {
			e.mark(s.Value)
			e.value(s.Value, e.c.vars[s.Var.Name], e.vars[s.Var.Name])
		} else { // a round before this one may have set it
			e.zero(e.vars[s.Var.Name], e.c.vars[s.Var.Name].store())
		}
	case *If:
		e.mark(s.Cond)
		if v, ok := e.c.constant(s.Cond); ok { // the other branch is not there at all
			if v != 0 {
				e.stmts(s.Then)
			} else {
				e.stmts(s.Else)
			}
			return
		}
		no, end := e.label("else"), e.label("fi")
		e.condition(s.Cond, no)
		e.stmts(s.Then)
		if len(s.Else) > 0 {
			e.add(asm.Ja.Label(end))
		}
		e.here(no)
		if len(s.Else) > 0 {
			e.stmts(s.Else)
			e.here(end)
		}
	case *Unroll:
		n, _ := e.c.constant(s.N)
		done := e.label("unrolled")
		for range n {
			if e.rounds++; e.rounds > maxRounds {
				e.c.fail(s.pos, s.end, "unroll inside unroll comes to more than %d rounds", maxRounds)
			}
			next := e.label("round")
			e.loops = append(e.loops, loop{next, done})
			e.stmts(s.Body)
			e.loops = e.loops[:len(e.loops)-1]
			e.here(next)
		}
		e.here(done)
	case *While:
		if s.fn > 0 {
			e.whileCall(s)
			return
		}
		top, done := e.label("while"), e.label("done")
		e.here(top)
		e.mark(s.Cond)
		e.condition(s.Cond, done)
		e.loops = append(e.loops, loop{top, done})
		e.stmts(s.Body)
		e.loops = e.loops[:len(e.loops)-1]
		e.add(asm.Ja.Label(top))
		e.here(done)
	case *For:
		e.forEach(s)
	case *Block:
		e.stmts(s.Body)
	case *Jump:
		switch s.Word {
		case "return":
			if s.X != nil && e.target.Kind == Test {
				e.scalar(s.X)
				e.store(e.result, asm.R0)
			}
			e.add(asm.Ja.Label(e.out))
		case "break":
			e.add(asm.Ja.Label(e.loops[len(e.loops)-1].done))
		case "continue":
			e.add(asm.Ja.Label(e.loops[len(e.loops)-1].next))
		}
	}
}

func (e *emitter) assign(a *Assign) {
	if m, ok := a.Target.(*MapRef); ok {
		d := e.c.maps[m.Name]
		call, ok := a.Value.(*Call)
		switch {
		case ok && aggregations[call.Name] != 0:
			e.aggregate(d, m, call)
		case a.Op == "":
			e.setMap(d, m, a.Value)
		default:
			e.change(d, m, a.Op, a.Value)
		}
		return
	}
	v := a.Target.(*Var)
	t, l := e.c.vars[v.Name], e.vars[v.Name]
	if a.Op == "" {
		e.value(a.Value, t, l)
		return
	}
	e.scalar(a.Value)
	e.strides(a.Op, t)
	e.add(asm.Mov.Reg(asm.R1, asm.R0))
	e.load(asm.R0, l)
	e.arithmetic(a.Op, signedOp(t, a.Value.typ()))
	e.extend(t)
	e.store(l, asm.R0)
}

// key builds the key of a map and gives its place.
func (e *emitter) key(d *mapDef, m *MapRef) loc {
	n := d.keySize()
	l := e.alloc(n)
	if len(d.keys) == 0 {
		e.zero(l, 8)
		return l
	}
	at := l
	for i, k := range m.Keys {
		e.value(k, d.keys[i], at)
		at = at.at(d.keys[i].store())
	}
	return l
}

func (d *mapDef) keySize() int {
	n := 0
	for _, k := range d.keys {
		n += k.store()
	}
	return max(n, 8)
}

// lookup leaves the address of a value, or 0, in R0.
func (e *emitter) lookup(name string, key loc) {
	e.mapPtr(asm.R1, name)
	e.address(asm.R2, key)
	e.add(asm.FnMapLookupElem.Call())
}

// ensure leaves the address of a value in R0; one that is not there is made of
// zeroes. If there is no room it is counted, and no is where to go on.
func (e *emitter) ensure(d *mapDef, key loc, no string) {
	have := e.label("have")
	e.lookup(d.name, key)
	e.add(asm.JNE.Imm(asm.R0, 0, have))
	if e.u.places(d) == 0 {
		e.mapPtr(asm.R1, d.name)
		e.address(asm.R2, key)
		e.u.zeroes = max(e.u.zeroes, d.value.store())
		e.add(
			asm.LoadMapValue(asm.R3, 0, 0).WithReference(mapZeroes),
			asm.Mov.Imm(asm.R4, 1), // BPF_NOEXIST: another CPU may have been faster
			asm.FnMapUpdateElem.Call(),
		)
		e.lookup(d.name, key)
		e.add(asm.JNE.Imm(asm.R0, 0, have))
	}
	e.lose(lostUpdates)
	e.add(asm.Ja.Label(no))
	e.here(have)
}

func (e *emitter) setMap(d *mapDef, m *MapRef, v Expr) {
	key := e.key(d, m)
	val := e.alloc(d.value.store())
	e.value(v, d.value, val)
	e.update(d.name, key, val)
}

func (e *emitter) update(name string, key, val loc) {
	ok := e.label("kept")
	e.mapPtr(asm.R1, name)
	e.address(asm.R2, key)
	e.address(asm.R3, val)
	e.add(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(), asm.JEq.Imm(asm.R0, 0, ok))
	e.lose(lostUpdates)
	e.here(ok)
}

// change is @x op= v. Additions are atomic.
func (e *emitter) change(d *mapDef, m *MapRef, op string, v Expr) {
	key := e.key(d, m)
	by := e.slot()
	e.scalar(v)
	e.strides(op, d.value)
	if op == "-" {
		e.add(asm.Neg.Imm(asm.R0, 0))
	}
	e.store(by, asm.R0)
	done := e.label("changed")
	e.ensure(d, key, done)
	if op == "+" || op == "-" {
		e.load(asm.R1, by)
		e.add(asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
		e.here(done)
		return
	}
	e.add(asm.Mov.Reg(asm.R8, asm.R0), asm.LoadMem(asm.R0, asm.R8, 0, asm.DWord))
	e.load(asm.R1, by)
	e.arithmetic(op, signedOp(d.value, v.typ()))
	e.add(asm.StoreMem(asm.R8, 0, asm.R0, asm.DWord))
	e.here(done)
}

// aggregate is @x[key] = count() and the like.
func (e *emitter) aggregate(d *mapDef, m *MapRef, call *Call) {
	key := e.key(d, m)
	val := e.slot()
	if len(call.Args) > 0 {
		e.scalar(call.Args[0])
		e.store(val, asm.R0)
	}
	var now, epoch loc
	if d.value.Kind == TseriesOf {
		now, epoch = e.epoch(d.value)
	}
	done := e.label("agg")
	e.ensure(d, key, done)
	switch d.value.Kind {
	case CountOf:
		e.add(asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
	case SumOf:
		e.load(asm.R1, val)
		e.add(asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
	case AvgOf, StatsOf:
		e.load(asm.R1, val)
		e.add(asm.StoreXAdd(asm.R0, asm.R1, asm.DWord), asm.Mov.Imm(asm.R1, 1), asm.Add.Imm(asm.R0, 8), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
	case MinOf, MaxOf:
		set := e.label("set")
		less, more := asm.JSLT, asm.JSGT
		if !d.value.Signed {
			less, more = asm.JLT, asm.JGT
		}
		if d.value.Kind == MaxOf {
			less = more
		}
		e.load(asm.R1, val)
		e.add(
			asm.LoadMem(asm.R2, asm.R0, 8, asm.DWord), asm.JEq.Imm(asm.R2, 0, set),
			asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord), less.Reg(asm.R1, asm.R2, set),
			asm.Ja.Label(done),
		)
		e.here(set)
		e.add(asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord), storeImm(asm.R0, 8, 1))
	case HistOf:
		e.load(asm.R1, val)
		e.log2(d.value.Signed, d.value.bits)
		e.bump(int32(histSlots(d.value.bits)))
	case LhistOf:
		e.load(asm.R1, val)
		e.linear(d.value)
	case TseriesOf:
		e.series(d.value, val, now, epoch, done)
	}
	e.here(done)
}

// log2 turns the value in R1 into the number of its bucket in R2: 0 for what is
// below 0, 1 for 0, then 2^bits for each power of two. What is below 2^bits has a
// bucket for each value.
func (e *emitter) log2(signed bool, bits int) {
	end := e.label("bucket")
	e.add(asm.Mov.Imm(asm.R2, 0))
	if signed {
		e.add(asm.JSLT.Imm(asm.R1, 0, end))
	}
	if bits > 0 {
		e.finer(bits, end)
		return
	}
	e.add(asm.Mov.Imm(asm.R2, 1), asm.JEq.Imm(asm.R1, 0, end), asm.Mov.Imm(asm.R2, 2))
	for shift := int32(32); shift >= 1; shift /= 2 {
		small := e.label("small")
		e.add(
			asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Imm(asm.R3, shift), asm.JEq.Imm(asm.R3, 0, small),
			asm.Mov.Reg(asm.R1, asm.R3), asm.Add.Imm(asm.R2, shift),
		)
		e.here(small)
	}
	e.here(end)
}

// finer is log2 of a value that is not negative, with more than one bucket for each
// power of two: R5 is how far the value is shifted to have bits and one more.
func (e *emitter) finer(bits int, end string) {
	e.add(asm.Mov.Reg(asm.R2, asm.R1), asm.Add.Imm(asm.R2, 1), asm.JLT.Imm(asm.R1, 1<<bits, end), asm.Mov.Imm(asm.R5, 0), asm.Mov.Reg(asm.R4, asm.R1))
	for shift := int32(32); shift >= 1; shift /= 2 {
		small := e.label("small")
		e.add(
			asm.Mov.Reg(asm.R3, asm.R4), asm.RSh.Imm(asm.R3, shift+int32(bits)), asm.JEq.Imm(asm.R3, 0, small),
			asm.RSh.Imm(asm.R4, shift), asm.Add.Imm(asm.R5, shift),
		)
		e.here(small)
	}
	e.add(
		asm.Mov.Reg(asm.R2, asm.R4), asm.And.Imm(asm.R2, 1<<bits-1), asm.Add.Imm(asm.R5, 1), asm.LSh.Imm(asm.R5, int32(bits)),
		asm.Add.Reg(asm.R2, asm.R5), asm.Add.Imm(asm.R2, 1),
	)
	e.here(end)
}

// bump adds one to the bucket R2 of n at R0.
func (e *emitter) bump(n int32) {
	out := e.label("bumped")
	e.add(
		asm.JGT.Imm(asm.R2, n-1, out),
		asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R0, asm.R2), asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
	)
	e.here(out)
}

// linear finds the bucket of lhist for the value in R1: 0 below, the last above.
func (e *emitter) linear(t *Type) {
	end := e.label("bucket")
	n := int32(t.store() / 8)
	if t.Signed {
		e.add(
			asm.Mov.Imm(asm.R2, 0), asm.JSLT.Imm(asm.R1, int32(t.min), end),
			asm.Mov.Imm(asm.R2, n-1), asm.JSGE.Imm(asm.R1, int32(t.max), end),
		)
	} else {
		if t.min > 0 {
			e.add(asm.Mov.Imm(asm.R2, 0), asm.JLT.Imm(asm.R1, int32(t.min), end))
		}
		e.add(asm.Mov.Imm(asm.R2, n-1))
		if t.max > 0 {
			e.add(asm.JGE.Imm(asm.R1, int32(t.max), end))
		} else {
			e.add(asm.Ja.Label(end))
		}
	}
	e.add(asm.Mov.Reg(asm.R2, asm.R1))
	if t.min != 0 {
		e.add(asm.Mov.Imm(asm.R3, int32(t.min)), asm.Sub.Reg(asm.R2, asm.R3))
	}
	e.add(asm.Div.Imm(asm.R2, int32(t.step)), asm.Add.Imm(asm.R2, 1))
	e.here(end)
	e.bump(n)
}
