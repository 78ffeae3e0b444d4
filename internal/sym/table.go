// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"cmp"
	"math"
	"slices"
	"sync"
)

// Bounds on one table, whatever its source says.
const (
	maxFuncs = 5_000_000
	maxNames = 256 << 20 // bytes of all names together
	maxName  = 4096      // bytes of one name; longer ones are cut
)

// overlap is how many functions before the nearest one are asked whether they
// reach up to an address: hand-written assembly has functions inside functions.
const overlap = 8

// A table holds functions sorted by address: 16 bytes each and the name, and no
// pointer per function for the garbage collector to follow. It does not change
// once built, but for the names that were demangled so far.
type table struct {
	addr  []uint64
	size  []uint32
	name  []uint32 // where in names the name starts; one more at the end
	names string
	mod   []uint16 // only for the kernel: index into mods
	mods  []string

	pretty pretty
}

// find returns the index of the function that addr is in, or -1.
func (t *table) find(addr uint64) int {
	lo, hi := 0, len(t.addr)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); t.addr[mid] <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo - 1; i >= 0 && i >= lo-overlap; i-- {
		if addr-t.addr[i] < uint64(t.size[i]) {
			return i
		}
	}
	return -1
}

// raw returns the name of function i as its source spells it.
func (t *table) raw(i int) string { return t.names[t.name[i]:t.name[i+1]] }

// sym returns the demangled name of function i.
func (t *table) sym(i int) string {
	name := t.raw(i)
	if !mangled(name) {
		return name
	}
	return t.pretty.get(uint32(i), name)
}

// bytes is about what the table takes; nothing if it is empty.
func (t *table) bytes() int {
	if len(t.addr) == 0 {
		return 0
	}
	return 200 + 16*len(t.addr) + 2*len(t.mod) + len(t.names)
}

// maxPretty bounds the demangled names that one table remembers, in bytes; then
// it starts anew.
const maxPretty = 1 << 20

// A pretty remembers demangled names: demangling takes microseconds, and a
// busy stack is shown again and again.
type pretty struct {
	mu    sync.RWMutex
	names map[uint32]string
	bytes int
}

func (p *pretty) get(i uint32, raw string) string {
	p.mu.RLock()
	name, ok := p.names[i]
	p.mu.RUnlock()
	if ok {
		return name
	}
	name = demangled(raw)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil || p.bytes > maxPretty {
		p.names, p.bytes = make(map[uint32]string), 0
	}
	p.names[i] = name
	p.bytes += len(name) + 32
	return name
}

// A builder collects functions in any order and makes a table of them.
type builder struct {
	funcs []function
	text  []byte
	mods  []string
}

type function struct {
	addr uint64
	off  uint32 // of the name in text; grows with each function added
	size uint32
	len  uint16 // of the name; 0 only ends what is before
	mod  uint16
	soft bool // size is not known: ends at the next function, or at size
	rank uint8
}

func (a function) end() uint64 { return a.addr + uint64(a.size) }

// add takes one function and reports whether there is room for more. An
// address that wraps around is left out.
func (b *builder) add(f function, size uint64, name []byte) bool {
	name = name[:min(len(name), maxName)]
	if len(b.funcs) >= maxFuncs || len(b.text)+len(name) > maxNames {
		return false
	}
	f.size = uint32(min(size, math.MaxUint32))
	if f.addr+uint64(f.size) < f.addr {
		return true
	}
	f.off = uint32(len(b.text))
	f.len = uint16(len(name))
	b.text = append(b.text, name...)
	b.funcs = append(b.funcs, f)
	return true
}

// sort puts functions in order of address. Of those at one address the one to
// be shown comes last, where find looks first: the highest rank, then the
// shortest name, then the one added first.
func (b *builder) sort() {
	slices.SortFunc(b.funcs, func(x, y function) int {
		return cmp.Or(
			cmp.Compare(x.addr, y.addr),
			cmp.Compare(x.rank, y.rank),
			cmp.Compare(y.len, x.len),
			cmp.Compare(y.off, x.off),
		)
	})
}

// settle gives soft functions their size: up to the next one.
func (b *builder) settle() {
	next := uint64(math.MaxUint64)
	for i := len(b.funcs) - 1; i >= 0; i-- {
		f := &b.funcs[i]
		if i+1 < len(b.funcs) && b.funcs[i+1].addr != f.addr {
			next = b.funcs[i+1].addr
		}
		if f.soft {
			f.size = uint32(min(uint64(f.size), next-f.addr))
		}
	}
}

// single keeps one name per address. A function whose size is known wins over
// one without, because of rank.
func (b *builder) single() {
	out := b.funcs[:0]
	for i, f := range b.funcs {
		if i+1 == len(b.funcs) || b.funcs[i+1].addr != f.addr {
			out = append(out, f)
		}
	}
	b.funcs = out
}

// newest drops each function that a later one was written over: a JIT compiler
// uses memory again. What remains does not overlap.
func (b *builder) newest() {
	out := b.funcs[:0]
	for _, f := range b.funcs {
		if n := len(out); n > 0 && out[n-1].end() > f.addr {
			if out[n-1].off > f.off {
				continue
			}
			out = out[:n-1]
		}
		out = append(out, f)
	}
	b.funcs = out
}

// table copies what was collected into arrays of the right size.
func (b *builder) table() *table {
	n, size := 0, 0
	for _, f := range b.funcs {
		if f.len > 0 && f.size > 0 {
			n++
			size += int(f.len)
		}
	}
	t := &table{
		addr: make([]uint64, 0, n),
		size: make([]uint32, 0, n),
		name: make([]uint32, 0, n+1),
	}
	if b.mods != nil {
		t.mods, t.mod = b.mods, make([]uint16, 0, n)
	}
	names := make([]byte, 0, size)
	for _, f := range b.funcs {
		if f.len == 0 || f.size == 0 {
			continue
		}
		t.addr = append(t.addr, f.addr)
		t.size = append(t.size, f.size)
		t.name = append(t.name, uint32(len(names)))
		names = append(names, b.text[f.off:f.off+uint32(f.len)]...)
		if t.mod != nil {
			t.mod = append(t.mod, f.mod)
		}
	}
	t.name = append(t.name, uint32(len(names)))
	t.names = string(names)
	return t
}
