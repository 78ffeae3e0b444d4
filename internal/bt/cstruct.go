// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// resolve makes a Type of a written one: of the script, of the table of
// integers, or of the kernel.
func (c *checker) resolve(n *TypeName) *Type { return c.resolveDepth(n, 0) }

func (c *checker) resolveDepth(n *TypeName, depth int) *Type {
	if depth > 16 {
		c.fail(n.pos, n.end, "type %s leads to itself", n.Name)
	}
	if n.Tag == "" && n.Name == "string" && n.Stars == 0 && len(n.Len) == 1 {
		return stringOf(min(max(n.Len[0], 1), 8192))
	}
	t := c.base(n, depth)
	for range n.Stars {
		t = pointerTo(t, InKernel)
	}
	for i := len(n.Len) - 1; i >= 0; i-- {
		t = arrayOf(t, n.Len[i])
	}
	return t
}

func (c *checker) base(n *TypeName, depth int) *Type {
	if n.Of != nil {
		return c.expr(n.Of)
	}
	if n.Tag == "" {
		if i, ok := intNames[n.Name]; ok {
			return &Type{Kind: Number, Size: i.size, Signed: i.signed, Bool: n.Name == "bool", Char: n.Name == "char"}
		}
		switch n.Name {
		case "void":
			return typeVoid
		case "string":
			return stringOf(c.set.strLen)
		case "inet":
			return &Type{Kind: Inet}
		}
		if td, ok := c.script.ctypes[n.Name]; ok {
			return c.resolveDepth(&td, depth+1)
		}
	}
	if s := c.script.structs[n.Tag+" "+n.Name]; s != nil {
		return c.layout(n.Tag+" "+n.Name, s, depth)
	}
	if e := c.script.enumTags[n.Name]; e != nil && n.Tag == "enum" {
		return &Type{Kind: Number, Size: 4, Signed: true, Enum: e}
	}
	spec, err := c.kernel.types()
	if err != nil {
		c.fail(n.pos, n.end, "type %s: %v", n.Name, err)
	}
	if found := lookupType(spec, n); found != nil {
		return fromBTF(found, InKernel)
	}
	// A type of a module.
	for _, m := range c.kernel.modules() {
		if spec, err := c.kernel.cache.Module(m); err == nil {
			if found := lookupType(spec, n); found != nil {
				return fromBTF(found, InKernel)
			}
		}
	}
	if n.Stars > 0 { // nothing is known of it: as in C, a pointer to it is fine
		return &Type{Kind: Record, Rec: &record{
			name: n.Tag + " " + n.Name, field: func(string, Space) *member { return nil }, names: func() []string { return nil },
		}}
	}
	what := n.Tag
	if what == "" {
		what = "type"
	}
	c.fail(n.pos, n.end, "unknown %s %s: this kernel's BTF has none", what, n.Name)
	return nil
}

func lookupType(spec *btf.Spec, n *TypeName) btf.Type {
	switch n.Tag {
	case "struct":
		var s *btf.Struct
		if spec.TypeByName(n.Name, &s) == nil {
			return s
		}
	case "union":
		var u *btf.Union
		if spec.TypeByName(n.Name, &u) == nil {
			return u
		}
	case "enum":
		var e *btf.Enum
		if spec.TypeByName(n.Name, &e) == nil {
			return e
		}
	default:
		var t *btf.Typedef
		if spec.TypeByName(n.Name, &t) == nil {
			return t
		}
		// (sock *) without the word struct.
		var s *btf.Struct
		if spec.TypeByName(n.Name, &s) == nil {
			return s
		}
	}
	return nil
}

// record is the fields of a struct: those of the script, if it has a struct of
// that name, whatever the kernel's has.
func (c *checker) record(t *Type) *record {
	if s := c.script.structs[t.Rec.name]; s != nil {
		return c.layout(t.Rec.name, s, 0).Rec
	}
	return t.Rec
}

// layout places the fields of a struct of the script by the rules of C.
func (c *checker) layout(name string, s *cstruct, depth int) *Type {
	if t := c.layouts[s]; t != nil {
		return t
	}
	if depth > 16 {
		c.fail(s.pos, s.end, "%s contains itself", name)
	}
	fields := map[string]*member{}
	var names []string
	at, align := 0, 1 // at is in bits
	size := 0
	for _, f := range s.fields {
		var t *Type
		if f.anon != nil {
			t = c.layout(name+"."+f.name, f.anon, depth+1)
			for range f.of.Stars {
				t = pointerTo(t, InKernel)
			}
		} else if f.of.Stars > 0 && f.of.Tag != "" {
			of, stars := f.of, f.of.Stars // a struct may point to itself
			of.Stars = 0
			t = &Type{Kind: Pointer, Size: 8, elem: func() *Type { return c.resolveDepth(&of, depth+1) }}
			for range stars - 1 {
				t = pointerTo(t, InKernel)
			}
		} else {
			t = c.resolveDepth(&f.of, depth+1)
		}
		for i := len(f.lens) - 1; i >= 0; i-- {
			t = arrayOf(t, f.lens[i])
		}
		a := alignOf(t)
		if s.packed {
			a = 1
		}
		align = max(align, a)
		m := &member{t: t}
		width := t.Size * 8
		if s.union {
			at = 0
		}
		switch {
		case f.bits == 0:
			at = (at + a*8 - 1) / (a * 8) * (a * 8)
			width = 0
		case f.bits > 0:
			width = f.bits
			unit := max(t.Size*8, 8)
			if !s.packed && at/unit != (at+width-1)/unit {
				at = (at + unit - 1) / unit * unit
			}
			m = place(t, btf.Bits(at), btf.Bits(width))
		default:
			at = (at + a*8 - 1) / (a * 8) * (a * 8)
			m.off = at / 8
		}
		switch {
		case f.name != "":
			fields[f.name] = m
			names = append(names, f.name)
		case f.anon != nil:
			for _, inner := range t.Rec.names() {
				if im := t.Rec.field(inner, InKernel); im != nil {
					moved := *im
					moved.off += m.off
					fields[inner] = &moved
					names = append(names, inner)
				}
			}
		}
		at += width
		size = max(size, (at+7)/8)
	}
	size = (size + align - 1) / align * align
	if size > 1<<16 {
		c.fail(s.pos, s.end, "%s is too large", name)
	}
	t := &Type{Kind: Record, Size: size}
	t.Rec = &record{
		name: name, size: size, names: func() []string { return names },
		field: func(f string, space Space) *member {
			m := fields[f]
			if m == nil {
				return nil
			}
			inSpace := *m
			ft := *m.t
			ft.Space = space
			inSpace.t = &ft
			return &inSpace
		},
	}
	c.layouts[s] = t
	return t
}

func alignOf(t *Type) int {
	switch t.Kind {
	case Number, Pointer:
		return max(1, t.Size)
	case Array:
		return alignOf(t.Elem())
	case Record:
		if t.Rec.align == 0 { // asked for once: structs are made of structs
			a := 1
			for _, n := range t.Rec.names() {
				if m := t.Rec.field(n, InKernel); m != nil {
					a = max(a, alignOf(m.t))
				}
			}
			t.Rec.align = min(a, 8)
		}
		return t.Rec.align
	}
	return 8
}

// describe is a type as C writes it, for -lv.
func describe(b btf.Type) string {
	switch v := b.(type) {
	case *btf.Pointer:
		return describe(v.Target) + " *"
	case *btf.Struct:
		return "struct " + v.Name
	case *btf.Union:
		return "union " + v.Name
	case *btf.Enum:
		return "enum " + v.Name
	case *btf.Const:
		return "const " + describe(v.Type)
	case *btf.Volatile:
		return describe(v.Type)
	case *btf.Restrict:
		return describe(v.Type)
	case *btf.TypeTag:
		return describe(v.Type)
	case *btf.Array:
		return fmt.Sprintf("%s[%d]", describe(v.Type), v.Nelems)
	case *btf.Void, nil:
		return "void"
	case *btf.FuncProto:
		return "void ()"
	}
	return b.TypeName()
}
