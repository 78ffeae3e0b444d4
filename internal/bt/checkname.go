// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// stackDepth is how many frames kstack and ustack keep.
const stackDepth = 127

// builtins are the names with a value of their own.
var builtins = map[string]*Type{
	"pid": typeU32, "tid": typeU32, "uid": typeU32, "gid": typeU32, "cpu": typeU32, "ncpus": typeU32, "rand": typeU32, "ppid": typeU32, "cpid": typeU32,
	"nsecs": typeU64, "elapsed": typeU64, "jiffies": typeU64, "cgroup": typeU64, "numaid": typeU32,
	"comm":     stringOf(16),
	"func":     {Kind: Name, Format: "func"},
	"probe":    {Kind: Name, Format: "probe"},
	"kstack":   {Kind: KStack, Depth: stackDepth},
	"ustack":   {Kind: UStack, Depth: stackDepth},
	"username": {Kind: User},
	"usermode": typeU8, "has_cpid": typeBool, "probetype": stringOf(16),
	"curtask": nil, "retval": nil, "args": nil, "ctx": nil,
}

func (c *checker) ident(e *Ident) *Type {
	if n, ok := argIndex(e.Name); ok {
		return c.argN(e, n)
	}
	switch e.Name {
	case "func", "probe":
		c.uses.name = true
		if e.Name == "func" && c.target.Func == "" {
			c.failAt(e, "%s has no function", c.target.Probe)
		}
		if e.Name == "func" && c.home() == InUser {
			return &Type{Kind: Name, Format: "func", Space: InUser}
		}
	case "retval":
		return c.retval(e)
	case "curtask":
		t := &Type{Kind: Record, Rec: &record{name: "struct task_struct"}}
		if spec, err := c.kernel.types(); err == nil {
			var s *btf.Struct
			if spec.TypeByName("task_struct", &s) == nil {
				t = fromBTF(s, InKernel)
			}
		}
		return pointerTo(t, InKernel)
	case "usermode":
		c.uses.context = true
		if _, ok := registers["cs"]; !ok {
			c.failAt(e, "usermode is known on amd64 only")
		}
	case "probetype":
		c.uses.context = true
	case "cpid":
		if c.child == 0 {
			c.failAt(e, "there is no cpid without -c COMMAND")
		}
	case "args":
		return c.allArgs(e)
	case "kstack", "ustack":
		c.uses.context = true
		t := *builtins[e.Name]
		t.Format = c.stackFormat(t.Kind)
		return &t
	case "ctx":
		c.uses.context = true
		if c.target.iter != nil {
			c.uses.types = true
			return pointerTo(fromBTF(c.target.iter, InKernel), InKernel)
		}
		return &Type{Kind: Number, Size: 8}
	}
	if t := builtins[e.Name]; t != nil {
		return t
	}
	if _, ok := c.named(e.Name); ok {
		return &Type{Kind: Number, Size: 8, Signed: true, Lit: true, Enum: c.enumOf(e.Name)}
	}
	names := append(slices.Collect(maps.Keys(builtins)), "arg0", "arg1", "arg2", "arg3")
	names = append(names, slices.Collect(maps.Keys(c.script.enums))...)
	slices.Sort(names)
	if e.Name == strings.ToUpper(e.Name) {
		c.failAt(e, "unknown constant %s%s", e.Name, c.nearConstant(e.Name))
	}
	c.failAt(e, "unknown name %s%s", e.Name, didYouMean(e.Name, names))
	return nil
}

// allArgs is args as a whole: a record of all arguments.
func (c *checker) allArgs(e *Ident) *Type {
	t := c.target
	all := &Tuple{node: node{pos: e.pos, end: e.end}}
	c.whole[e] = all
	add := func(name string) {
		all.Names = append(all.Names, name)
		all.Elems = append(all.Elems, &Field{node: all.node, X: &Ident{all.node, "args"}, Name: name})
	}
	switch {
	case t.Kind == Tracepoint:
		for i := range t.format {
			add(t.format[i].name)
		}
	case t.Way == Fentry || t.Way == Fexit || t.Kind == RawTracepoint || t.Kind == Uprobe:
		for _, p := range c.proto(e).Params {
			if p.Name == "" {
				c.failAt(e, "the arguments of %s have no names", t.Probe)
			}
			add(p.Name)
		}
	}
	if len(all.Elems) == 0 {
		c.failAt(e, "%s has no args as a whole: use args.NAME or argN", t.Kind)
	}
	return c.expr(all)
}

// nearConstant names a constant that is one slip away, and no other: a similar name may have
// another value, as ENOTSUPP and EOPNOTSUPP do.
func (c *checker) nearConstant(name string) string {
	names := slices.Collect(maps.Keys(headers()))
	names = append(names, slices.Collect(maps.Keys(c.enumSeen))...)
	names = append(names, slices.Collect(maps.Keys(c.script.enums))...)
	names = slices.DeleteFunc(names, func(n string) bool { return !oneSlip(name, n) })
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return ": did you mean " + names[0] + "?"
	}
	return ": if a header has it, write #define " + name + " …"
}

// oneSlip says whether a is b with two letters swapped, or one added, left out or
// replaced. A digit is no slip.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	rest := func(s string, n int) string { return s[min(len(s), i+n):] }
	switch {
	case a == b || i == len(b) || isDigit(b[i]) || i < len(a) && isDigit(a[i]):
		return false
	case len(a) < len(b):
		return rest(a, 0) == rest(b, 1)
	}
	return rest(a, 1) == rest(b, 1) || rest(a, 2) == rest(b, 2) && i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i]
}

// stackFormat is how stacks are printed unless the call says it.
func (c *checker) stackFormat(k Kind) string {
	if c.set.stackMode == "bpftrace" || c.set.stackMode == buildIDs && k == KStack {
		return ""
	}
	return c.set.stackMode
}

func argIndex(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "arg")
	if !ok || len(rest) != 1 || !isDigit(rest[0]) {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// named is the value of a constant: of the script, of the headers, or an
// enumerator of the kernel, for which all of the BTF is read.
func (c *checker) named(name string) (int64, bool) {
	if v, ok := c.script.enums[name]; ok {
		return v, true
	}
	if v, ok := headers()[name]; ok {
		return v, true
	}
	if name != strings.ToUpper(name) {
		return 0, false
	}
	if c.enumSeen == nil {
		c.enumSeen, c.enumIn = map[string]int64{}, map[string]*btf.Enum{}
		spec, err := c.kernel.types()
		if err != nil {
			return 0, false
		}
		for t, err := range spec.All() {
			if err != nil {
				break
			}
			if e, ok := t.(*btf.Enum); ok {
				for _, v := range e.Values {
					c.enumSeen[v.Name] = int64(v.Value)
					c.enumIn[v.Name] = e
				}
			}
		}
	}
	v, ok := c.enumSeen[name]
	if bit, is := c.enumSeen["__"+name]; !ok && is && (strings.HasPrefix(name, "REQ_") || strings.HasPrefix(name, "RQF_")) {
		return 1 << bit, true // #define REQ_SYNC (1ULL << __REQ_SYNC)
	}
	return v, ok
}

// enumOf is the enum of an enumerator, nil if the name is not one.
func (c *checker) enumOf(name string) *enum {
	if e := c.script.enumIn[name]; e != nil {
		return e
	}
	if e := c.enumIn[name]; e != nil {
		return btfEnum(e)
	}
	return nil
}

// argN is a register. Its width and sign come from BTF; a pointer is a number,
// as in bpftrace, so that arithmetic on it counts bytes.
func (c *checker) argN(e *Ident, n int) *Type {
	c.uses.types, c.uses.fields = true, true
	t := c.target
	if t.Kind == Usdt {
		return c.usdtArg(e, n)
	}
	space := InKernel
	switch {
	case t.Kind == Uprobe:
		space = InUser
	case t.Way == Kprobe, t.Way == Fentry, t.Way == Fexit, t.Kind == RawTracepoint:
	default:
		c.failAt(e, "%s has no %s", t.Kind, e.Name)
	}
	if (t.Way == Kprobe || t.Way == Uprobe) && n >= len(argRegs) {
		c.failAt(e, "there are arg0 to arg%d", len(argRegs)-1)
	}
	if t.Kind == Uprobe {
		return &Type{Kind: Number, Size: 8, Space: space}
	}
	proto := c.tryProto()
	if proto == nil {
		if t.Way == Fentry || t.Way == Fexit || t.Kind == RawTracepoint && n > 11 {
			c.proto(e)
		}
		return &Type{Kind: Number, Size: 8, Space: space}
	}
	if n >= len(proto.Params) {
		c.failAt(e, "%s has %s", t.Probe, plural(len(proto.Params), "argument"))
	}
	return scalarOf(fromBTF(proto.Params[n].Type, space))
}

// scalarOf makes a number of a pointer.
func scalarOf(t *Type) *Type {
	if t.Kind == Pointer {
		return &Type{Kind: Number, Size: 8, Space: t.Space}
	}
	if t.Kind != Number {
		return &Type{Kind: Number, Size: 8, Space: t.Space}
	}
	return t
}

// retval has its true width and sign where BTF tells them.
func (c *checker) retval(e *Ident) *Type {
	c.uses.types, c.uses.fields = true, true
	t := c.target
	if !t.Kind.returns() {
		c.failAt(e, "%s has no retval: use a %s", t.Kind, map[ProbeKind]string{Kprobe: "kretprobe", Fentry: "fexit", Uprobe: "uretprobe"}[t.Kind])
	}
	if t.Kind == Uretprobe {
		return &Type{Kind: Number, Size: 8, Signed: true, Space: InUser}
	}
	proto := c.tryProto()
	if proto == nil {
		return &Type{Kind: Number, Size: 8, Signed: true}
	}
	r := fromBTF(proto.Return, InKernel)
	if r.Kind == None {
		c.failAt(e, "%s returns nothing", t.Name)
	}
	if r.Kind != Number && r.Kind != Pointer {
		return &Type{Kind: Number, Size: 8}
	}
	return r
}

// keyNames gives the fields of JSON objects names, from the expressions.
func keyNames(keys []Expr) []string {
	var names []string
	seen := map[string]int{}
	for i, k := range keys {
		n := exprName(k)
		if n == "" {
			n = "key" + strconv.Itoa(i)
		}
		seen[n]++
		if seen[n] > 1 {
			n += strconv.Itoa(seen[n])
		}
		names = append(names, n)
	}
	return names
}

func exprName(e Expr) string {
	switch e := e.(type) {
	case *Ident:
		return e.Name
	case *Var:
		return shown(e.Name[1:])
	case *BlockExpr:
		if e.X != nil {
			return exprName(e.X)
		}
	case *MapRef:
		return e.Name[1:]
	case *Field:
		if isDigit(e.Name[0]) { // of a tuple
			return ""
		}
		return e.Name
	case *Cast:
		return exprName(e.X)
	case *Unary:
		return exprName(e.X)
	case *Index:
		return exprName(e.X)
	case *Binary:
		if n := exprName(e.X); n != "" {
			return n
		}
		return exprName(e.Y)
	case *Ternary:
		if n := exprName(e.X); n != "" {
			return n
		}
		return exprName(e.Y)
	case *Call:
		if e.Name == "kstack" || e.Name == "ustack" || len(e.Args) == 0 {
			return e.Name
		}
		for i := len(e.Args) - 1; i >= 0; i-- {
			if n := exprName(e.Args[i]); n != "" && n != strings.ToUpper(n) {
				return n
			}
		}
		return e.Name
	}
	return ""
}
