// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// typeFields are the fields of what typeinfo() gives, in their order.
var typeFields = []string{"btf_id", "base_ty", "full_ty"}

// typeInfo is typeinfo(x) or typeinfo(type): a record of constants.
func (c *checker) typeInfo(e *Call) *Type {
	var t *Type
	if of, ok := e.Args[0].(*TypeExpr); ok {
		t = c.resolve(&of.Of)
		of.setType(typeVoid)
	} else {
		t = c.value(e.Args[0])
	}
	if t == unknown {
		return unknown
	}
	at := node{pos: e.pos, end: e.end}
	e.as = &Tuple{node: at, Names: typeFields, Elems: []Expr{&Int{node: at, V: c.btfID(t)}, &Str{at, baseType(t)}, &Str{at, t.String()}}}
	return c.expr(e.as)
}

// typeField is typeinfo(x).base_ty and its like, which is a constant.
func (c *checker) typeField(e *Field, call *Call) *Type {
	if c.expr(call) == unknown {
		return unknown
	}
	i := slices.Index(typeFields, e.Name)
	if n, err := strconv.Atoi(e.Name); err == nil && n < len(typeFields) {
		i = n
	}
	if i < 0 {
		c.failAt(e, "typeinfo() has .btf_id, .base_ty and .full_ty, not .%s", e.Name)
	}
	switch x := call.as.Elems[i].(type) {
	case *Int:
		e.val = &x.V
	case *Str:
		e.text = &x.V
	}
	return call.as.Elems[i].typ()
}

// btfID is the number of a type among those of the kernel, 0 if it is not one of them.
func (c *checker) btfID(t *Type) int64 {
	for t.Kind == Pointer {
		t = t.Elem()
	}
	if t.Kind != Record && t.Kind != Number {
		return 0
	}
	tag, name, isTag := strings.Cut(t.String(), " ")
	if !isTag {
		tag, name = "", tag
	}
	if c.script.structs[tag+" "+name] != nil {
		return 0
	}
	spec, err := c.kernel.types()
	if err != nil {
		return 0
	}
	found := lookupType(spec, &TypeName{Tag: tag, Name: name})
	if found == nil {
		return 0
	}
	id, err := spec.TypeID(found)
	if err != nil {
		return 0
	}
	return int64(id)
}

// baseType is bpftrace's word for a kind of types.
func baseType(t *Type) string {
	switch {
	case t.Bool:
		return "bool"
	case t.Kind == Number:
		return "int"
	case t.Kind == Pointer:
		return "pointer"
	case t.Kind == Array:
		return "array"
	case t.Kind == Record:
		return "c_struct"
	case t.Kind == Combo && t.Names != nil:
		return "record"
	case t.Kind == Combo:
		return "tuple"
	}
	return t.String()
}

// knownText is the text of a constant string.
func knownText(e Expr) (string, bool) {
	switch e := e.(type) {
	case *Str:
		return e.V, true
	case *Call:
		if e.as != nil && e.Name == "typeinfo" {
			return e.as.Elems[2].(*Str).V, true // the name of the type stands for all that is known of it
		}
	case *Field:
		if e.text != nil {
			return *e.text, true
		}
	}
	return "", false
}

// kfuncAllowed asks the verifier whether programs of this kind may call a function of the
// kernel: it says so before it looks at the arguments.
func (k *kernel) kfuncAllowed(name string, way ProbeKind) bool {
	spec, err := k.types()
	var fn *btf.Func
	if err != nil || spec.TypeByName(name, &fn) != nil {
		return false
	}
	id, err := spec.TypeID(fn)
	if err != nil {
		return false
	}
	call := asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: int64(id)}
	try := programSpec(way, "bpf_fentry_test1", false)
	try.License, try.Instructions = "GPL", asm.Instructions{call, asm.Mov.Imm(asm.R0, 0), asm.Return()}
	if way == Iter {
		try.AttachTo = "task"
	}
	prog, err := ebpf.NewProgram(try)
	if err == nil {
		prog.Close()
		return true
	}
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) {
		return false
	}
	log := strings.Join(refused.Log, "\n")
	for _, never := range []string{"is not allowed", "not a function", "not a kernel function", "is not supported", "not found", "uses reserved fields" /* before 5.13 */} {
		if strings.Contains(log, never) {
			return false
		}
	}
	return log != ""
}
