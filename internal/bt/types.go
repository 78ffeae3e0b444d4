// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// A Kind is what a value is, and so how it is kept and printed.
type Kind uint8

// The kinds. Those up to SysCall fit a register.
const (
	None   Kind = iota
	Number      // 64 bits in registers; Size and Signed are the declared ones
	Pointer
	Name    // a function or probe, by its number in the table of names
	KStack  // hash of a kernel stack
	KSym    // kernel address
	Time    // nanoseconds, printed by Format
	User    // uid
	Cgroup  // cgroup id
	Errno   // error number
	CommOf  // process, printed by its name
	SigName // number of a signal
	SysCall // number of a system call
	String  // Len bytes, padded with zeroes
	Buffer  // length, then Len bytes
	Combo   // tuple
	UStack  // hash and pid
	USym    // address and pid
	Inet    // length, then 16 bytes
	Mac     // 6 bytes in 8
	PathOf  // names from a file to the root
	Record  // struct or union, a place in memory
	Array   // a place in memory
	CountOf // aggregations: the values of maps
	SumOf
	MinOf
	MaxOf
	AvgOf
	StatsOf
	HistOf
	LhistOf
	TseriesOf
)

// Space is the memory that a pointer leads to.
type Space uint8

// The spaces.
const (
	InKernel Space = iota
	InUser
)

// A Type describes values. Elem and Rec are resolved when asked for, since the
// types of the kernel lead to one another without end.
type Type struct {
	Kind   Kind
	Size   int // as declared, in bytes
	Signed bool
	Lit    bool // a literal: takes the sign of what it meets
	Bool   bool
	Enum   *enum
	Char   bool // an array of it is a string
	Space  Space
	Len    int    // of String, Buffer, Array; of a Pointer, the most that a string there can have, if known
	Format string // of Time; of TseriesOf, what becomes of the values of an interval
	Depth  int    // of stacks; of TseriesOf, the intervals
	Elems  []*Type
	Names  []string // of the elements, in a record of the script; nil: a tuple
	elem   func() *Type
	Rec    *record
	min    int64 // of LhistOf
	max    int64
	step   int64 // of TseriesOf, the nanoseconds of an interval
	bits   int   // of HistOf: 2^bits buckets for each power of two
}

// An enum gives values names.
type enum struct {
	name string
	of   func(int64) string // "": it has no such value
}

// A record is a struct or union.
type record struct {
	name  string // "struct sock"
	size  int
	align int // 0: not known yet
	field func(name string, space Space) *member
	names func() []string
}

// A member is a field at a place in a record.
type member struct {
	t        *Type
	off      int // bytes
	bits     int // 0: not a bit field
	bitStart int // from the lowest bit of the bytes at off
}

var (
	typeS64  = &Type{Kind: Number, Size: 8, Signed: true}
	typeU64  = &Type{Kind: Number, Size: 8}
	typeS32  = &Type{Kind: Number, Size: 4, Signed: true}
	typeU32  = &Type{Kind: Number, Size: 4}
	typeU8   = &Type{Kind: Number, Size: 1}
	typeBool = &Type{Kind: Number, Size: 1, Bool: true}
	typeVoid = &Type{Kind: None}
)

func stringOf(n int) *Type { return &Type{Kind: String, Len: round8(n)} }

func pointerTo(elem *Type, space Space) *Type {
	return &Type{Kind: Pointer, Size: 8, Space: space, elem: func() *Type { return elem }}
}

func arrayOf(elem *Type, n int) *Type {
	return &Type{Kind: Array, Size: elem.Size * n, Len: n, Space: elem.Space, elem: func() *Type { return elem }}
}

func round8(n int) int { return (n + 7) &^ 7 }

// Elem is what a pointer leads to or an array is made of.
func (t *Type) Elem() *Type {
	if t.elem == nil {
		return typeVoid
	}
	e := t.elem()
	if e.Space != t.Space {
		c := *e
		c.Space = t.Space
		return &c
	}
	return e
}

// element is which element of a tuple or record a field is, -1 if none.
func (t *Type) element(field string) int {
	if t.Names != nil {
		return slices.Index(t.Names, field)
	}
	if n, err := strconv.Atoi(field); err == nil && n < len(t.Elems) {
		return n
	}
	return -1
}

// field is the name of an element.
func (t *Type) field(i int) string {
	if t.Names != nil {
		return t.Names[i]
	}
	return strconv.Itoa(i)
}

// laidOut says whether two tuples or records have the same elements in the same
// places.
func (t *Type) laidOut(o *Type) bool {
	if len(t.Elems) != len(o.Elems) || !slices.Equal(t.Names, o.Names) {
		return false
	}
	for i, e := range t.Elems {
		if e.store() != o.Elems[i].store() || e.Kind == Combo && !e.laidOut(o.Elems[i]) {
			return false
		}
	}
	return true
}

// word says whether a value fits a register.
func (t *Type) word() bool { return t.Kind > None && t.Kind <= SysCall }

func (t *Type) number() bool { return t.Kind == Number || t.Kind == Pointer }

// function says whether t is the builtin func of a kernel function, which has an
// address.
func (t *Type) function() bool { return t.Kind == Name && t.Format == "func" && t.Space == InKernel }

// aggregate says whether t is the value of a map only.
func (t *Type) aggregate() bool { return t.Kind >= CountOf }

// charArray says whether t is a C string in a fixed place.
func (t *Type) charArray() bool {
	if t.Kind != Array {
		return false
	}
	e := t.Elem()
	return e.Kind == Number && e.Char
}

// store is how many bytes a value takes in a key, a map or a record.
func (t *Type) store() int {
	switch t.Kind {
	case String:
		return round8(t.Len)
	case Buffer:
		return 8 + round8(t.Len)
	case UStack, USym:
		return 16
	case Inet:
		return 24
	case PathOf:
		return pathSteps * pathName
	case Record, Array:
		return max(8, round8(t.Size))
	case Combo:
		n := 0
		for _, e := range t.Elems {
			n += e.store()
		}
		return n
	case MinOf, MaxOf, AvgOf, StatsOf:
		return 16
	case HistOf:
		return 8 * histSlots(t.bits)
	case LhistOf:
		return 8 * int((t.max-t.min)/t.step+2)
	case TseriesOf:
		return seriesSlot * t.Depth
	}
	return 8
}

// sizeof is what sizeof(x) gives: the size of a C type, else that of the value as
// it is kept.
func (t *Type) sizeof() int {
	switch t.Kind {
	case Number, Pointer, Record, Array:
		return t.Size
	case String:
		return t.Len
	}
	return t.store()
}

// histSlots are: negative, 0, then those of each power of two.
func histSlots(bits int) int { return 2 + (64-bits+1)<<bits - 1 }

func (t *Type) String() string {
	if t == nil {
		return "unknown"
	}
	switch t.Kind {
	case None:
		return "nothing"
	case Number:
		if t.Bool {
			return "bool"
		}
		s := "int"
		if !t.Signed {
			s = "uint"
		}
		return fmt.Sprintf("%s%d", s, t.Size*8)
	case Name:
		return t.Format
	case Pointer:
		return t.Elem().String() + " *"
	case Record:
		return t.Rec.name
	case Array:
		return fmt.Sprintf("%s[%d]", t.Elem(), t.Len)
	case Combo:
		var s []string
		for i, e := range t.Elems {
			text := e.String()
			if t.Names != nil {
				text = t.Names[i] + "=" + text
			}
			s = append(s, text)
		}
		return "(" + strings.Join(s, ", ") + ")"
	}
	return [...]string{
		KStack: "kstack", KSym: "ksym", Time: "timestamp", User: "username", Cgroup: "cgroup path", Errno: "strerror", CommOf: "comm", SigName: "signal_name", SysCall: "syscall_name",
		String: "string", Buffer: "buffer", UStack: "ustack", USym: "usym", Inet: "inet", PathOf: "path", Mac: "macaddr",
		CountOf: "count", SumOf: "sum", MinOf: "min", MaxOf: "max", AvgOf: "avg", StatsOf: "stats", HistOf: "hist", LhistOf: "lhist", TseriesOf: "tseries",
	}[t.Kind]
}

// fromBTF makes a Type of a kernel type.
func fromBTF(b btf.Type, space Space) *Type {
	if p, ok := skipQualifiers(b).(*btf.Pointer); ok {
		to := space
		target := p.Target
		if tag, ok := target.(*btf.TypeTag); ok && tag.Value == "user" {
			to = InUser
		}
		return &Type{Kind: Pointer, Size: 8, Space: to, elem: func() *Type { return fromBTF(target, to) }}
	}
	switch v := skipQualifiers(b).(type) {
	case *btf.Int:
		return &Type{Kind: Number, Size: int(v.Size), Signed: v.Encoding == btf.Signed, Bool: v.Encoding == btf.Bool, Char: v.Name == "char", Space: space}
	case *btf.Enum:
		return &Type{Kind: Number, Size: int(v.Size), Signed: v.Signed, Space: space, Enum: btfEnum(v)}
	case *btf.Struct:
		return &Type{Kind: Record, Size: int(v.Size), Space: space, Rec: btfRecord("struct "+v.Name, int(v.Size), v.Members)}
	case *btf.Union:
		return &Type{Kind: Record, Size: int(v.Size), Space: space, Rec: btfRecord("union "+v.Name, int(v.Size), v.Members)}
	case *btf.Array:
		n := int(v.Nelems)
		e := v.Type
		size, _ := btf.Sizeof(v)
		return &Type{Kind: Array, Size: size, Len: n, Space: space, elem: func() *Type { return fromBTF(e, space) }}
	case *btf.Float:
		return &Type{Kind: Number, Size: int(v.Size), Space: space}
	}
	return &Type{Kind: None, Space: space}
}

func btfEnum(e *btf.Enum) *enum {
	return &enum{e.Name, func(n int64) string {
		for _, v := range e.Values {
			if int64(v.Value) == n || e.Size == 4 && int32(v.Value) == int32(n) {
				return v.Name
			}
		}
		return ""
	}}
}

func skipQualifiers(b btf.Type) btf.Type {
	for range 32 {
		switch v := b.(type) {
		case *btf.Typedef:
			b = v.Type
		case *btf.Const:
			b = v.Type
		case *btf.Volatile:
			b = v.Type
		case *btf.Restrict:
			b = v.Type
		case *btf.TypeTag:
			b = v.Type
		default:
			return b
		}
	}
	return b
}

func btfRecord(name string, size int, members []btf.Member) *record {
	return &record{
		name: name, size: size,
		field: func(f string, space Space) *member { return findMember(members, f, space, 0, 0) },
		names: func() []string { return memberNames(members, 0) },
	}
}

// findMember looks for a field, also in members without a name.
func findMember(members []btf.Member, name string, space Space, base btf.Bits, depth int) *member {
	if depth > 8 {
		return nil
	}
	for _, m := range members {
		at := base + m.Offset
		if m.Name == name {
			return place(fromBTF(m.Type, space), at, m.BitfieldSize)
		}
		if m.Name != "" {
			continue
		}
		switch inner := skipQualifiers(m.Type).(type) {
		case *btf.Struct:
			if f := findMember(inner.Members, name, space, at, depth+1); f != nil {
				return f
			}
		case *btf.Union:
			if f := findMember(inner.Members, name, space, at, depth+1); f != nil {
				return f
			}
		}
	}
	return nil
}

// place turns a position in bits into the bytes that hold the field.
func place(t *Type, at, width btf.Bits) *member {
	if width == 0 {
		return &member{t: t, off: int(at / 8)}
	}
	size := btf.Bits(max(t.Size, 1) * 8)
	start := at / size * size // the unit that the compiler reads
	if at+width > start+size {
		start = at / 8 * 8
	}
	return &member{t: t, off: int(start / 8), bits: int(width), bitStart: int(at - start)}
}

func memberNames(members []btf.Member, depth int) (names []string) {
	for _, m := range members {
		if m.Name != "" {
			names = append(names, m.Name)
			continue
		}
		if depth > 8 {
			continue
		}
		switch inner := skipQualifiers(m.Type).(type) {
		case *btf.Struct:
			names = append(names, memberNames(inner.Members, depth+1)...)
		case *btf.Union:
			names = append(names, memberNames(inner.Members, depth+1)...)
		}
	}
	return names
}
