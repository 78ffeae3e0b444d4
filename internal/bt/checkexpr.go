// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"seine/internal/row"
)

// maxTuple bounds tuples, which can be made of tuples without end.
const maxTuple = 8192

// expr gives the type of an expression.
func (c *checker) expr(e Expr) *Type {
	c.step()
	t := c.typeOf(e)
	e.setType(t)
	return t
}

func (c *checker) typeOf(e Expr) *Type {
	switch e := e.(type) {
	case *Int:
		if e.Bool {
			return typeBool
		}
		return &Type{Kind: Number, Size: 8, Signed: !e.U64, Lit: true, Space: c.home()}
	case *Str:
		return stringOf(len(e.V) + 1)
	case *Param:
		if e.Str {
			return stringOf(c.set.strLen)
		}
		v, ok := c.param(e)
		if !ok {
			return stringOf(len(c.params[e.N-1]) + 1)
		}
		e.val = &v
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: true}
	case *Ident:
		return c.ident(e)
	case *Var:
		c.mention(e)
		t := c.vars[e.Name]
		if t == nil && c.spoiled[e.Name] {
			panic(follows{})
		}
		if t == nil {
			near := row.Nearest(e.Name, slices.Sorted(maps.Keys(c.vars)))
			if near != "" {
				near = ": did you mean " + near + "?"
			}
			c.failAt(e, "%s has no value here%s", e.Name, near)
		}
		return t
	case *MapRef:
		return c.readMap(e)
	case *Call:
		return c.call(e, false)
	case *Unary:
		return c.unary(e)
	case *IncDec:
		return c.incDec(e)
	case *Binary:
		return c.binary(e)
	case *Ternary:
		c.condition(e.C)
		a, b := c.value(e.X), c.value(e.Y)
		t, ok := c.unify(a, b)
		if !ok {
			c.failAt(e, "type conflict: one side is %s, the other %s", a, b)
		}
		return t
	case *Cast:
		return c.cast(e)
	case *Field:
		return c.field(e)
	case *Index:
		return c.index(e)
	case *Tuple:
		t := &Type{Kind: Combo, Names: e.Names}
		for _, x := range e.Elems {
			v := c.value(x)
			if v.Kind == Number {
				v = &Type{Kind: Number, Size: 8, Signed: v.Signed || v.Size < 8, Bool: v.Bool, Enum: v.Enum}
			}
			t.Elems = append(t.Elems, v)
			if t.store() > maxTuple {
				c.failAt(e, "this tuple has more than %d bytes", maxTuple)
			}
		}
		return t
	case *BlockExpr:
		c.stmts(e.Body)
		if e.X == nil {
			c.failAt(e, "this block has no value: its last expression has none without a semicolon")
		}
		return c.value(e.X)
	case *TypeExpr:
		c.failAt(e, "a type is not a value")
	case *Sizeof:
		if e.Of != nil {
			e.X = nil
			t := c.resolve(e.Of)
			if t.Size == 0 {
				c.failAt(e, "the size of %s is not known", t)
			}
			v := int64(t.Size)
			e.val = &v
		} else {
			v := int64(c.expr(e.X).sizeof())
			e.val = &v
		}
		return &Type{Kind: Number, Size: 8, Lit: true}
	case *Offsetof:
		v := int64(c.offset(e))
		e.val = &v
		return &Type{Kind: Number, Size: 8, Lit: true}
	}
	panic(fmt.Sprintf("bt: no type for %T", e))
}

func (c *checker) offset(e *Offsetof) int {
	t := c.resolve(&e.Of)
	if t.Kind == Pointer && e.Of.Of != nil { // offsetof($p, field)
		t = t.Elem()
	}
	off := 0
	for name := range strings.SplitSeq(e.Field, ".") {
		if t.Kind != Record {
			c.failAt(e, "%s has no fields", t)
		}
		m := t.Rec.field(name, InKernel)
		if m == nil {
			c.failAt(e, "%s has no field %s%s", t, name, didYouMean(name, t.Rec.names()))
		}
		off, t = off+m.off, m.t
	}
	return off
}

func didYouMean(name string, names []string) string {
	if near := row.Nearest(name, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

func (c *checker) unary(e *Unary) *Type {
	t := c.expr(e.X)
	switch e.Op {
	case "*":
		switch t.Kind {
		case Pointer:
			if el := t.Elem(); el.Kind != None {
				return el
			}
			c.failAt(e, "a void * cannot be followed: cast it first")
		case Number:
			return &Type{Kind: Number, Size: 8, Space: t.Space}
		}
		c.failAt(e, "%s is not a pointer", t)
	case "&":
		switch m := e.X.(type) {
		case *Field, *Index, *Unary:
			return pointerTo(t, t.Space)
		case *Var:
			return pointerTo(t, InKernel)
		case *MapRef:
			if d := c.maps[m.Name]; d != nil && d.value != nil && !d.value.aggregate() {
				return pointerTo(d.value, InKernel)
			}
			if !c.final {
				return unknown
			}
		}
		c.failAt(e, "this has no address: a field, a $variable or the value of a @map has one")
	case "!":
		if !t.word() {
			c.failAt(e, "! needs a number, not %s", t)
		}
		return typeBool
	}
	if !t.number() {
		c.failAt(e, "%s needs a number, not %s", e.Op, t)
	}
	if e.Op == "-" {
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: t.Lit}
	}
	return &Type{Kind: Number, Size: 8, Signed: !unsigned64(t), Lit: t.Lit}
}

func (c *checker) incDec(e *IncDec) *Type {
	if m, ok := e.X.(*MapRef); ok {
		d := c.mapKeys(m)
		if d.value == nil || d.value.Bool {
			c.setMap(m, d, typeS64)
		}
		if !d.value.number() {
			c.failAt(e, "type conflict: %s is %s since %s, and takes no %s", m.Name, d.value, c.at(d.valuePos), e.Op)
		}
		m.setType(d.value)
		return d.value
	}
	t := c.expr(e.X)
	if !t.number() {
		c.failAt(e, "%s needs a number, not %s", e.Op, t)
	}
	return t
}

// unsigned64 says whether a value makes arithmetic with it unsigned: as in C on
// 64 bits, where every narrower type fits the signed one.
func unsigned64(t *Type) bool {
	return t.Kind == Pointer || t.Kind == Number && t.Size == 8 && !t.Signed && !t.Lit
}

func (c *checker) binary(e *Binary) *Type {
	a, b := c.expr(e.X), c.expr(e.Y)
	switch e.Op {
	case "&&", "||":
		for _, x := range []Expr{e.X, e.Y} {
			if t := x.typ(); !t.word() {
				c.failAt(x, "%s needs a number, not %s", e.Op, t)
			}
		}
		return typeBool
	case "==", "!=":
		if stringish(a) && stringish(b) {
			return typeBool
		}
		if (a.Kind == Inet || a.Kind == Array || a.Kind == Mac) && a.Kind == b.Kind && a.store() == b.store() {
			return typeBool
		}
		if _, ok := unify(a, b); ok && a.Kind == Combo && b.Kind == Combo {
			return typeBool
		}
	}
	ok := func(t *Type) bool { return t.number() || t.Kind == KSym || t.Kind == Cgroup || t.Kind == User }
	if !ok(a) || !ok(b) {
		if stringish(a) != stringish(b) {
			c.failAt(e, "type conflict: %s compares %s with %s", e.Op, a, b)
		}
		c.failAt(e, "%s needs numbers, not %s and %s", e.Op, a, b)
	}
	switch e.Op {
	case "==", "!=", "<", ">", "<=", ">=":
		return typeBool
	case "+", "-":
		if a.Kind == Pointer && b.Kind == Number {
			return a
		}
		if e.Op == "+" && b.Kind == Pointer && a.Kind == Number {
			return b
		}
	}
	return &Type{Kind: Number, Size: 8, Signed: signedOp(a, b), Lit: a.Lit && b.Lit, Space: max(a.Space, b.Space)}
}

// signedOp says whether an operation on two numbers is a signed one.
func signedOp(a, b *Type) bool {
	if a.Lit && b.Lit {
		return a.Signed && b.Signed
	}
	return !unsigned64(a) && !unsigned64(b) && !(a.Lit && !a.Signed) && !(b.Lit && !b.Signed)
}

func stringish(t *Type) bool { return t.Kind == String || t.charArray() }

func (c *checker) cast(e *Cast) *Type {
	t := c.expr(e.X)
	to := c.resolve(&e.To)
	switch to.Kind {
	case Number:
		if !t.word() && !(t.Kind == Array && t.Size <= 8) && !(to.Bool && t.Kind == String) {
			c.failAt(e, "%s cannot be cast to %s", t, to)
		}
		if to.Size < 1 {
			c.failAt(e, "%s cannot be cast to", to)
		}
		n := *to
		n.Space = t.Space
		return &n
	case Pointer:
		if !t.number() && t.Kind != Array && t.Kind != Record {
			c.failAt(e, "%s cannot be cast to a pointer", t)
		}
		p := *to
		p.Space = t.Space
		return &p
	case Array:
		if el := to.Elem(); to.Len == 0 && el.Size > 0 && t.Size%el.Size == 0 && (t.Kind == Number || t.Kind == Array) {
			return arrayOf(el, t.Size/el.Size) // (uint8[])x has as many as x
		}
		if t.Kind == Number || t.Kind == Array {
			return to
		}
	case Record:
		if t.Kind == Record {
			return t
		}
	case String:
		if stringish(t) {
			return t
		}
	}
	c.failAt(e, "%s cannot be cast to %s", t, to)
	return nil
}

func (c *checker) field(e *Field) *Type {
	if id, ok := e.X.(*Ident); ok && id.Name == "args" {
		id.setType(typeVoid)
		return c.arg(e)
	}
	if call, ok := e.X.(*Call); ok && call.Name == "typeinfo" && len(call.Args) == 1 {
		return c.typeField(e, call)
	}
	t := c.expr(e.X)
	if t == unknown {
		return unknown
	}
	if t.Kind == Combo {
		n := t.element(e.Name)
		if n < 0 && t.Names != nil {
			c.failAt(e, "the record has no field %s%s", e.Name, orList(e.Name, t.Names))
		}
		if n < 0 {
			c.failAt(e, "the tuple has elements .0 to .%d", len(t.Elems)-1)
		}
		return t.Elems[n]
	}
	if t.Kind == Pointer {
		t = t.Elem()
	}
	if t.Kind != Record {
		if t.Kind == Number || t.Kind == None {
			c.failAt(e, "%s of a %s: cast it to a struct first, as ((struct sock *)x)->%s", e.Name, e.X.typ(), e.Name)
		}
		c.failAt(e, "%s has no fields", t)
	}
	rec := c.record(t)
	m := rec.field(e.Name, t.Space)
	if m == nil {
		pos, end := e.span()
		c.fail(max(pos, end-Pos(len(e.Name))), end, "%s has no field %s%s", t, e.Name, didYouMean(e.Name, rec.names()))
	}
	return m.t
}

func (c *checker) index(e *Index) *Type {
	t := c.expr(e.X)
	i := c.expr(e.I)
	if t == unknown {
		return unknown
	}
	switch t.Kind {
	case Array, Pointer:
	case Combo:
		n, ok := c.constant(e.I)
		if !ok || n < 0 || n >= int64(len(t.Elems)) {
			c.failAt(e.I, "the tuple has elements 0 to %d, and the index must be a constant", len(t.Elems)-1)
		}
		return t.Elems[n]
	case String:
		if n, ok := c.constant(e.I); !ok || n < 0 || n >= int64(t.Len) {
			c.failAt(e.I, "the string has bytes 0 to %d, and the index must be a constant", t.Len-1)
		}
		return &Type{Kind: Number, Size: 1, Signed: true, Char: true}
	default:
		c.failAt(e, "%s has no elements", t)
	}
	if !i.number() {
		c.failAt(e.I, "an index is a number, not %s", i)
	}
	el := t.Elem()
	if el.Kind == None {
		c.failAt(e, "a void * has no elements: cast it first")
	}
	if n, ok := c.constant(e.I); ok && t.Kind == Array && t.Len > 0 && (n < 0 || n >= int64(t.Len)) {
		c.failAt(e.I, "index %d is outside %s", n, t)
	}
	return el
}

// arg is args.name.
func (c *checker) arg(e *Field) *Type {
	t := c.target
	c.uses.types = true
	c.uses.fields = c.uses.fields || t.Group != "syscalls" || e.Name != "ret"
	pos, end := e.span()
	pos = max(pos, end-Pos(len(e.Name)))
	switch {
	case t.Kind == Tracepoint:
		var names []string
		for i := range t.format {
			if f := &t.format[i]; f.name == e.Name {
				return c.fieldType(t, f)
			} else {
				names = append(names, f.name)
			}
		}
		if len(names) == 0 {
			c.fail(pos, end, "%s has no arguments", t.Probe)
		}
		c.fail(pos, end, "%s has no argument %s%s", t.Probe, e.Name, orList(e.Name, names))
	case t.Way == Kretprobe:
		c.failAt(e, "a %s by kretprobe has no args: keep them at the entry in @map[tid]", t.Kind)
	case t.Kind.function() || t.Kind == RawTracepoint || t.Kind == Uprobe:
		proto, space := c.proto(e), InKernel
		if t.Kind == Uprobe {
			space = InUser
		}
		var names []string
		for i, p := range proto.Params {
			if p.Name == e.Name {
				if (t.Way == Kprobe || t.Way == Uprobe) && i >= len(argRegs) {
					c.failAt(e, "argument %s is on the stack, where a %s cannot find it", e.Name, t.Way)
				}
				if t.Kind == Uprobe && (t.Offset != 0 || slices.ContainsFunc(proto.Params[:i+1], func(p btf.FuncParam) bool { return !inRegister(p.Type) })) {
					c.failAt(e, "argument %s of %s is not where a probe finds it: that is only at the function's begin, and if it and those before it are integers or pointers", e.Name, t.Name)
				}
				return fromBTF(p.Type, space)
			}
			names = append(names, p.Name)
		}
		if len(names) > 0 && names[0] == "" {
			c.fail(pos, end, "the arguments of %s have no names: use arg0 to arg%d", t.Probe, len(names)-1)
		}
		if e.Name == "retval" && t.Kind.returns() {
			return fromBTF(proto.Return, InKernel)
		}
		c.fail(pos, end, "%s has no argument %s%s", t.Probe, e.Name, orList(e.Name, names))
	}
	c.failAt(e, "%s has no args", t.Kind)
	return nil
}

// orList is the nearest name, or all of them if there are few.
func orList(name string, names []string) string {
	if s := didYouMean(name, names); s != "" {
		return s
	}
	if len(names) > 0 && len(names) <= 12 {
		return " (there are " + strings.Join(names, ", ") + ")"
	}
	return ""
}

// proto is the prototype of the target, which must be known.
func (c *checker) proto(e Expr) *btf.FuncProto {
	if p := c.tryProto(); p != nil {
		return p
	}
	c.failAt(e, "%s: the types of its arguments are not known: %v", c.target.Probe, c.target.noType)
	return nil
}

func (c *checker) tryProto() *btf.FuncProto {
	t := c.target
	if t.proto == nil && t.noType == nil {
		if t.Kind == RawTracepoint {
			t.proto, t.noType = c.kernel.rawProto(t.Name)
		} else if t.Kind == Uprobe {
			t.proto, t.noType = c.kernel.user.proto(t.Path, t.Name)
		} else {
			t.proto, t.noType = c.kernel.proto(t.Name, t.Module)
			if t.noType != nil && t.Module == "" { // a module's, perhaps
				functions, _ := c.kernel.functions()
				module, _ := functions.module(t.Name)
				t.proto, t.noType = c.kernel.proto(t.Name, module)
			}
		}
	}
	return t.proto
}
