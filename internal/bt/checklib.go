// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"github.com/cilium/ebpf/btf"
)

func init() {
	truth := func(is func(*checker, *Call) bool) function {
		return function{1, 1, false, false, func(c *checker, e *Call) *Type {
			v := b2i(is(c, e))
			e.val = &v
			return typeBool
		}}
	}
	of := func(is func(*Type) bool) function {
		return truth(func(c *checker, e *Call) bool { return is(c.expr(e.Args[0])) })
	}
	for name, f := range map[string]function{
		"is_str":              of(stringish),
		"is_ptr":              of(func(t *Type) bool { return t.Kind == Pointer }),
		"is_array":            of(func(t *Type) bool { return t.Kind == Array }),
		"is_integer":          of(func(t *Type) bool { return t.Kind == Number }),
		"is_unsigned_integer": of(func(t *Type) bool { return t.Kind == Number && !t.Signed && !t.Bool }),
		"is_literal": truth(func(c *checker, e *Call) bool {
			c.expr(e.Args[0])
			_, text := e.Args[0].(*Str)
			_, number := e.Args[0].(*Int)
			return text || number
		}),
		"kfunc_exist": truth(func(c *checker, e *Call) bool {
			var fn *btf.Func
			spec, err := c.kernel.types()
			return err == nil && spec.TypeByName(c.text(e.Args[0]), &fn) == nil
		}),
		"kfunc_allowed": truth(func(c *checker, e *Call) bool { return c.kernel.kfuncAllowed(c.text(e.Args[0]), c.target.Way) }),
		"typeinfo":      {1, 1, false, false, (*checker).typeInfo},
		"strcap":        {1, 1, false, false, (*checker).strcap},
		"memcmp":        {3, 3, false, false, (*checker).memcmp},
		"skboutput":     {4, 4, false, true, (*checker).skbOutput},
		"globmatch":     {2, 2, false, false, (*checker).globmatch},
		"find":          {3, 3, false, false, (*checker).find},
		"static_assert": {2, 2, true, false, (*checker).staticAssert},
		"fail":          {1, 64, true, false, (*checker).failCall},
		"signal_thread": {1, 1, true, false, func(c *checker, e *Call) *Type { c.signal(e); return typeVoid }},
		"percpu_kaddr":  {1, 2, false, false, (*checker).percpu},
		"pid":           {1, 1, false, false, (*checker).pidOf},
		"tid":           {1, 1, false, false, (*checker).pidOf},
		"path":          {1, 2, false, false, (*checker).path},
		"debugf":        {1, 4, true, false, (*checker).debugf},
		"signal_name":   {1, 1, false, false, kindOf(SigName)},
		"unwatch":       {1, 1, true, false, func(c *checker, e *Call) *Type { c.numbers(e); return typeVoid }},
		"comm":          {1, 1, false, false, kindOf(CommOf)},
		"uaddr":         {1, 1, false, false, (*checker).userAddress},
		"write_user":    {3, 3, false, true, (*checker).writeUser},
		"override":      {1, 1, true, false, (*checker).override},
	} {
		functions[name] = f
	}
}

// strcap is how long a string can be.
func (c *checker) strcap(e *Call) *Type {
	t := c.expr(e.Args[0])
	if !stringish(t) {
		c.failAt(e.Args[0], "strcap() needs a string, not %s", t)
	}
	v := int64(kept(t).Len)
	e.val = &v
	return &Type{Kind: Number, Size: 8, Signed: true, Lit: true}
}

func (c *checker) memcmp(e *Call) *Type {
	n, ok := c.constant(e.Args[2])
	for _, a := range e.Args[:2] {
		t := c.value(a)
		if t.Kind != String && t.Kind != Array && t.Kind != Record && t.Kind != Combo && t.Kind != Inet && t.Kind != Buffer {
			c.failAt(a, "memcmp() compares what lies in memory, not %s", t)
		}
		if ok && n > int64(t.store()) {
			c.failAt(e.Args[2], "%s has %d bytes", t, t.store())
		}
	}
	if c.expr(e.Args[2]); !ok || n < 0 {
		c.failAt(e.Args[2], "the length must be a constant")
	}
	return typeS64
}

// find is has_key() that sets a variable to the value.
func (c *checker) find(e *Call) *Type {
	m, ok := e.Args[0].(*MapRef)
	if !ok {
		c.failAt(e.Args[0], "find() needs a map: find(@name, key, $value)")
	}
	v, ok := e.Args[2].(*Var)
	if !ok {
		c.failAt(e.Args[2], "find() sets a $variable to the value")
	}
	if m.Keys == nil {
		m.Keys = spread(e.Args[1])
	}
	d := c.mapKeys(m)
	d.listed = true
	c.setVar(v, c.readMap(m))
	return typeBool
}

func (c *checker) staticAssert(e *Call) *Type {
	c.expr(e.Args[0])
	msg := c.text(e.Args[1])
	if v, ok := c.constant(e.Args[0]); !ok {
		c.failAt(e.Args[0], "static_assert() needs a constant")
	} else if v == 0 {
		c.failAt(e, "%s", msg)
	}
	return typeVoid
}

// failCall ends the compilation when its code would be emitted.
func (c *checker) failCall(e *Call) *Type {
	c.formatted(e)
	return typeVoid
}

func (c *checker) percpu(e *Call) *Type {
	name := c.text(e.Args[0])
	for _, s := range []string{name, "__per_cpu_offset"} {
		if c.kernel.percpu(s) == 0 {
			c.failAt(e, "this kernel has no symbol %s", s)
		}
	}
	if len(e.Args) == 2 && !c.expr(e.Args[1]).number() {
		c.failAt(e.Args[1], "a CPU is a number")
	}
	return pointerTo(typeU64, InKernel)
}

// pidOf is pid(init) and its like.
func (c *checker) pidOf(e *Call) *Type {
	id, ok := e.Args[0].(*Ident)
	if !ok || id.Name != "init" && id.Name != "curr_ns" {
		c.failAt(e, "%s() takes init or curr_ns", e.Name)
	}
	id.setType(typeVoid)
	return typeU32
}

func (c *checker) debugf(e *Call) *Type {
	c.formatted(e)
	for _, a := range e.Args[1:] {
		if !a.typ().number() {
			c.failAt(a, "debugf() writes numbers, not %s", a.typ())
		}
	}
	return typeVoid
}
