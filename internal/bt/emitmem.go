// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf/asm"
)

// memory writes a value that does not fit a register: all t.store() bytes of it.
func (e *emitter) memory(x Expr, t *Type, dst loc) {
	f := e.enter()
	defer e.leave(f)
	switch x.(type) {
	case *Var, *MapRef, *Field:
		if from := x.typ(); t.Kind == Combo && !from.laidOut(t) { // elements have more room there, or another place
			pos, end := x.span()
			for i, el := range t.Elems {
				name := t.field(i)
				e.value(&Field{node: node{pos: pos, end: end, t: from.Elems[from.element(name)]}, X: x, Name: name}, el, dst)
				dst = dst.at(el.store())
			}
			return
		}
	}
	switch x := x.(type) {
	case *Str:
		e.literal(x.V, t.store(), dst)
		return
	case *Param:
		s := ""
		if x.N > 0 && x.N <= len(e.c.params) {
			s = e.c.params[x.N-1]
		}
		e.literal(s, t.store(), dst)
		return
	case *Var:
		e.pad(x.typ(), t, dst)
		e.copy(dst, e.vars[x.Name], min(x.typ().store(), t.store()))
		return
	case *MapRef:
		e.copyMap(x, t, dst)
		return
	case *Ternary:
		no, end := e.label("else"), e.label("end")
		e.condition(x.C, no)
		e.memory(x.X, t, dst)
		e.add(asm.Ja.Label(end))
		e.here(no)
		e.memory(x.Y, t, dst)
		e.here(end)
		return
	case *BlockExpr:
		e.stmts(x.Body)
		e.memory(x.X, t, dst)
		return
	case *Tuple:
		from := x.typ()
		for i, el := range x.Elems {
			at := dst
			n := t.element(from.field(i))
			for _, before := range t.Elems[:n] {
				at = at.at(before.store())
			}
			e.value(el, t.Elems[n], at)
		}
		return
	case *Cast:
		if t.Kind == Array && x.X.typ().Kind == Number {
			e.scalar(x.X)
			e.zero(dst, t.store())
			e.store(dst, asm.R0)
			return
		}
		if x.X.typ().Kind == t.Kind {
			e.memory(x.X, t, dst)
			return
		}
	case *Call:
		if x.Name == "typeinfo" {
			e.memory(x.as, t, dst)
			return
		}
		e.callMemory(x, t, dst)
		return
	case *Ident:
		switch x.Name {
		case "comm":
			e.zero(dst, t.store())
			e.address(asm.R1, dst)
			e.add(asm.Mov.Imm(asm.R2, 16), asm.FnGetCurrentComm.Call())
			return
		case "args":
			e.memory(e.c.whole[x], t, dst)
			return
		case "probetype":
			name := e.target.Kind.String()
			if e.target.Kind == Begin || e.target.Kind == End {
				name = "special"
			}
			e.literal(name, t.store(), dst)
			return
		case "ustack":
			e.userStack(x.typ(), dst)
			return
		}
	case *Field, *Index, *Unary:
		if text, ok := knownText(x); ok {
			e.literal(text, t.store(), dst)
			return
		}
		p := e.place(x)
		from := x.typ()
		if t.Kind == String && from.Kind != String {
			e.stringFrom(p, from.Size, t.store(), dst)
			return
		}
		e.zero(dst, t.store())
		n := min(from.store(), t.store())
		if from.Kind == Record || from.Kind == Array {
			n = min(from.Size, n)
		}
		if p.where == atAddress {
			// zero() left R0 alone.
			e.placeAddress(p)
			e.add(asm.Mov.Reg(asm.R3, asm.R0))
			e.readTo(dst, n, p.space)
			return
		}
		e.copyPlace(p, n, dst)
		return
	}
	e.fail(x, "this value cannot be kept")
}

// pad zeroes what of dst a shorter value does not fill.
func (e *emitter) pad(from, to *Type, dst loc) {
	if n := from.store(); n < to.store() {
		e.zero(dst.at(n), to.store()-n)
	}
}

// literal writes a string, padded with zeroes.
func (e *emitter) literal(s string, n int, dst loc) {
	if len(s) >= n {
		s = s[:n-1]
	}
	b := make([]byte, n)
	copy(b, s)
	for i := 0; i < n; i += 8 {
		v := int64(binary.LittleEndian.Uint64(b[i:]))
		if v == 0 {
			e.zero(dst.at(i), 8)
			continue
		}
		e.add(e.imm(v))
		e.store(dst.at(i), asm.R0)
	}
}

// copyMap writes the value of a map, zeroes if it is not there.
func (e *emitter) copyMap(m *MapRef, t *Type, dst loc) {
	d := e.c.maps[m.Name]
	e.zero(dst, t.store())
	key := e.key(d, m)
	e.lookup(d.name, key)
	none := e.label("none")
	e.add(asm.JEq.Imm(asm.R0, 0, none))
	e.copyFrom(min(d.value.store(), t.store()), dst)
	e.here(none)
}

// copyFrom copies n bytes of a map, which R0 points to.
func (e *emitter) copyFrom(n int, dst loc) {
	if n > 128 {
		e.add(asm.Mov.Reg(asm.R3, asm.R0))
		e.readTo(dst, n, InKernel)
		return
	}
	for i := 0; i < n; i += 8 {
		e.add(asm.LoadMem(asm.R1, asm.R0, int16(i), asm.DWord))
		e.store(dst.at(i), asm.R1)
	}
}

// stringFrom reads a string of at most n bytes from a place. It need not end
// with a zero: one is added if there is room for it.
func (e *emitter) stringFrom(p spot, n, room int, dst loc) {
	e.placeAddress(p)
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.zero(dst, room)
	e.readStringTo(dst, min(n+1, room), p.space)
}

func (e *emitter) userStack(t *Type, dst loc) {
	e.stackHash(t)
	e.store(dst, asm.R0)
	if t.Format == buildIDs { // alike in all processes
		e.zero(dst.at(8), 8)
		return
	}
	e.add(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
	e.seen()
	e.store(dst.at(8), asm.R0)
}

func (e *emitter) callMemory(x *Call, t *Type, dst loc) {
	switch x.Name {
	case "str":
		e.str(x, t, dst)
	case "buf":
		e.buf(x, t, dst)
	case "ntop":
		e.ntop(x, dst)
	case "pton":
		addr, _ := netip.ParseAddr(x.Args[0].(*Str).V)
		b := addr.AsSlice()
		b = append(b, make([]byte, round8(len(b))-len(b))...)
		for i := 0; i < len(b); i += 8 {
			e.add(asm.LoadImm(asm.R0, int64(binary.LittleEndian.Uint64(b[i:])), asm.DWord))
			e.store(dst.at(i), asm.R0)
		}
	case "path":
		e.path(x, dst)
	case "ustack":
		e.userStack(x.typ(), dst)
	case "usym":
		e.scalar(x.Args[0])
		e.store(dst, asm.R0)
		e.add(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
		e.seen()
		e.store(dst.at(8), asm.R0)
	case "macaddr":
		e.zero(dst, 8)
		if a := x.Args[0]; a.typ().Kind == Array {
			p := e.place(a)
			e.placeAddress(p)
			e.add(asm.Mov.Reg(asm.R3, asm.R0))
			e.readTo(dst, 6, p.space)
		} else {
			e.scalar(a)
			e.add(asm.Mov.Reg(asm.R3, asm.R0))
			e.readTo(dst, 6, a.typ().Space)
		}
	default:
		e.fail(x, "%s() cannot be kept", x.Name)
	}
}

func (e *emitter) str(x *Call, t *Type, dst loc) {
	a := x.Args[0]
	if p, ok := a.(*Param); ok {
		e.memory(p, t, dst)
		return
	}
	at := a.typ()
	room := t.store()
	if at.Kind == String {
		e.memory(a, t, dst)
		return
	}
	if (at.Kind == Array || at.Kind == Record) && len(x.Args) == 1 {
		p := e.place(a)
		n := room
		if at.Size > 0 {
			n = at.Size
		}
		e.stringFrom(p, n, room, dst)
		return
	}
	limit := min(x.typ().Len, room)
	if len(x.Args) == 1 {
		limit = min(limit, e.c.set.strLen) // the room is whole words
	} else {
		if v, ok := e.c.constant(x.Args[1]); ok {
			limit = min(int(v)+1, room)
		} else {
			e.strN(x, limit, room, dst)
			return
		}
	}
	from := e.slot()
	e.scalar(a)
	e.store(from, asm.R0)
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.zero(dst, room)
	e.address(asm.R1, dst)
	e.add(asm.Mov.Imm(asm.R2, int32(limit)))
	e.readStr(at.Space)
	if len(x.Args) == 1 {
		e.markCut(from, limit, dst.at(room-1), at.Space)
	}
}

// markCut makes the last byte of a string that was cut not zero: it is the first byte that was
// left out. R0 is the return value of the helper that read the string.
func (e *emitter) markCut(from loc, limit int, last loc, space Space) {
	whole := e.label("whole")
	e.add(asm.JNE.Imm(asm.R0, int32(limit), whole))
	e.load(asm.R3, from)
	e.add(asm.Add.Imm(asm.R3, int32(limit-1)))
	e.address(asm.R1, last)
	e.add(asm.Mov.Imm(asm.R2, 1))
	if space != InUser {
		user := e.label("user")
		e.add(asm.JSGE.Imm(asm.R3, 0, user), asm.FnProbeReadKernel.Call(), asm.Ja.Label(whole))
		e.here(user)
	}
	e.add(asm.FnProbeReadUser.Call())
	e.here(whole)
}

// readStr calls the helper that reads a string. An argument of a kernel function may point to
// kernel or user memory, and only tags in the BTF could tell. On all machines that we run on, the
// upper half of the addresses is the kernel's.
func (e *emitter) readStr(space Space) {
	if space == InUser {
		e.read(asm.FnProbeReadUserStr)
		return
	}
	kernel, done := e.label("kernel"), e.label("read")
	e.add(asm.JSLT.Imm(asm.R3, 0, kernel))
	e.read(asm.FnProbeReadUserStr)
	e.add(asm.Ja.Label(done))
	e.here(kernel)
	e.read(asm.FnProbeReadKernelStr)
	e.here(done)
}

// strN is str(x, n) with an n that is known only when it runs.
func (e *emitter) strN(x *Call, limit, room int, dst loc) {
	n := e.slot()
	e.bounded(x.Args[1], limit-1)
	e.add(asm.Add.Imm(asm.R0, 1)) // the zero
	e.store(n, asm.R0)
	e.scalar(x.Args[0])
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.zero(dst, room)
	e.address(asm.R1, dst)
	e.load(asm.R2, n)
	e.readStr(x.Args[0].typ().Space)
}

// bounded leaves a number from 0 to most in R0.
func (e *emitter) bounded(x Expr, most int) {
	e.scalar(x)
	ok := e.label("bounded")
	e.add(asm.JLE.Imm(asm.R0, int32(most), ok), asm.Mov.Imm(asm.R0, int32(most)))
	e.here(ok)
}

func (e *emitter) buf(x *Call, t *Type, dst loc) {
	a := x.Args[0]
	n := e.slot()
	e.zero(dst, t.store())
	if len(x.Args) == 2 {
		e.bounded(x.Args[1], t.Len)
	} else {
		e.add(asm.Mov.Imm(asm.R0, int32(t.Len)))
	}
	e.store(n, asm.R0)
	e.store(dst, asm.R0)
	space := a.typ().Space
	if k := a.typ().Kind; k == Array || k == String {
		p := e.place(a)
		space = p.space
		e.placeAddress(p)
	} else {
		e.scalar(a)
	}
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.address(asm.R1, dst.at(8))
	e.load(asm.R2, n)
	fn := asm.FnProbeReadKernel
	if space == InUser {
		fn = asm.FnProbeReadUser
	}
	e.read(fn)
}

// ntop keeps the length of the address and its bytes.
func (e *emitter) ntop(x *Call, dst loc) {
	a := x.Args[len(x.Args)-1]
	t := a.typ()
	size := 4
	if t.Kind == Array || t.Kind == Record {
		size = t.Size
	}
	e.zero(dst, 24)
	if size == 4 {
		e.add(storeImm(dst.reg, dst.off, 4))
	} else if len(x.Args) == 2 {
		v4, end := e.label("v4"), e.label("af")
		e.scalar(x.Args[0])
		e.add(
			asm.JNE.Imm(asm.R0, 10, v4), // AF_INET6
			storeImm(dst.reg, dst.off, 16), asm.Ja.Label(end),
		)
		e.here(v4)
		e.add(storeImm(dst.reg, dst.off, 4))
		e.here(end)
	} else {
		e.add(storeImm(dst.reg, dst.off, 16))
	}
	if t.number() {
		e.scalar(a)
		e.add(asm.StoreMem(dst.reg, int16(dst.off+8), asm.R0, asm.Word))
		return
	}
	p := e.place(a)
	e.placeAddress(p)
	e.add(asm.Mov.Reg(asm.R3, asm.R0))
	e.readTo(dst.at(8), size, p.space)
}

// compare leaves 0 in R0 if the first n bytes of two values are alike (all of
// them for n < 0), else 1. Strings are padded with zeroes, so that words can be
// compared.
func (e *emitter) compare(x, y Expr, n int) {
	f := e.enter()
	defer e.leave(f)
	if _, ok := x.(*Str); ok {
		x, y = y, x
	}
	tx, ty := kept(x.typ()), kept(y.typ())
	if tx.Kind == Combo {
		tx, _ = unify(tx, ty)
		ty = tx
	}
	a := e.alloc(tx.store())
	e.value(x, tx, a)
	differ, end := e.label("differ"), e.label("compared")
	size := min(tx.store(), ty.store())
	s, literal := y.(*Str)
	var b loc
	if literal {
		size = min(tx.store(), len(s.V)+1)
		if len(s.V) >= tx.store() && (n < 0 || n > tx.store()) {
			e.add(asm.Mov.Imm(asm.R0, 1)) // longer than the other can be
			return
		}
	} else {
		b = e.alloc(ty.store())
		e.value(y, ty, b)
	}
	if n >= 0 {
		size = min(size, n)
	}
	for i := 0; i < size; i += 8 {
		mask := int64(-1)
		if size-i < 8 {
			mask = int64(uint64(1)<<(8*(size-i)) - 1)
		}
		e.load(asm.R1, a.at(i))
		if literal {
			word := make([]byte, 8)
			copy(word, s.V[min(i, len(s.V)):])
			e.add(asm.LoadImm(asm.R2, int64(binary.LittleEndian.Uint64(word))&mask, asm.DWord))
		} else {
			e.load(asm.R2, b.at(i))
		}
		if mask != -1 {
			e.add(asm.LoadImm(asm.R3, mask, asm.DWord), asm.And.Reg(asm.R1, asm.R3), asm.And.Reg(asm.R2, asm.R3))
		}
		e.add(asm.JNE.Reg(asm.R1, asm.R2, differ))
	}
	e.add(asm.Mov.Imm(asm.R0, 0), asm.Ja.Label(end))
	e.here(differ)
	e.add(asm.Mov.Imm(asm.R0, 1))
	e.here(end)
}
