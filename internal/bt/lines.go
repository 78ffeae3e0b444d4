// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"

	"seine/internal/sym"
)

// sourceText is @file:line of a frame of a user stack, for show_debug_info; nothing if the
// file has no DWARF.
func (r *Run) sourceText(t *Type, b []byte, f sym.Frame, innermost bool) string {
	if !r.p.set.lines || t.Kind != UStack || f.Module == "" {
		return ""
	}
	addr := f.Addr
	if !innermost {
		addr-- // it is where the call returns to
	}
	s, ok := r.procs.Spot(uint32(word(b[8:])), addr)
	if !ok {
		return ""
	}
	data, known := r.dwarfs[s.File]
	if !known {
		data = dwarfOf(s)
		if r.dwarfs == nil {
			r.dwarfs = map[any]*dwarf.Data{}
		}
		r.dwarfs[s.File] = data
	}
	if data == nil {
		return ""
	}
	unit, err := data.Reader().SeekPC(s.Linked)
	if err != nil {
		return ""
	}
	lines, err := data.LineReader(unit)
	if err != nil || lines == nil {
		return ""
	}
	var e dwarf.LineEntry
	if lines.SeekPC(s.Linked, &e) != nil || e.File == nil {
		return ""
	}
	return fmt.Sprintf("@%s:%d", e.File.Name, e.Line)
}

// dwarfOf reads the DWARF of a file, nil if it has none.
func dwarfOf(s sym.Spot) *dwarf.Data {
	src := s.Open()
	if src == nil {
		return nil
	}
	defer src.Close()
	f, err := elf.NewFile(src)
	if err != nil {
		return nil
	}
	data, err := f.DWARF()
	if err != nil {
		return nil
	}
	return data
}
