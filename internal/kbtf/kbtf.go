// SPDX-License-Identifier: Apache-2.0

// Package kbtf reads the BTF of kernels: 130,000 types, of which a tool needs a
// few hundred. It answers questions by name without decoding the rest, and cuts
// out the part that programs are relocated against.
package kbtf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A Kind is what a type is, by the kernel's number.
type Kind uint8

// The kinds of types.
const (
	Int Kind = iota + 1
	Pointer
	Array
	Struct
	Union
	Enum
	Forward
	Typedef
	Volatile
	Const
	Restrict
	Func
	FuncProto
	Var
	DataSec
	Float
	DeclTag
	TypeTag
	Enum64
)

// An ID is the number of a type. 0 is void.
type ID = uint32

const (
	magic      = 0xeb9f
	headerSize = 24 // of the whole
	typeSize   = 12 // of what each type begins with
	memberSize = 12
	valueSize  = 8 // of an enum
	paramSize  = 8
	arraySize  = 12
)

// Types are those of a kernel or, with those of the kernel as their base, of one
// of its modules.
type Types struct {
	types   []byte
	strings []byte
	marks   []uint32 // the offset of every markEvery-th type, beginning with number first
	count   int      // of types
	first   ID
	base    *Types

	mu     sync.Mutex
	passes int               // over all types
	known  map[string][]ID   // what was looked for
	placed map[string]uint32 // where its names are
}

// markEvery is how many types one mark serves: a type is found by walking over those
// behind the mark. A mark for each type would take more than a megabyte.
const markEvery = 16

// Dir holds the BTF of the running kernel and of its modules.
const Dir = "/sys/kernel/btf/"

// Running reads the types of the running kernel.
func Running() (*Types, error) {
	f, err := os.Open(Dir + "vmlinux")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// From 6.16 on it need not be copied. It stays mapped until the process ends.
	raw, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		if raw, err = os.ReadFile(f.Name()); err != nil {
			return nil, err
		}
	}
	return Read(raw, nil)
}

// File reads the types of a kernel from a file that holds BTF as the kernel has it, or
// from an ELF file with a section of it, such as vmlinux with debug information.
func File(path string) (*Types, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(raw, []byte(elf.ELFMAG)) {
		f, err := elf.NewFile(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		section := f.Section(".BTF")
		if section == nil {
			return nil, errors.New("there is no section .BTF in it")
		}
		if raw, err = section.Data(); err != nil {
			return nil, err
		}
	}
	t, err := Read(raw, nil)
	if err == nil && len(t.Look("task_struct")[0]) == 0 {
		return nil, errors.New("not the BTF of a kernel: there is no task_struct in it")
	}
	return t, err
}

// Module reads the types of a module of the kernel whose types are base.
func Module(name string, base *Types) (*Types, error) {
	raw, err := os.ReadFile(Dir + name)
	if err != nil {
		return nil, err
	}
	return Read(raw, base)
}

var errShort = errors.New("BTF ends too early")

// Read takes BTF as the kernel has it, which it keeps.
func Read(raw []byte, base *Types) (*Types, error) {
	if len(raw) < headerSize || word(raw, 0)&0xffff != magic {
		return nil, errors.New("not BTF of this machine")
	}
	header := word(raw, 4)
	section := func(at int) ([]byte, error) {
		off, size := uint64(header)+uint64(word(raw, at)), uint64(word(raw, at+4))
		if off+size > uint64(len(raw)) {
			return nil, errShort
		}
		return raw[off : off+size], nil
	}
	t := &Types{first: 1, base: base, known: map[string][]ID{}, placed: map[string]uint32{}}
	var err error
	if t.types, err = section(8); err != nil {
		return nil, err
	}
	if t.strings, err = section(16); err != nil {
		return nil, err
	}
	if base != nil {
		t.first = base.first + ID(base.count)
	}
	t.marks = make([]uint32, 0, len(t.types)/(20*markEvery)) // a type takes more on average
	for off := 0; off < len(t.types); {
		if off+typeSize > len(t.types) {
			return nil, errShort
		}
		info := word(t.types, off+4)
		size := sizeOf(info)
		if size == 0 {
			return nil, fmt.Errorf("BTF has a kind of type that came later: %d", kindOf(info))
		}
		if t.count%markEvery == 0 {
			t.marks = append(t.marks, uint32(off))
		}
		t.count++
		off += size
		if off > len(t.types) {
			return nil, errShort
		}
	}
	return t, nil
}

func word(b []byte, off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }

func kindOf(info uint32) Kind  { return Kind(info >> 24 & 0x1f) }
func lengthOf(info uint32) int { return int(info & 0xffff) }

// sizes are what types take, by kind: as they are, and for each member, value or parameter.
var sizes = func() (of [32]struct{ alone, each int }) {
	for _, k := range []Kind{Pointer, Forward, Typedef, Volatile, Const, Restrict, Func, Float, TypeTag} {
		of[k].alone = typeSize
	}
	for _, k := range []Kind{Int, Var, DeclTag} {
		of[k].alone = typeSize + 4
	}
	of[Array].alone = typeSize + arraySize
	for k, each := range map[Kind]int{Struct: memberSize, Union: memberSize, DataSec: memberSize, Enum64: memberSize, Enum: valueSize, FuncProto: paramSize} {
		of[k].alone, of[k].each = typeSize, each
	}
	return of
}()

// sizeOf is what a type takes; 0 if its kind is not known.
func sizeOf(info uint32) int {
	s := &sizes[info>>24&0x1f]
	return s.alone + lengthOf(info)*s.each
}

// A Type is one type, not decoded.
type Type struct {
	of   *Types
	data []byte
}

func (t Type) word(off int) uint32 { return word(t.data, off) }

// Kind is what it is; 0 for void.
func (t Type) Kind() Kind {
	if t.of == nil {
		return 0
	}
	return kindOf(t.word(4))
}

// Name is its name, if it has one.
func (t Type) Name() string {
	if t.of == nil {
		return ""
	}
	return t.of.text(t.word(0))
}

func (t Type) length() int { return lengthOf(t.word(4)) }

// target is the type that this one is made of, of kinds that are made of one.
func (t Type) target() ID { return t.word(8) }

// ByID returns the type of a number: void if there is none.
func (t *Types) ByID(id ID) Type {
	if t.base != nil && id < t.first {
		return t.base.ByID(id)
	}
	at := int(id) - int(t.first)
	if id < t.first || at >= t.count {
		return Type{}
	}
	off := int(t.marks[at/markEvery])
	size := sizeOf(word(t.types, off+4))
	for range at % markEvery {
		off += size
		size = sizeOf(word(t.types, off+4))
	}
	return Type{t, t.types[off : off+size]}
}

// text is the string at an offset.
func (t *Types) text(off uint32) string {
	if t.base != nil {
		if n := uint32(len(t.base.strings)); off < n {
			return t.base.text(off)
		} else {
			off -= n
		}
	}
	if int(off) >= len(t.strings) {
		return ""
	}
	s := t.strings[off:]
	return string(s[:max(0, bytes.IndexByte(s, 0))])
}

// Find returns the numbers of the types of this name and of one of these kinds,
// the base's not among them.
func (t *Types) Find(name string, kinds ...Kind) (ids []ID) {
	for _, id := range t.Look(name)[0] {
		if slices.Contains(kinds, t.ByID(id).Kind()) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Look returns the type IDs for each of these names, without those of the base. It goes through
// all types once, for any number of names, and remembers the result: a caller with many names
// should pass all of them at first.
func (t *Types) Look(names ...string) [][]ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var unknown []string
	for _, n := range names {
		if _, ok := t.known[n]; !ok {
			t.known[n] = nil
			unknown = append(unknown, n)
		}
	}
	if places := t.places(unknown); len(places) > 0 {
		t.passes++
		byPlace := make(map[uint32]string, len(places))
		var likely [1 << 10]uint64 // most types are told apart by a few bits of where their name is
		for name, off := range places {
			byPlace[off] = name
			likely[off>>6%uint32(len(likely))] |= 1 << (off % 64)
		}
		for id, off := t.first, 0; off < len(t.types); id++ {
			at := word(t.types, off)
			if likely[at>>6%uint32(len(likely))]>>(at%64)&1 != 0 {
				if name, ok := byPlace[at]; ok {
					t.known[name] = append(t.known[name], id)
				}
			}
			off += sizeOf(word(t.types, off+4))
		}
	}
	out := make([][]ID, len(names))
	for i, n := range names {
		out[i] = t.known[n]
	}
	return out
}

// Passes is how often Look went through all types.
func (t *Types) Passes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passes
}

// places gives the offsets of those strings that are there.
func (t *Types) places(names []string) map[string]uint32 {
	out := make(map[string]uint32, len(names))
	start := uint32(0)
	if t.base != nil { // what it has, a module has not again
		t.base.mu.Lock()
		out = t.base.places(names)
		t.base.mu.Unlock()
		start = uint32(len(t.base.strings))
	}
	var unknown []string
	for _, n := range names {
		off, ok := t.placed[n]
		switch {
		case !ok:
			unknown = append(unknown, n)
		case off != absent:
			out[n] = off
		}
	}
	t.scan(unknown, start)
	for _, n := range unknown {
		if off := t.placed[n]; off != absent {
			out[n] = off
		}
	}
	return out
}

// absent is in placed what is not there.
const absent = ^uint32(0)

// scan goes through the strings for names.
func (t *Types) scan(names []string, start uint32) {
	if len(names) == 0 {
		return
	}
	// Most strings are told apart by their first letter and length alone.
	var likely [256][64]bool
	for _, n := range names {
		t.placed[n] = absent
		if n != "" {
			likely[n[0]][len(n)&63] = true
		}
	}
	for off := 0; off < len(t.strings); {
		n := bytes.IndexByte(t.strings[off:], 0)
		if n < 0 {
			break
		}
		if n > 0 && likely[t.strings[off]][n&63] {
			if _, ok := t.placed[string(t.strings[off:off+n])]; ok {
				t.placed[string(t.strings[off:off+n])] = start + uint32(off)
			}
		}
		off += n + 1
	}
}

// A Param is a parameter of a function.
type Param struct {
	Pointer bool
	To      string // what it points to, if that has a name
}

// Function gives the parameters of a function; false if there is none of that name,
// or more than one, of which a probe would see only one.
func (t *Types) Function(name string) ([]Param, bool) {
	ids := t.Find(name, Func)
	if len(ids) != 1 {
		return nil, false
	}
	return t.params(t.ByID(ids[0]).target()), true
}

// Tracepoint gives the arguments of a tracepoint as programs get them; false if
// there is none of that name.
func (t *Types) Tracepoint(name string) ([]Param, bool) {
	for _, id := range t.Find("btf_trace_"+name, Typedef) {
		ptr := t.ByID(t.ByID(id).target())
		if ptr.Kind() != Pointer {
			continue
		}
		if all := t.params(ptr.target()); len(all) > 0 {
			return all[1:], true // the first is the tracepoint's own data
		}
	}
	return nil, false
}

func (t *Types) params(proto ID) (out []Param) {
	p := t.ByID(proto)
	if p.Kind() != FuncProto {
		return nil
	}
	for i := range p.length() {
		var one Param
		if typ := t.plain(p.word(typeSize + i*paramSize + 4)); typ.Kind() == Pointer {
			one = Param{Pointer: true, To: t.plain(typ.target()).Name()}
		}
		out = append(out, one)
	}
	return out
}

// deepest is more names and qualifiers than a type has. It ends the search in a type that refers to
// itself.
const deepest = 64

// plain is a type without what only qualifies or names it.
func (t *Types) plain(id ID) Type {
	for range deepest {
		typ := t.ByID(id)
		switch typ.Kind() {
		case Typedef, Volatile, Const, Restrict, TypeTag:
			id = typ.target()
		default:
			return typ
		}
	}
	return Type{}
}

// A Value is one of an enum's.
type Value struct {
	Name  string
	Value uint32
}

// Enum gives the values of an enum, in its order.
func (t *Types) Enum(name string) (out []Value) {
	ids := t.Find(name, Enum)
	if len(ids) == 0 {
		return nil
	}
	e := t.ByID(ids[0])
	for i := range e.length() {
		at := typeSize + i*valueSize
		out = append(out, Value{t.text(e.word(at)), e.word(at + 4)})
	}
	return out
}
