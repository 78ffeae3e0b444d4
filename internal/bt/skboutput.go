// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/binary"
	"os"

	"github.com/cilium/ebpf/asm"

	"seine/internal/kern"
)

// skbMost is how much of a packet skboutput() copies.
const skbMost = 4096

// skbOutput is skboutput(path, skb, length, offset). It copies the bytes at skb->data, without the
// pages that the packet has elsewhere.
func (c *checker) skbOutput(e *Call) *Type {
	c.text(e.Args[0])
	for _, a := range e.Args[1:] {
		if t := c.expr(a); !t.number() && t != unknown {
			c.failAt(a, "skboutput() takes a file, a struct sk_buff *, a length and an offset, not %s", t)
		}
	}
	b := &builder{node{pos: e.pos, end: e.end}}
	long := func(x Expr) Expr { return &Cast{b.node, TypeName{pos: e.pos, end: e.end, Name: "int64"}, x} }
	minus := func(x, y Expr) Expr { return &Binary{b.node, "-", x, y} }
	lesser := func(x, y Expr) Expr { return &Ternary{b.node, &Binary{b.node, "<", x, y}, x, y} }
	skb := func() Expr {
		return &Cast{b.node, TypeName{pos: e.pos, end: e.end, Tag: "struct", Name: "sk_buff", Stars: 1}, e.Args[1]}
	}
	size, off := long(b.field(skb(), "len")), long(e.Args[3])
	here := minus(minus(size, long(b.field(skb(), "data_len"))), off)
	n := lesser(long(e.Args[2]), here)
	n = &Ternary{b.node, &Binary{b.node, "<", n, &Int{node: b.node}}, &Int{node: b.node}, n}
	bytes := b.call("buf", &Binary{b.node, "+", b.field(skb(), "data"), off}, n)
	e.as = &Tuple{node: b.node, Elems: []Expr{bytes, minus(size, off), b.call("nsecs", &Ident{b.node, "monotonic"})}}
	for _, x := range e.as.Elems {
		c.expr(x)
	}
	bytes.setType(&Type{Kind: Buffer, Len: skbMost})
	return typeS64
}

// skbOutput sends a packet, and leaves 0 in R0.
func (e *emitter) skbOutput(x *Call) {
	e.send(x, &action{kind: x.Name, format: x.Args[0].(*Str).V, probe: e.target.Kind.String()}, x.as.Elems)
	e.add(asm.Mov.Imm(asm.R0, 0))
}

// packet writes a packet into a file of libpcap's format: link type RAW, microseconds.
func (r *Run) packet(ev *Event) {
	f := r.files[ev.a.format]
	if f == nil {
		var err error
		if f, err = os.Create(ev.a.format); err != nil {
			r.p.opts.note("skboutput: %v", err)
			r.errors++
			return
		}
		if r.files == nil {
			r.files = map[string]*os.File{}
		}
		r.files[ev.a.format] = f
		head := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
		head = append(head, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		head = binary.LittleEndian.AppendUint32(head, skbMost)
		r.filed(f.Write(binary.LittleEndian.AppendUint32(head, 101)))
	}
	t := ev.a.types[0]
	data := ev.data[8 : 8+min(int(word(ev.data)), t.Len)]
	size := max(uint32(word(ev.data[t.store():])), uint32(len(data)))
	at := kern.Wall(kern.Mono(word(ev.data[t.store()+8:])))
	var head []byte
	for _, v := range []uint32{uint32(at.Unix()), uint32(at.Nanosecond() / 1000), uint32(len(data)), size} {
		head = binary.LittleEndian.AppendUint32(head, v)
	}
	r.filed(f.Write(append(head, data...)))
}

// filed reports a write that failed.
func (r *Run) filed(_ int, err error) {
	if err != nil {
		r.errors++
		r.p.opts.note("skboutput: %v", err)
	}
}

func (r *Run) closeFiles() {
	for _, f := range r.files {
		r.filed(0, f.Close())
	}
}
