// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
)

// A mapDef is a @map: the types of its keys and values, over the whole script.
type mapDef struct {
	name     string
	keys     []*Type
	keyNames []string // for JSON
	value    *Type    // nil: not known yet
	used     bool     // keys are known
	keyed    bool

	valuePos, keyPos [2]Pos // where they were first seen
	read             bool   // the value of an aggregation is read in the kernel
	listed           bool   // it matters which keys there are, even of those with zeroes
	decl             mapDecl
}

// mapKinds are the maps that a script can declare: those that forget the keys that
// were used least recently when they are full, and those with values of each CPU.
var mapKinds = map[string]struct{ lru, perCPU bool }{
	"hash": {}, "lruhash": {lru: true}, "percpuhash": {perCPU: true}, "percpulruhash": {true, true},
}

// declared checks a map against its declaration. Aggregations are kept per CPU only if the
// declaration says so; other values cannot be.
func (c *checker) declared(d *mapDef) {
	if d.decl.kind == "" || d.value == nil {
		return
	}
	perCPU := mapKinds[d.decl.kind].perCPU
	if perCPU && !d.value.aggregate() {
		c.fail(d.decl.pos, d.decl.end, "%s is declared as %s, which is for count() and its like, and is %s at %s", d.name, d.decl.kind, d.value, c.at(d.valuePos))
	}
	if !perCPU && !d.read {
		d.read, c.changed = true, true
	}
}

// perCPU says whether each CPU has values of its own.
func (d *mapDef) perCPU() bool { return d.value.aggregate() && !d.read }

// places is how many keys a map can have if its keys are numbers from 0 on: the single key of a
// map without keys, and those of func and probe. Such a map is an array, where finding a key is
// one addition. An array has all keys, and a key that nothing was added to is recognised by its
// zeroes. So sums, which can be 0, cannot use an array. The result is 0 if the map is a hash.
func (u *unit) places(d *mapDef) int {
	n := 1
	switch {
	case !d.perCPU() || d.listed || d.decl.kind != "" || d.value.Kind == SumOf || len(d.keys) > 1:
		return 0
	case len(d.keys) == 1:
		if d.keys[0].Kind != Name {
			return 0
		}
		n = len(u.names)
	}
	if cpus, err := ebpf.PossibleCPU(); err != nil || n*d.value.store()*cpus > mapBudget {
		return 0
	}
	return n
}

func (c *checker) assignMap(a *Assign, m *MapRef) {
	d := c.mapKeys(m)
	if call, ok := a.Value.(*Call); ok && aggregations[call.Name] != 0 {
		if a.Op != "" {
			c.fail(a.pos, a.end, "%s() is assigned with =", call.Name)
		}
		c.setMap(m, d, c.aggregation(call))
		return
	}
	t := c.value(a.Value)
	if a.Op != "" {
		if !t.number() {
			c.failAt(a.Value, "%s= needs a number, not %s", a.Op, t)
		}
		if d.value == nil {
			c.setMap(m, d, &Type{Kind: Number, Size: 8, Signed: !unsigned64(t)})
		} else if !d.value.number() {
			c.fail(a.pos, a.end, "type conflict: %s is %s since %s, and takes no %s=", m.Name, d.value, c.at(d.valuePos), a.Op)
		} else if d.value.Bool {
			c.setMap(m, d, typeS64)
		}
		m.setType(d.value)
		return
	}
	c.setMap(m, d, t)
}

func (c *checker) setMap(m *MapRef, d *mapDef, t *Type) {
	if t == unknown {
		return
	}
	if t.Kind == Number && t.Size < 8 { // all of it is counted with, and printed
		t = &Type{Kind: Number, Size: 8, Signed: true, Bool: t.Bool, Space: t.Space, Enum: t.Enum}
	}
	pos, end := m.span()
	if d.value == nil {
		d.value, d.valuePos = t, [2]Pos{pos, end}
		c.changed = true
	} else {
		u, ok := c.unify(d.value, t)
		if !ok {
			c.fail(pos, end, "type conflict: %s is %s since %s, and cannot be %s", m.Name, d.value, c.at(d.valuePos), t)
		}
		if !same(u, d.value) {
			c.changed = true
		}
		d.value = u
	}
	m.setType(d.value)
	c.declared(d)
}

// mapKeys types the keys of a reference and joins them with those known.
func (c *checker) mapKeys(m *MapRef) *mapDef {
	d := c.maps[m.Name]
	if d == nil {
		d = &mapDef{name: m.Name, decl: c.script.decls[m.Name]}
		c.maps[m.Name] = d
		c.order = append(c.order, d)
	}
	var keys []*Type
	for _, k := range m.Keys {
		t := c.value(k)
		if t.aggregate() {
			c.failAt(k, "%s cannot be a key", t)
		}
		if t.Kind == Number && t != unknown {
			t = &Type{Kind: Number, Size: 8, Signed: t.Signed || t.Size < 8 && !t.Lit, Bool: t.Bool, Lit: t.Lit, Space: t.Space, Enum: t.Enum}
			if kt := k.typ(); kt.Size < 8 && !kt.Signed {
				t.Signed = true // an unsigned number of fewer bits fits
			}
		}
		keys = append(keys, t)
	}
	if len(keys) == 1 && keys[0].Kind == Combo && keys[0].Names == nil && len(keys[0].Elems) > 0 { // @m[(a, b)] is @m[a, b], and @m[$kv.0] is @m[$kv.0.0, $kv.0.1]
		k := m.Keys[0]
		if m.Keys = spread(k); len(m.Keys) == 1 {
			pos, end := k.span()
			m.Keys = nil
			for i := range keys[0].Elems {
				m.Keys = append(m.Keys, &Field{node: node{pos: pos, end: end}, X: k, Name: strconv.Itoa(i)})
			}
		}
		return c.mapKeys(m)
	}
	pos, end := m.span()
	if len(keys) == 1 && keys[0] == unknown && len(d.keys) > 1 && !c.final {
		return d // a tuple, perhaps
	}
	if !d.used || len(d.keys) == 1 && d.keys[0] == unknown && len(keys) > 1 {
		d.keys, d.used, d.keyed, d.keyPos = keys, true, m.Keys != nil, [2]Pos{pos, end}
		d.keyNames = keyNames(m.Keys)
		c.changed = true
		return d
	}
	if len(keys) != len(d.keys) {
		c.fail(pos, end, "type conflict: %s has %s since %s, and %s here", m.Name, plural(len(d.keys), "key"), c.at(d.keyPos), plural(len(keys), "key"))
	}
	for i, t := range keys {
		u, ok := c.unify(d.keys[i], t)
		if !ok {
			kp, ke := m.Keys[i].span()
			c.fail(kp, ke, "type conflict: key %d of %s is %s since %s, and %s here", i+1, m.Name, d.keys[i], c.at(d.keyPos), t)
		}
		if !same(u, d.keys[i]) {
			c.changed = true
		}
		d.keys[i] = u
	}
	return d
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if n == 0 {
		return "no " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

// unify notes where a function becomes an address.
func (c *checker) unify(a, b *Type) (*Type, bool) {
	t, ok := unify(a, b)
	c.uses.address = c.uses.address || ok && t.Kind == KSym && (a.Kind == Name || b.Kind == Name)
	return t, ok
}

// unify gives the type that holds values of both.
func unify(a, b *Type) (*Type, bool) {
	switch {
	case a == unknown:
		return b, true
	case b == unknown:
		return a, true
	case a.Kind == Pointer && b.Kind == Number:
		return a, true
	case a.Kind == Number && b.Kind == Pointer:
		return b, true
	case a.Kind == KSym && b.function():
		return a, true
	case a.function() && b.Kind == KSym:
		return b, true
	case a.Kind != b.Kind:
		return nil, false
	}
	switch a.Kind {
	case Name:
		return a, a.Format == b.Format
	case Number:
		if a.Bool != b.Bool { // one of them is a number
			if a.Bool {
				a, b = b, a
			}
			b = &Type{Kind: Number, Size: 8, Signed: true, Lit: b.Lit, Space: b.Space}
		}
		if a.Enum != nil && (b.Enum == nil || b.Enum.name != a.Enum.name) { // a number among others
			n := *a
			n.Enum = nil
			a = &n
		}
		if b.Enum != nil && a.Enum == nil {
			n := *b
			n.Enum = nil
			b = &n
		}
		if a.Lit {
			a, b = b, a
		}
		if b.Lit && !a.Lit || a.Signed == b.Signed && a.Size >= b.Size && a.Space == b.Space {
			return a, true
		}
		return &Type{Kind: Number, Size: max(a.Size, b.Size), Signed: a.Signed || b.Signed, Lit: a.Lit && b.Lit, Space: max(a.Space, b.Space)}, true
	case String:
		if a.Len < b.Len {
			return b, true
		}
		return a, true
	case Pointer:
		if a.Len > 0 && (b.Len == 0 || b.Len > a.Len) {
			a, b = b, a
		}
		if a.Space < b.Space { // of the two, one may be a literal
			p := *a
			p.Space = b.Space
			return &p, true
		}
		return a, true
	case Buffer, Array:
		if a.store() < b.store() {
			return b, true
		}
		return a, true
	case Record:
		return a, a.Rec.name == b.Rec.name && a.Size == b.Size
	case Combo:
		if len(a.Elems) != len(b.Elems) {
			return nil, false
		}
		if (a.Names == nil) != (b.Names == nil) {
			return nil, false
		}
		t := &Type{Kind: Combo, Names: a.Names}
		for i := range a.Elems {
			j := b.element(a.field(i)) // fields of records are in any order
			if j < 0 {
				return nil, false
			}
			e, ok := unify(a.Elems[i], b.Elems[j])
			if !ok {
				return nil, false
			}
			t.Elems = append(t.Elems, e)
		}
		return t, true
	case HistOf:
		return a, a.bits == b.bits
	case TseriesOf:
		return a, a.step == b.step && a.Depth == b.Depth && a.Format == b.Format
	case LhistOf:
		return a, a.min == b.min && a.max == b.max && a.step == b.step
	case SumOf, MinOf, MaxOf, AvgOf, StatsOf:
		if a.Signed {
			return a, true
		}
		return b, true
	}
	return a, true
}

func same(a, b *Type) bool {
	return a == b || a.Kind == b.Kind && a.Size == b.Size && a.Signed == b.Signed && a.Len == b.Len && a.store() == b.store() && a.Lit == b.Lit && a.Space == b.Space && a.Bool == b.Bool && len(a.Names) == len(b.Names) && (a.Enum == nil) == (b.Enum == nil)
}

// compatible says whether a value of type b can be kept in a.
func compatible(a, b *Type) bool {
	_, ok := unify(a, b)
	return ok
}

func (c *checker) readMap(m *MapRef) *Type {
	d := c.mapKeys(m)
	if d.value == nil {
		if c.final {
			var names []string
			for n, o := range c.maps {
				if o.value != nil {
					names = append(names, n)
				}
			}
			slices.Sort(names)
			c.failAt(m, "%s is read but never assigned%s", m.Name, didYouMean(m.Name, names))
		}
		return unknown
	}
	return c.readValue(m, d)
}

// readValue is the type of a map's value in an expression.
func (c *checker) readValue(m *MapRef, d *mapDef) *Type {
	switch d.value.Kind {
	case CountOf, SumOf, MinOf, MaxOf, AvgOf:
		if !d.read {
			d.read, c.changed = true, true
		}
		return &Type{Kind: Number, Size: 8, Signed: d.value.Signed || d.value.Kind == CountOf}
	case StatsOf, HistOf, LhistOf, TseriesOf:
		c.failAt(m, "%s is a %s, which cannot be read in an expression", m.Name, d.value)
	}
	return d.value
}
