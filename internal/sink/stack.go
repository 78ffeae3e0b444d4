// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"strconv"
	"strings"

	"seine/internal/kern"
	"seine/internal/row"
)

// stacks writes the frames below a row, and an empty line.
func (t *tableSink) stacks(p *tablePlan, r *row.Row) {
	n := 0
	for _, i := range p.stacks {
		s, ok := r.Cells[i].Ref.(*kern.Stack)
		if !ok {
			continue
		}
		if n > 0 {
			t.endLine(append(t.buf, "    --"...))
		}
		n++
		t.frames(s)
	}
	// Without a user stack beside it, that there is none has to be said.
	if s := r.Schema; n == 0 && s.NoStack != "" && len(p.stacks) == 1 && s.Columns[p.stacks[0]].ID == "kstack" {
		t.endLine(append(append(t.buf, "    "...), s.NoStack...))
		n++
	}
	if n > 0 {
		t.endLine(t.buf)
	}
}

func (t *tableSink) frames(s *kern.Stack) {
	for i := range s.Frames {
		t.endLine(appendFrame(append(t.buf, "    "...), &s.Frames[i]))
	}
	if s.Broken {
		t.endLine(append(t.buf, "    (stack ends early: no frame pointers)"...))
	}
}

// appendFrame writes sym+off and the module, but not vmlinux, which is where a
// kernel symbol without a module is.
func appendFrame(b []byte, f *kern.Frame) []byte {
	if f.Sym == "" {
		b = strconv.AppendUint(append(b, "0x"...), f.Off, 16)
	} else {
		b = append(appendEscaped(b, f.Sym), '+')
		b = strconv.AppendUint(b, f.Off, 10)
	}
	if f.Module == "" || f.Module == "vmlinux" && f.Sym != "" {
		return b
	}
	return appendEscaped(append(b, ' '), bracketed(f.Module))
}

// bracketed is [app] for a file; [anon] and other modules that are none are so.
func bracketed(module string) string {
	if strings.HasPrefix(module, "[") {
		return module
	}
	return "[" + module[strings.LastIndexByte(module, '/')+1:] + "]"
}
