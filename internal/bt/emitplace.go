// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"github.com/cilium/ebpf/asm"
)

// where a place is.
type where uint8

const (
	atAddress where = iota // the address is in R0
	atContext              // at a fixed offset of the context
	atLoc                  // on the stack or in scratch memory
)

// A place is where a field, an element or a record lies.
type spot struct {
	where
	space  Space
	off    int
	loc    loc
	member *member // of a bit field
}

// place finds where an expression lies, emitting what computes its address.
func (e *emitter) place(x Expr) spot {
	switch x := x.(type) {
	case *Field:
		if f := e.tpField(x); f != nil && e.calls != nil {
			return spot{where: atContext, off: 8} // what the call returned, the only one
		} else if f != nil && !f.dataLoc {
			return spot{where: atContext, off: f.off}
		}
		t := x.X.typ()
		switch {
		case t != nil && t.Kind == Combo:
			p := e.place(x.X)
			for _, el := range t.Elems[:t.element(x.Name)] {
				p.off += el.store()
			}
			return p
		case t != nil && t.Kind == Pointer:
			e.scalar(x.X)
			el := t.Elem()
			m := e.c.record(el).field(x.Name, el.Space)
			return spot{space: t.Space, off: m.off, member: bitField(m)}
		case t != nil && t.Kind == Record:
			p := e.place(x.X)
			m := e.c.record(t).field(x.Name, t.Space)
			p.off += m.off
			p.member = bitField(m)
			return p
		}
	case *Index:
		return e.element(x)
	case *Unary:
		if x.Op == "*" {
			e.scalar(x.X)
			return spot{space: x.X.typ().Space}
		}
	case *Cast:
		if k := x.typ().Kind; (k == Record || k == Array) && x.X.typ().Kind != Number {
			return e.place(x.X)
		}
	case *Var:
		return spot{where: atLoc, loc: e.vars[x.Name]}
	}
	l := e.alloc(x.typ().store())
	e.value(x, x.typ(), l)
	return spot{where: atLoc, loc: l}
}

func bitField(m *member) *member {
	if m.bits > 0 {
		return m
	}
	return nil
}

func (e *emitter) element(x *Index) spot {
	t := x.X.typ()
	switch n, _ := e.c.constant(x.I); t.Kind {
	case Combo:
		pos, end := x.span()
		return e.place(&Field{node: node{pos: pos, end: end, t: x.typ()}, X: x.X, Name: t.field(int(n))})
	case String:
		p := e.place(x.X)
		p.off += int(n)
		return p
	}
	size := max(1, t.Elem().Size)
	n, fixed := e.known(x.I)
	if t.Kind == Pointer {
		if fixed {
			e.scalar(x.X)
			return spot{space: t.Space, off: int(n) * size}
		}
		base := e.slot()
		e.scalar(x.X)
		e.store(base, asm.R0)
		e.scalar(x.I)
		e.add(asm.Mul.Imm(asm.R0, int32(size)))
		e.load(asm.R1, base)
		e.add(asm.Add.Reg(asm.R0, asm.R1))
		return spot{space: t.Space}
	}
	p := e.place(x.X)
	if fixed {
		p.off += int(n) * size
		return p
	}
	if p.where == atLoc {
		e.fail(x.I, "the index of a copied array must be a constant")
	}
	e.placeAddress(p)
	base := e.slot()
	e.store(base, asm.R0)
	e.scalar(x.I)
	inside := e.label("inside")
	if t.Len > 0 { // past the end is nothing that can be read
		e.add(asm.JLT.Imm(asm.R0, int32(t.Len), inside), asm.Mov.Imm(asm.R0, 0), storeImm(base.reg, base.off, 0))
		e.here(inside)
	}
	e.add(asm.Mul.Imm(asm.R0, int32(size)))
	e.load(asm.R1, base)
	e.add(asm.Add.Reg(asm.R0, asm.R1))
	return spot{space: p.space}
}

// placeAddress leaves the address of a place in R0.
func (e *emitter) placeAddress(p spot) {
	switch p.where {
	case atAddress:
		if p.off != 0 {
			e.add(asm.Add.Imm(asm.R0, int32(p.off)))
		}
	case atContext:
		e.add(asm.Mov.Reg(asm.R0, asm.R6), asm.Add.Imm(asm.R0, int32(p.off)))
	case atLoc:
		e.address(asm.R0, p.loc.at(p.off))
	}
}

// copyPlace reads n bytes of a place to dst. What cannot be read is zeroes.
func (e *emitter) copyPlace(p spot, n int, dst loc) {
	if p.where == atLoc && n%8 == 0 {
		e.copy(dst, p.loc.at(p.off), n)
		return
	}
	e.placeAddress(p)
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.readTo(dst, n, p.space)
}

var sizes = map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}

// loadPlace leaves the number at a place in R0. An array's or a record's value
// is its address.
func (e *emitter) loadPlace(p spot, t *Type) {
	if t.Kind == Array || t.Kind == Record {
		e.placeAddress(p)
		return
	}
	size := t.Size
	if t.Kind != Number && t.Kind != Pointer {
		size = 8 // of a tuple's or a record's element
	}
	asmSize, ok := sizes[size]
	if !ok {
		asmSize, size = asm.DWord, 8
	}
	switch {
	case p.where == atLoc:
		e.add(asm.LoadMem(asm.R0, p.loc.reg, int16(p.loc.off+p.off), asmSize))
	case p.where == atContext && p.off%size == 0:
		e.add(asm.LoadMem(asm.R0, asm.R6, int16(p.off), asmSize))
	default:
		// Tracepoint fields need not be aligned, and loads of the context must be.
		tmp := e.slot()
		e.copyPlace(p, size, tmp)
		e.add(asm.LoadMem(asm.R0, tmp.reg, int16(tmp.off), asmSize))
	}
	if m := p.member; m != nil {
		e.add(asm.LSh.Imm(asm.R0, int32(64-m.bitStart-m.bits)))
		if t.Signed {
			e.add(asm.ArSh.Imm(asm.R0, int32(64-m.bits)))
		} else {
			e.add(asm.RSh.Imm(asm.R0, int32(64-m.bits)))
		}
		return
	}
	if t.Signed && size < 8 {
		e.extend(&Type{Kind: Number, Size: size, Signed: true})
	}
}

// tpField is the field of a tracepoint that args.x names.
func (e *emitter) tpField(x *Field) *tpField {
	if id, ok := x.X.(*Ident); !ok || id.Name != "args" || e.target.Kind != Tracepoint {
		return nil
	}
	for i := range e.target.format {
		if f := &e.target.format[i]; f.name == x.Name {
			return f
		}
	}
	return nil
}

// argument emits args.x where it is no place: a string behind the fields of a
// tracepoint, or a function's argument.
func (e *emitter) argument(x *Field) bool {
	id, ok := x.X.(*Ident)
	if !ok || id.Name != "args" {
		return false
	}
	if f := e.tpField(x); f != nil {
		if !f.dataLoc {
			return false
		}
		p := spot{where: atContext, off: f.off}
		e.loadPlace(p, typeU32)
		e.add(asm.And.Imm(asm.R0, 0xffff), asm.Add.Reg(asm.R0, asm.R6))
		return true
	}
	proto := e.target.proto
	if x.Name == "retval" && e.target.Kind.returns() {
		e.returned(x.typ())
		return true
	}
	for i, p := range proto.Params {
		if p.Name == x.Name {
			e.arg(i, x.typ())
			return true
		}
	}
	return false
}

// arg leaves argument i in R0.
func (e *emitter) arg(i int, t *Type) {
	if e.target.usdt != nil {
		e.usdtArg(i)
		return
	}
	switch e.target.Way {
	case Kprobe, Uprobe:
		e.add(asm.LoadMem(asm.R0, asm.R6, argRegs[i], asm.DWord))
		e.extend(t)
	default:
		e.word(8*i, t)
	}
}

// word leaves a word of the context of a fentry, fexit or raw tracepoint program
// in R0. To the verifier a pointer there has a type, and arithmetic on it may be
// refused; read as memory it is a number.
func (e *emitter) word(off int, t *Type) {
	number := t.Kind == Number && t.Size < 8
	if p := e.target.proto; e.target.Way == RawTracepoint || number && p != nil {
		e.add(asm.LoadMem(asm.R0, asm.R6, int16(off), asm.DWord))
		e.extend(t)
		return
	}
	tmp := e.slot()
	e.add(asm.Mov.Reg(asm.R3, asm.R6), asm.Add.Imm(asm.R3, int32(off)))
	e.readTo(tmp, 8, InKernel)
	e.load(asm.R0, tmp)
	e.extend(t)
}

// returned leaves the returned value in R0.
func (e *emitter) returned(t *Type) {
	switch e.target.Way {
	case Kretprobe, Uretprobe:
		e.add(asm.LoadMem(asm.R0, asm.R6, retReg, asm.DWord))
		e.extend(t)
	default:
		e.word(8*len(e.target.proto.Params), t)
	}
}
