// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"math"

	"github.com/cilium/ebpf/asm"
)

// value puts the value of an expression at a place, as type t keeps it.
func (e *emitter) value(x Expr, t *Type, dst loc) {
	f := e.enter()
	defer e.leave(f)
	if t.word() {
		e.as(x, t)
		if t.Kind == Number && t.Size < 8 && !t.Lit {
			e.extend(t)
		}
		e.store(dst, asm.R0)
		return
	}
	e.memory(x, t, dst)
}

// as leaves a value in R0 as a type has it: func, beside ksym(), as an address.
func (e *emitter) as(x Expr, t *Type) {
	if t.Kind != KSym || x.typ().Kind != Name {
		e.scalar(x)
		return
	}
	addr := e.c.kernel.address(e.target.Name)
	if addr == 0 || !e.target.Kind.function() {
		e.fail(x, "%s has no address: it cannot be beside ksym()", e.target.Probe)
	}
	e.add(asm.LoadImm(asm.R0, int64(addr), asm.DWord))
}

// condition goes on if x holds, else at no.
func (e *emitter) condition(x Expr, no string) {
	f := e.enter()
	defer e.leave(f)
	switch x := x.(type) {
	case *Unary:
		if x.Op == "!" {
			yes := e.label("not")
			e.condition(x.X, yes)
			e.add(asm.Ja.Label(no))
			e.here(yes)
			return
		}
	case *Binary:
		switch x.Op {
		case "&&":
			e.condition(x.X, no)
			e.condition(x.Y, no)
			return
		case "||":
			other, yes := e.label("or"), e.label("yes")
			e.condition(x.X, other)
			e.add(asm.Ja.Label(yes))
			e.here(other)
			e.condition(x.Y, no)
			e.here(yes)
			return
		}
		if jump, ok := inverse(x.Op, signedOp(x.X.typ(), x.Y.typ())); ok && !memoryCompare(x) {
			e.operands(x, func(v int32) { e.add(jump.Imm(asm.R0, v, no)) }, func() { e.add(jump.Reg(asm.R0, asm.R1, no)) })
			return
		}
	}
	if x.typ().Kind == String {
		l := e.place(x)
		e.loadPlace(l, typeU8)
	} else {
		e.scalar(x)
	}
	e.add(asm.JEq.Imm(asm.R0, 0, no))
}

func memoryCompare(x *Binary) bool { return !x.X.typ().word() }

// operands evaluates both sides: the left is in R0, the right in R1 or, if it is
// a small constant, given to imm.
func (e *emitter) operands(x *Binary, imm func(int32), reg func()) {
	f := e.enter()
	defer e.leave(f)
	if v, ok := e.known(x.Y); ok && v >= math.MinInt32 && v <= math.MaxInt32 {
		e.scalar(x.X)
		imm(int32(v))
		return
	}
	left := e.slot()
	e.scalar(x.X)
	e.store(left, asm.R0)
	e.scalar(x.Y)
	e.add(asm.Mov.Reg(asm.R1, asm.R0))
	e.load(asm.R0, left)
	reg()
}

// known is the value of an expression that is a constant.
func (e *emitter) known(x Expr) (int64, bool) {
	if id, ok := x.(*Ident); ok {
		if _, is := builtins[id.Name]; is {
			return 0, false
		}
		if _, is := argIndex(id.Name); is {
			return 0, false
		}
		return e.c.named(id.Name)
	}
	switch x.(type) {
	case *Int, *Param, *Call, *Field, *Sizeof, *Offsetof:
		return e.c.constant(x)
	}
	return 0, false
}

// inverse is the jump that is taken when a comparison does not hold.
func inverse(op string, signed bool) (asm.JumpOp, bool) {
	switch op {
	case "==":
		return asm.JNE, true
	case "!=":
		return asm.JEq, true
	}
	if signed {
		switch op {
		case "<":
			return asm.JSGE, true
		case "<=":
			return asm.JSGT, true
		case ">":
			return asm.JSLE, true
		case ">=":
			return asm.JSLT, true
		}
		return 0, false
	}
	switch op {
	case "<":
		return asm.JGE, true
	case "<=":
		return asm.JGT, true
	case ">":
		return asm.JLE, true
	case ">=":
		return asm.JLT, true
	}
	return 0, false
}

// truth leaves 1 in R0 if x holds, else 0.
func (e *emitter) truth(x Expr) {
	no, end := e.label("false"), e.label("truth")
	e.condition(x, no)
	e.add(asm.Mov.Imm(asm.R0, 1), asm.Ja.Label(end))
	e.here(no)
	e.add(asm.Mov.Imm(asm.R0, 0))
	e.here(end)
}

// scalar leaves a value that fits a register in R0, widened to 64 bits.
func (e *emitter) scalar(x Expr) {
	f := e.enter()
	defer e.leave(f)
	if v, ok := e.known(x); ok {
		e.add(e.imm(v))
		return
	}
	switch x := x.(type) {
	case *Ident:
		e.builtin(x)
	case *Var:
		e.load(asm.R0, e.vars[x.Name])
	case *MapRef:
		e.readMap(x)
	case *Call:
		e.callValue(x)
	case *Unary:
		e.unary(x)
	case *IncDec:
		e.incDec(x)
	case *Binary:
		e.binary(x)
	case *Ternary:
		no, end := e.label("else"), e.label("end")
		e.condition(x.C, no)
		e.as(x.X, x.typ())
		e.add(asm.Ja.Label(end))
		e.here(no)
		e.as(x.Y, x.typ())
		e.here(end)
	case *BlockExpr:
		e.stmts(x.Body)
		e.as(x.X, x.typ())
	case *Cast:
		e.cast(x)
	case *Field, *Index:
		e.loadField(x)
	default:
		e.fail(x, "this is not a number")
	}
}

// loadField reads a field or element, or gives its address if it is an array.
func (e *emitter) loadField(x Expr) {
	if f, ok := x.(*Field); ok && e.argument(f) {
		return
	}
	p := e.place(x)
	e.loadPlace(p, x.typ())
}

func (e *emitter) unary(x *Unary) {
	switch x.Op {
	case "*":
		e.loadPlace(e.place(x), x.typ())
	case "&":
		if m, ok := x.X.(*MapRef); ok {
			d := e.c.maps[m.Name]
			e.lookup(d.name, e.key(d, m))
			return
		}
		e.placeAddress(e.place(x.X))
	case "!":
		e.truth(x)
	case "-":
		e.scalar(x.X)
		e.add(asm.Neg.Imm(asm.R0, 0))
	case "~":
		e.scalar(x.X)
		e.add(asm.Xor.Imm(asm.R0, -1))
	}
}

func (e *emitter) incDec(x *IncDec) {
	step := int32(e.stride(x.X.typ()))
	if x.Op == "--" {
		step = -step
	}
	if m, ok := x.X.(*MapRef); ok {
		d := e.c.maps[m.Name]
		key := e.key(d, m)
		old := e.slot()
		e.zero(old, 8)
		done := e.label("inc")
		e.ensure(d, key, done)
		e.add(asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord))
		e.store(old, asm.R1)
		e.add(asm.Mov.Imm(asm.R1, step), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord))
		e.here(done)
		e.load(asm.R0, old)
		if x.Prefix {
			e.add(asm.Add.Imm(asm.R0, step))
		}
	} else {
		l, t := e.vars[x.X.(*Var).Name], x.X.typ()
		e.load(asm.R0, l)
		e.add(asm.Add.Imm(asm.R0, step))
		e.extend(t)
		e.store(l, asm.R0)
		if !x.Prefix {
			e.add(asm.Sub.Imm(asm.R0, step))
			e.extend(t)
		}
	}
}

// stride is what 1 added to a value of the type adds.
func (e *emitter) stride(t *Type) int {
	if t.Kind == Pointer {
		return max(1, t.Elem().Size)
	}
	return 1
}

// strides makes bytes of the number in R0 that is added to a pointer.
func (e *emitter) strides(op string, t *Type) {
	if n := e.stride(t); n > 1 && (op == "+" || op == "-") {
		e.add(asm.Mul.Imm(asm.R0, int32(n)))
	}
}

func (e *emitter) binary(x *Binary) {
	switch x.Op {
	case "&&", "||", "<", "<=", ">", ">=":
		e.truth(x)
		return
	case "==", "!=":
		if memoryCompare(x) {
			e.compare(x.X, x.Y, -1)
			if x.Op == "==" {
				e.add(asm.Xor.Imm(asm.R0, 1))
			}
			return
		}
		e.truth(x)
		return
	}
	if t := x.typ(); t.Kind == Pointer { // counts elements, as in C
		if size := e.stride(t); size > 1 {
			e.pointerStep(x, size)
			return
		}
	}
	if signed := signedOp(x.X.typ(), x.Y.typ()); signed && (x.Op == "/" || x.Op == "%") {
		e.operands(x, func(v int32) { e.add(asm.Mov.Imm(asm.R1, v)); e.arithmetic(x.Op, true) }, func() { e.arithmetic(x.Op, true) })
		return
	}
	op := aluOp(x.Op, signedOp(x.X.typ(), x.Y.typ()) && !(x.Op == ">>" && unsigned64(x.X.typ())))
	e.operands(x, func(v int32) {
		switch x.Op {
		case "<<", ">>":
			e.add(op.Imm(asm.R0, v&63))
		case "/", "%":
			// The verifier refuses a division by a constant 0, and imm is signed.
			e.add(asm.Mov.Imm(asm.R1, v), op.Reg(asm.R0, asm.R1))
		default:
			e.add(op.Imm(asm.R0, v))
		}
	}, func() { e.add(op.Reg(asm.R0, asm.R1)) })
}

func (e *emitter) pointerStep(x *Binary, size int) {
	p, n := x.X, x.Y
	if p.typ().Kind != Pointer {
		p, n = n, p
	}
	at := e.slot()
	e.scalar(p)
	e.store(at, asm.R0)
	e.scalar(n)
	e.add(asm.Mul.Imm(asm.R0, int32(size)), asm.Mov.Reg(asm.R1, asm.R0))
	e.load(asm.R0, at)
	e.add(aluOp(x.Op, false).Reg(asm.R0, asm.R1))
}

func aluOp(op string, signed bool) asm.ALUOp {
	switch op {
	case "+":
		return asm.Add
	case "-":
		return asm.Sub
	case "*":
		return asm.Mul
	case "/":
		return asm.Div
	case "%":
		return asm.Mod
	case "&":
		return asm.And
	case "|":
		return asm.Or
	case "^":
		return asm.Xor
	case "<<":
		return asm.LSh
	}
	if signed {
		return asm.ArSh
	}
	return asm.RSh
}

// arithmetic is R0 = R0 op R1. BPF before version 4 divides unsigned numbers
// only: the signs are taken off and put back.
func (e *emitter) arithmetic(op string, signed bool) {
	if !signed || op != "/" && op != "%" {
		e.add(aluOp(op, signed).Reg(asm.R0, asm.R1))
		return
	}
	pos, pos2, end := e.label("pos"), e.label("pos"), e.label("div")
	e.add(asm.Mov.Reg(asm.R2, asm.R0))
	if op == "/" {
		e.add(asm.Xor.Reg(asm.R2, asm.R1)) // the sign of the quotient
	}
	e.add(asm.JSGE.Imm(asm.R0, 0, pos), asm.Neg.Imm(asm.R0, 0))
	e.here(pos)
	e.add(asm.JSGE.Imm(asm.R1, 0, pos2), asm.Neg.Imm(asm.R1, 0))
	e.here(pos2)
	e.add(aluOp(op, false).Reg(asm.R0, asm.R1), asm.JSGE.Imm(asm.R2, 0, end), asm.Neg.Imm(asm.R0, 0))
	e.here(end)
}

// extend widens the low bytes of R0 by the type's sign.
func (e *emitter) extend(t *Type) {
	if t.Kind != Number || t.Size >= 8 || t.Size <= 0 {
		return
	}
	shift := int32(64 - 8*t.Size)
	e.add(asm.LSh.Imm(asm.R0, shift))
	if t.Signed {
		e.add(asm.ArSh.Imm(asm.R0, shift))
	} else {
		e.add(asm.RSh.Imm(asm.R0, shift))
	}
}

func (e *emitter) cast(x *Cast) {
	from := x.X.typ()
	switch {
	case x.typ().Bool && from.Kind != Array:
		e.truth(x.X)
		return
	case from.Kind == Array && x.typ().Kind == Number:
		e.loadPlace(e.place(x.X), &Type{Kind: Number, Size: min(8, from.Size)})
	case from.Kind == Array || from.Kind == Record: // its address
		e.placeAddress(e.place(x.X))
	default:
		e.scalar(x.X)
	}
	e.extend(x.typ())
}

// readMap leaves the value of a map in R0, 0 if it is not there.
func (e *emitter) readMap(m *MapRef) {
	d := e.c.maps[m.Name]
	key := e.key(d, m)
	e.lookup(d.name, key)
	none := e.label("none")
	e.add(asm.JEq.Imm(asm.R0, 0, none))
	e.loadValue(d)
	e.here(none)
}

// loadValue loads the number that R0 points to in a map.
func (e *emitter) loadValue(d *mapDef) {
	if d.value.Kind == AvgOf {
		e.add(
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.LoadMem(asm.R0, asm.R2, 0, asm.DWord), asm.LoadMem(asm.R1, asm.R2, 8, asm.DWord),
		)
		e.arithmetic("/", d.value.Signed)
	} else {
		e.add(asm.LoadMem(asm.R0, asm.R0, 0, asm.DWord))
	}
}
