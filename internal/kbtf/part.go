// SPDX-License-Identifier: Apache-2.0

package kbtf

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// How much of a type is in a part.
const (
	none  = iota
	shell // its name, without its members
	whole
)

// A part is what is being cut out of a kernel's types.
type part struct {
	*Types
	kept []uint8 // of each type, how much
	todo []ID
}

// Part returns the types of these names and the types that they contain, under the type IDs of the kernel. The other types
// have neither name nor content, and pointers do not lead to them: programs name the types that they read through a pointer.
func (t *Types) Part(names []string) (*btf.Spec, error) {
	p := &part{Types: t, kept: make([]uint8, t.count+1)}
	for _, ids := range t.Look(names...) {
		for _, id := range ids {
			p.keep(id, whole)
		}
	}
	for len(p.todo) > 0 {
		id := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		p.follow(t.ByID(id))
	}
	raw, ids := p.write()
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err == nil {
		err = renumber(spec, ids)
	}
	if err != nil {
		return nil, fmt.Errorf("a part of the kernel's BTF: %w", err)
	}
	return spec, nil
}

func (p *part) keep(id ID, much uint8) {
	if id != 0 && int(id) < len(p.kept) && p.kept[id] < much {
		if p.ByID(id).Kind() == DeclTag { // it is not a type, only of one
			return
		}
		p.kept[id] = much
		if much == whole {
			p.todo = append(p.todo, id)
		}
	}
}

func (p *part) has(id ID) bool { return int(id) < len(p.kept) && p.kept[id] != none }

// follow keeps the types that a type contains.
func (p *part) follow(t Type) {
	switch t.Kind() {
	case Struct, Union:
		for i := range t.length() {
			p.keep(t.word(typeSize+i*memberSize+4), whole)
		}
	case Array:
		p.keep(t.word(typeSize), whole)
		p.keep(t.word(typeSize+4), whole)
	case Typedef, Volatile, Const, Restrict, TypeTag, Func, Var:
		p.keep(t.target(), whole)
	case Pointer:
		if p.ByID(t.target()).Kind() == FuncProto { // as with tracepoints
			p.keep(t.target(), whole)
		}
	case FuncProto:
		p.keep(t.target(), whole)
		for i := range t.length() {
			p.param(t.word(typeSize + i*paramSize + 4))
		}
	}
}

// param keeps the type of a parameter, and the name of what it points to.
func (p *part) param(id ID) {
	p.keep(id, whole)
	t := p.ByID(id)
	if t.Kind() != Pointer {
		return
	}
	id = t.target()
	for range deepest {
		switch t = p.ByID(id); t.Kind() {
		case Volatile, Const, Restrict, TypeTag:
			p.keep(id, whole)
			id = t.target()
			continue
		case Struct, Union:
			p.keep(id, shell)
		}
		return
	}
}

// write makes BTF of what is kept, without gaps, and gives the type IDs of the kernel. The types refer to each other by
// these. The first type stands for all that are not kept.
func (p *part) write() (raw []byte, ids []ID) {
	w := &writer{of: p, out: make([]byte, headerSize, 1<<17), strings: []byte{0}, placed: map[uint32]uint32{0: 0}}
	w.out = append(w.out, blank[:]...)
	ids = []ID{0, 0}
	for id := 1; id < len(p.kept); id++ {
		if p.kept[id] != none {
			w.add(p.ByID(ID(id)), p.kept[id])
			ids = append(ids, ID(id))
		}
	}
	types := uint32(len(w.out) - headerSize)
	for i, n := range []uint32{1<<16 | magic, headerSize, 0, types, types, uint32(len(w.strings))} {
		binary.NativeEndian.PutUint32(w.out[4*i:], n)
	}
	return append(w.out, w.strings...), ids
}

// blank is a declaration without a name.
var blank = func() (b [typeSize]byte) {
	binary.NativeEndian.PutUint32(b[4:], uint32(Forward)<<24)
	return b
}()

// A writer makes the BTF of a part.
type writer struct {
	of      *part
	out     []byte // header and types
	strings []byte
	placed  map[uint32]uint32 // strings: where they were, and where they are now
}

func (w *writer) word(n uint32) { w.out = binary.NativeEndian.AppendUint32(w.out, n) }

func (w *writer) text(off uint32) {
	now, ok := w.placed[off]
	if !ok {
		now = uint32(len(w.strings))
		w.strings = append(append(w.strings, w.of.text(off)...), 0)
		w.placed[off] = now
	}
	w.word(now)
}

// add writes a type, or the shell of one.
func (w *writer) add(t Type, much uint8) {
	w.text(t.word(0))
	if much == shell {
		w.word(t.word(4) &^ 0xffff)
		w.word(t.word(8))
		return
	}
	w.word(t.word(4))
	if t.Kind() == Pointer && !w.of.has(t.target()) {
		w.word(0)
		return
	}
	w.word(t.word(8))
	switch t.Kind() {
	case Struct, Union, Enum64:
		w.named(t, memberSize)
	case Enum:
		w.named(t, valueSize)
	case FuncProto:
		w.named(t, paramSize)
	default:
		w.out = append(w.out, t.data[typeSize:]...)
	}
}

// named writes members, values or parameters, each of which begins with its name.
func (w *writer) named(t Type, size int) {
	for at := typeSize; at < len(t.data); at += size {
		w.text(t.word(at))
		w.out = append(w.out, t.data[at+4:at+size]...)
	}
}
