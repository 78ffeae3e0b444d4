// SPDX-License-Identifier: Apache-2.0

package sym

import "os"

// A Spot is a place in the code of a file that a process has mapped. Spots of one file
// have equal Files.
type Spot struct {
	File   fileKey
	Linked uint64 // the address as linked, as DWARF has it
	open   func() *os.File
}

// Spot finds the place of an address of a process that was Seen.
func (p *Processes) Spot(pid uint32, addr uint64) (Spot, bool) {
	pr := p.get(pid)
	if pr == nil {
		return Spot{}, false
	}
	m := findMapping(*pr.maps.Load(), addr)
	if m == nil || !m.elf() {
		return Spot{}, false
	}
	vaddr, ok := m.file.obj.vaddr(addr - m.start + m.off)
	if !ok {
		return Spot{}, false
	}
	return Spot{m.file.key, vaddr, func() *os.File { return pr.source(m) }}, true
}

// Open opens the file, or the one that has what was stripped from it; nil if it is not
// there any more. The caller closes it.
func (s Spot) Open() *os.File { return s.open() }

func (pr *process) source(m *mapping) (src *os.File) {
	take := func(pl place, at found, err error) {
		if err != nil {
			return
		}
		defer at.close()
		if keyOf(&at.stat) == m.file.key {
			_, src, _ = peek(pl, at, m.name)
		}
	}
	pr.visit(func(pl place) {
		at, err := pl.find(m)
		take(pl, at, err)
	})
	if src == nil { // the process is gone: the file may be one of ours
		pl := openPlace("/proc/self")
		defer pl.close()
		at, err := findIn(pl.root, m.name, 0)
		take(pl, at, err)
	}
	return src
}
