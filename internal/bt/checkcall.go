// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"maps"
	"net/netip"
	"slices"
)

// aggregations are the calls that are assigned to maps.
var aggregations = map[string]Kind{
	"count": CountOf, "sum": SumOf, "min": MinOf, "max": MaxOf, "avg": AvgOf, "stats": StatsOf, "hist": HistOf, "lhist": LhistOf, "tseries": TseriesOf,
}

// A function of the language: how many arguments it takes and its type.
type function struct {
	least, most int
	stmt        bool // has no value
	both        bool // has one, and does something
	typ         func(*checker, *Call) *Type
}

var functions map[string]function

func init() {
	void := func(least, most int, check func(*checker, *Call)) function {
		return function{least, most, true, false, func(c *checker, e *Call) *Type {
			if check != nil {
				check(c, e)
			}
			return typeVoid
		}}
	}
	value := func(least, most int, typ func(*checker, *Call) *Type) function {
		return function{least, most, false, false, typ}
	}
	functions = map[string]function{
		"printf": void(1, 64, (*checker).formatted), "cat": void(1, 64, (*checker).formatted), "system": void(1, 64, (*checker).unsafeFormatted),
		"errorf": void(1, 64, (*checker).formatted), "warnf": void(1, 64, (*checker).formatted),
		"print": void(1, 3, (*checker).print), "clear": void(1, 1, (*checker).wholeMap), "zero": void(1, 1, (*checker).wholeMap),
		"delete": {1, 2, false, true, (*checker).deleteKey}, "exit": void(0, 1, (*checker).numbers), "time": void(0, 1, (*checker).literal),
		"join":   void(1, 2, (*checker).join),
		"signal": void(1, 1, (*checker).signal),

		"str": value(1, 2, (*checker).str), "buf": value(1, 2, (*checker).buf), "ntop": value(1, 2, (*checker).ntop),
		"pton":   value(1, 1, (*checker).pton),
		"kstack": value(0, 2, (*checker).stack), "ustack": value(0, 2, (*checker).stack),
		"ksym": value(1, 1, kindOf(KSym)), "usym": value(1, 1, kindOf(USym)), "username": value(1, 1, kindOf(User)),
		"cgroup_path": value(1, 2, kindOf(Cgroup)), "strerror": value(1, 1, kindOf(Errno)), "syscall_name": value(1, 1, kindOf(SysCall)), "macaddr": value(1, 1, (*checker).mac),
		"kaddr": value(1, 1, (*checker).kaddr), "cgroupid": value(1, 1, (*checker).cgroupID), "strftime": value(2, 2, (*checker).strftime),
		"nsecs": value(0, 1, (*checker).clock), "strncmp": value(3, 3, (*checker).strncmp), "has_key": value(2, 2, (*checker).hasKey),
		"bswap": value(1, 1, (*checker).bswap), "kptr": value(1, 1, spaceOf(InKernel)), "uptr": value(1, 1, spaceOf(InUser)),
		"reg": value(1, 1, (*checker).reg), "strlen": value(1, 1, (*checker).strlen),
		"len": value(1, 1, (*checker).length), "strcontains": value(2, 2, (*checker).contains), "strstr": value(2, 2, (*checker).contains),
	}
}

func (c *checker) call(e *Call, stmt bool) *Type {
	if aggregations[e.Name] != 0 {
		c.failAt(e, "%s() is assigned to a map: @ = %s()", e.Name, e.Name)
	}
	f, ok := functions[e.Name]
	if !ok {
		names := append(slices.Collect(maps.Keys(functions)), slices.Collect(maps.Keys(aggregations))...)
		slices.Sort(names)
		c.fail(e.pos, e.pos+Pos(len(e.Name)), "unknown function %s()%s", e.Name, didYouMean(e.Name, names))
	}
	if len(e.Args) < f.least || len(e.Args) > f.most {
		want := plural(f.least, "argument")
		if f.most > f.least {
			want += " or more"
		}
		c.failAt(e, "%s() takes %s, not %d", e.Name, want, len(e.Args))
	}
	if f.stmt && !stmt {
		c.failAt(e, "%s() has no value", e.Name)
	}
	if !f.stmt && !f.both && stmt {
		c.notUsed(e)
	}
	t := f.typ(c, e)
	e.setType(t)
	return t
}

// aggregation gives the type of count(), hist(x) and the like.
func (c *checker) aggregation(e *Call) *Type {
	kind := aggregations[e.Name]
	t := &Type{Kind: kind}
	e.setType(t)
	want := map[Kind]int{CountOf: 0, LhistOf: 4, TseriesOf: 3}
	n, ok := want[kind]
	if !ok {
		n = 1
	}
	if len(e.Args) != n && !((kind == HistOf || kind == TseriesOf) && len(e.Args) == n+1) {
		c.failAt(e, "%s() takes %s, not %d", e.Name, plural(n, "argument"), len(e.Args))
	}
	for i, a := range e.Args {
		if kind == TseriesOf && i == 3 {
			break
		}
		if at := c.expr(a); !at.number() && at.Kind != KSym {
			c.failAt(a, "%s() needs a number, not %s", e.Name, at)
		}
	}
	if kind == HistOf && len(e.Args) == 2 {
		n, ok := c.constant(e.Args[1])
		if !ok || n < 0 || n > 5 {
			c.failAt(e.Args[1], "the bits of hist() are a number from 0 to 5")
		}
		t.bits = int(n)
	}
	if n > 0 {
		t.Signed = !unsigned64(e.Args[0].typ())
	}
	if kind == TseriesOf {
		c.series(e, t)
	}
	if kind == LhistOf {
		for i, p := range []*int64{&t.min, &t.max, &t.step} {
			v, ok := c.constant(e.Args[i+1])
			if !ok {
				c.failAt(e.Args[i+1], "the limits of lhist() must be constants")
			}
			*p = v
		}
		switch {
		case t.step <= 0:
			c.failAt(e.Args[3], "the step of lhist() is more than 0")
		case t.max <= t.min:
			c.failAt(e.Args[2], "the end of lhist() is after its beginning")
		case (t.max-t.min)/t.step > 1000:
			c.failAt(e, "lhist() with more than 1000 buckets: use a larger step")
		case (t.max-t.min)%t.step != 0:
			c.failAt(e.Args[3], "the step of lhist() does not divide its range")
		case t.min < -1<<31 || t.max > 1<<31-1:
			c.failAt(e, "the limits of lhist() need more than 32 bits")
		}
	}
	return t
}

func kindOf(k Kind) func(*checker, *Call) *Type {
	return func(c *checker, e *Call) *Type {
		for _, a := range e.Args {
			if _, lit := a.(*Str); !lit && !c.expr(a).word() {
				c.failAt(a, "%s() needs a number, not %s", e.Name, a.typ())
			}
		}
		return &Type{Kind: k}
	}
}

func spaceOf(s Space) func(*checker, *Call) *Type {
	return func(c *checker, e *Call) *Type {
		t := c.expr(e.Args[0])
		if !t.number() {
			c.failAt(e, "%s() needs a pointer, not %s", e.Name, t)
		}
		n := *t
		n.Space = s
		return &n
	}
}

func (c *checker) numbers(e *Call) {
	for _, a := range e.Args {
		if t := c.expr(a); !t.number() {
			c.failAt(a, "%s() needs a number, not %s", e.Name, t)
		}
	}
}

func (c *checker) literal(e *Call) {
	for _, a := range e.Args {
		c.text(a)
	}
}

// text is the value of a constant string.
func (c *checker) text(e Expr) string {
	s, ok := e.(*Str)
	if !ok {
		c.failAt(e, "a literal string is needed here")
	}
	c.expr(e)
	return s.V
}

func (c *checker) formatted(e *Call) {
	format := c.text(e.Args[0])
	verbs, err := parseFormatString(format)
	if err != nil {
		c.failAt(e.Args[0], "%v", err)
	}
	if len(verbs) != len(e.Args)-1 {
		c.failAt(e, "%s() has %s in its format, and %s", e.Name, plural(len(verbs), "place"), plural(len(e.Args)-1, "value"))
	}
	for i, a := range e.Args[1:] {
		t := c.value(a)
		if t.aggregate() {
			c.failAt(a, "%s() cannot print %s", e.Name, t)
		}
		switch v := verbs[i]; {
		case v.form == 'g':
			if !t.word() && t != unknown {
				c.failAt(a, "%%gr needs a number, not %s", t)
			}
		case v.conv == 's' || v.conv == 'r' || v.conv == 'x' && t.Kind == Buffer:
			if v.conv == 'r' && t.Kind != Buffer && t.Kind != String {
				c.failAt(a, "%%r needs a buffer, not %s", t)
			}
			if v.conv == 's' && t.number() && !t.Bool && t.Enum == nil && t != unknown {
				use := "%d"
				if t.Kind == Pointer && t.Elem().Char {
					use = "str(…)"
				}
				c.failAt(a, "%%s needs a string, not %s: use %s", t, use)
			}
		case !t.word() && t != unknown:
			c.failAt(a, "%%%c needs a number, not %s: use %%s", v.conv, t)
		}
	}
}

func (c *checker) unsafeFormatted(e *Call) {
	if !c.unsafe {
		c.failAt(e, "%s() is refused without --unsafe", e.Name)
	}
	c.formatted(e)
}

func (c *checker) print(e *Call) {
	for _, a := range e.Args[1:] {
		if _, ok := c.constant(a); !ok {
			c.failAt(a, "the number of entries and the divisor of print() must be constants")
		}
		c.expr(a)
	}
	m, isMap := e.Args[0].(*MapRef)
	if !isMap {
		if len(e.Args) > 1 {
			c.failAt(e, "print(value) takes one argument")
		}
		if t := c.value(e.Args[0]); t.aggregate() {
			c.failAt(e, "print() needs a map or a value")
		}
		return
	}
	if m.Keys == nil {
		c.reference(m)
		return
	}
	d := c.mapKeys(m)
	if d.value == nil && c.final {
		c.failAt(m, "%s is printed but never assigned", m.Name)
	}
	if d.value != nil {
		m.setType(d.value)
	}
}

// reference is a whole map, without keys.
func (c *checker) reference(m *MapRef) *mapDef {
	d := c.maps[m.Name]
	if d == nil || d.value == nil {
		if c.final {
			names := slices.Sorted(maps.Keys(c.maps))
			names = slices.DeleteFunc(names, func(n string) bool { return n == m.Name })
			c.failAt(m, "%s is never assigned%s", m.Name, didYouMean(m.Name, names))
		}
		m.setType(unknown)
		if d == nil {
			return &mapDef{}
		}
		return d
	}
	m.setType(d.value)
	return d
}

func (c *checker) wholeMap(e *Call) {
	m, ok := e.Args[0].(*MapRef)
	if !ok || m.Keys != nil {
		c.failAt(e.Args[0], "%s() needs a whole map: %s(@name)", e.Name, e.Name)
	}
	if d := c.reference(m); e.Name == "zero" {
		d.listed = true
	}
}

func (c *checker) deleteKey(e *Call) *Type {
	m, ok := e.Args[0].(*MapRef)
	if !ok {
		c.failAt(e.Args[0], "delete() needs a map and a key: delete(@name[key])")
	}
	if len(e.Args) == 2 {
		if m.Keys == nil {
			m.Keys = spread(e.Args[1])
		}
		e.Args = e.Args[:1]
	}
	d := c.mapKeys(m)
	d.listed = true
	if d.value != nil {
		m.setType(d.value)
	}
	return typeBool
}

// spread makes keys of a tuple: delete(@x, (a, b)) is delete(@x[a, b]).
func spread(e Expr) []Expr {
	if t, ok := e.(*Tuple); ok {
		return t.Elems
	}
	return []Expr{e}
}

func (c *checker) hasKey(e *Call) *Type {
	m, ok := e.Args[0].(*MapRef)
	if !ok {
		c.failAt(e.Args[0], "has_key() needs a map: has_key(@name, key)")
	}
	if m.Keys == nil {
		m.Keys = spread(e.Args[1])
	}
	c.mapKeys(m).listed = true
	return typeBool
}

func (c *checker) join(e *Call) {
	if t := c.expr(e.Args[0]); !t.number() {
		c.failAt(e.Args[0], "join() needs a pointer to strings, not %s", t)
	}
	if len(e.Args) == 2 {
		c.text(e.Args[1])
	}
}

func (c *checker) signal(e *Call) {
	if !c.unsafe {
		c.failAt(e, "signal() is refused without --unsafe")
	}
	if s, ok := e.Args[0].(*Str); ok {
		name := s.V
		if _, ok := headers()["SIG"+name]; ok {
			name = "SIG" + name
		}
		if n, ok := headers()[name]; ok {
			e.Args[0] = &Int{node: s.node, V: n}
		}
	}
	c.numbers(e)
}

func (c *checker) str(e *Call) *Type {
	if p, ok := e.Args[0].(*Param); ok {
		p.Str = true
		c.expr(p)
		if p.N > len(c.params) || p.N <= 0 {
			return stringOf(8)
		}
		return stringOf(len(c.params[p.N-1]) + 1)
	}
	if sum, ok := e.Args[0].(*Binary); ok && sum.Op == "+" { // str($1 + 2) leaves out two characters
		p, isParam := sum.X.(*Param)
		if n, known := c.constant(sum.Y); isParam && known && p.N > 0 {
			text := ""
			if p.N <= len(c.params) {
				text = c.params[p.N-1]
			}
			if n < 0 || n > int64(len(text)) && text != "" {
				c.failAt(sum.Y, "%q has no character %d", text, n)
			}
			e.Args[0] = &Str{sum.node, text[min(int(n), len(text)):]}
		}
	}
	t := c.expr(e.Args[0])
	n := c.set.strLen
	if len(e.Args) == 2 {
		c.expr(e.Args[1])
		if v, ok := c.constant(e.Args[1]); ok {
			if v < 1 || v > 8192 {
				c.failAt(e.Args[1], "str() takes lengths from 1 to 8192")
			}
			n = int(v) + 1 // the zero
		} else if !e.Args[1].typ().number() {
			c.failAt(e.Args[1], "a length is a number")
		}
	}
	switch {
	case t.Kind == String && len(e.Args) == 2:
		c.failAt(e.Args[1], "str() of a string takes no length: printf(\"%%.5s\") cuts it")
	case t.Kind == String:
		return t
	case t.charArray() && t.Size > 0:
		return stringOf(min(n, t.Size))
	case t.Kind == Pointer && t.Len > 0:
		return stringOf(min(n, t.Len))
	case !t.number() && t.Kind != Array && t != unknown:
		c.failAt(e.Args[0], "str() needs a pointer, not %s", t)
	}
	return stringOf(n)
}

func (c *checker) buf(e *Call) *Type {
	t := c.expr(e.Args[0])
	n := 64
	if len(e.Args) == 2 {
		c.expr(e.Args[1])
		if v, ok := c.constant(e.Args[1]); ok {
			n = int(min(max(v, 1), 4096))
		} else {
			n = c.set.strLen
		}
	} else if t.Kind == Array {
		n = t.Size
	} else if t.Kind == String {
		n = t.Len
	} else {
		c.failAt(e, "buf() of a pointer needs a length")
	}
	if !t.number() && t.Kind != Array && t.Kind != String {
		c.failAt(e.Args[0], "buf() needs a pointer, an array or a string, not %s", t)
	}
	if t.Kind == String {
		n = min(n, t.Len)
	}
	return &Type{Kind: Buffer, Len: n}
}

func (c *checker) ntop(e *Call) *Type {
	a := e.Args[len(e.Args)-1]
	t := c.expr(a)
	if len(e.Args) == 2 && !c.expr(e.Args[0]).number() {
		c.failAt(e.Args[0], "the family is a number")
	}
	if !t.number() && !(t.Kind == Array && (t.Size == 4 || t.Size == 16)) && !(t.Kind == Record && (t.Size == 4 || t.Size == 16)) {
		c.failAt(a, "ntop() needs an address of 4 or 16 bytes, not %s", t)
	}
	return &Type{Kind: Inet}
}

func (c *checker) pton(e *Call) *Type {
	addr, err := netip.ParseAddr(c.text(e.Args[0]))
	if err != nil {
		c.failAt(e.Args[0], "this is not an address")
	}
	return arrayOf(typeU8, addr.BitLen()/8)
}

func (c *checker) stack(e *Call) *Type {
	c.uses.context = true
	t := &Type{Kind: KStack, Depth: stackDepth}
	if e.Name == "ustack" {
		t.Kind = UStack
	}
	t.Format = c.stackFormat(t.Kind)
	for _, a := range e.Args {
		if id, ok := a.(*Ident); ok && id.Name == buildIDs && t.Kind == KStack {
			c.failAt(a, "the kernel's functions have no build ids: only ustack(build_id) has")
		}
		if id, ok := a.(*Ident); ok && (id.Name == "bpftrace" || id.Name == "perf" || id.Name == "raw" || id.Name == buildIDs) {
			if t.Format = id.Name; id.Name == "bpftrace" {
				t.Format = ""
			}
			id.setType(typeVoid)
			continue
		}
		n, ok := c.constant(a)
		if !ok || n < 1 || n > stackDepth {
			c.failAt(a, "a stack has from 1 to %d frames", stackDepth)
		}
		t.Depth = int(n)
	}
	return t
}

func (c *checker) mac(e *Call) *Type {
	t := c.expr(e.Args[0])
	if !t.number() && t.Kind != Array {
		c.failAt(e, "macaddr() needs 6 bytes, not %s", t)
	}
	return &Type{Kind: Mac}
}

func (c *checker) kaddr(e *Call) *Type {
	name := c.text(e.Args[0])
	if c.kernel.address(name) == 0 && !c.check {
		c.failAt(e, "this kernel has no symbol %s", name)
	}
	return &Type{Kind: Number, Size: 8}
}

func (c *checker) cgroupID(e *Call) *Type {
	if _, err := cgroupID(c.text(e.Args[0])); err != nil {
		c.failAt(e, "%v", err)
	}
	return typeU64
}

func (c *checker) strftime(e *Call) *Type {
	format := c.text(e.Args[0])
	if t := c.expr(e.Args[1]); !t.number() {
		c.failAt(e.Args[1], "strftime() needs nsecs, not %s", t)
	}
	return &Type{Kind: Time, Format: format}
}

func (c *checker) clock(e *Call) *Type {
	if len(e.Args) == 1 {
		id, ok := e.Args[0].(*Ident)
		if !ok || !slices.Contains([]string{"monotonic", "boot", "tai", "sw_tai"}, id.Name) {
			c.failAt(e, "nsecs() takes monotonic, boot, tai or sw_tai")
		}
		id.setType(typeVoid)
	}
	return typeU64
}

func (c *checker) strncmp(e *Call) *Type {
	for _, a := range e.Args[:2] {
		if t := c.expr(a); !stringish(t) && t != unknown {
			c.failAt(a, "strncmp() compares strings, not %s", t)
		}
	}
	if n, ok := c.constant(e.Args[2]); !ok || n < 0 {
		c.failAt(e.Args[2], "the length must be a constant")
	}
	c.expr(e.Args[2])
	return typeU64
}

func (c *checker) strlen(e *Call) *Type {
	if t := c.expr(e.Args[0]); !stringish(t) {
		c.failAt(e, "%s() needs a string, not %s", e.Name, t)
	}
	return typeU64
}

// length is len(@map), or strlen.
func (c *checker) length(e *Call) *Type {
	m, ok := e.Args[0].(*MapRef)
	if !ok || m.Keys != nil {
		if t := c.expr(e.Args[0]); t.Kind == KStack || t.Kind == UStack {
			return typeU64
		}
		return c.strlen(e)
	}
	d := c.maps[m.Name]
	if c.final && (d == nil || d.value == nil) {
		c.failAt(m, "%s is never assigned", m.Name)
	} else if d != nil && d.used && !d.keyed {
		c.failAt(m, "%s has no keys to count", m.Name)
	}
	if d != nil {
		d.listed = true
	}
	c.needForEach(m, "len() of a map")
	m.setType(typeVoid)
	return typeU64
}

func (c *checker) contains(e *Call) *Type {
	if t := c.expr(e.Args[0]); !stringish(t) && t != unknown {
		c.failAt(e.Args[0], "%s() looks into strings, not %s", e.Name, t)
	}
	if t := c.expr(e.Args[1]); !stringish(t) && t != unknown {
		c.failAt(e.Args[1], "%s() looks for strings, not %s", e.Name, t)
	}
	if e.Name == "strstr" {
		return typeS64
	}
	return typeBool
}

func (c *checker) bswap(e *Call) *Type {
	t := c.expr(e.Args[0])
	if t.Kind != Number {
		c.failAt(e, "bswap() needs a number, not %s", t)
	}
	n := *t
	n.Signed, n.Lit = false, false
	return &n
}

func (c *checker) reg(e *Call) *Type {
	name := c.text(e.Args[0])
	if _, ok := registers[name]; !ok {
		c.failAt(e, "unknown register %s%s", name, didYouMean(name, slices.Sorted(maps.Keys(registers))))
	}
	if w := c.target.Way; w != Kprobe && w != Kretprobe && w != Uprobe && w != Uretprobe {
		c.failAt(e, "%s has no registers", c.target.Kind)
	}
	c.uses.types, c.uses.fields = true, true
	return &Type{Kind: Number, Size: 8, Space: c.home()}
}
