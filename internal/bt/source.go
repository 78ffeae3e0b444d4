// SPDX-License-Identifier: Apache-2.0

// Package bt runs programs of the bpftrace language. It parses them, takes
// types from the kernel's BTF and the tracepoints' formats, and emits BPF
// instructions: no LLVM, no headers.
//
//	source ─► preprocess ─► parse ─► expand ─► check ─► emit ─► load ─► run
//	                        tree     targets   types    asm     kernel  printf, maps
package bt

import (
	"fmt"
	"strings"
)

// A Pos is a byte offset in the program's text.
type Pos int

// A Source is a program's text and the name by which errors call it.
type Source struct {
	Name  string
	Text  string
	Dirs  []string // where #include <file> is looked for
	parts []part   // files that were imported
}

// Position gives line and column in their file, both from 1.
func (s *Source) Position(p Pos) (line, col int) {
	at := min(max(int(p), 0), len(s.Text))
	before := s.Text[min(s.part(p).start, at):at]
	line = 1 + strings.Count(before, "\n")
	return line, 1 + len(before) - (strings.LastIndexByte(before, '\n') + 1)
}

// An Error is something wrong with a program, and where.
type Error struct {
	Src      *Source
	Pos, End Pos
	Msg      string
}

// Error gives name, line, column and message on one line.
func (e *Error) Error() string {
	if e.Src == nil {
		return e.Msg
	}
	line, col := e.Src.Position(e.Pos)
	return fmt.Sprintf("%s:%d:%d: %s", e.Src.part(e.Pos).name, line, col, e.Msg)
}

// Show is the line of the program with a caret under the place, two lines.
func (e *Error) Show() string {
	if e.Src == nil {
		return ""
	}
	line, col := e.Src.Position(e.Pos)
	lines := strings.Split(e.Src.Text[e.Src.part(e.Pos).start:], "\n")
	if line > len(lines) {
		return ""
	}
	text := strings.TrimRight(lines[line-1], "\r")
	// A tab in the text is a tab before the caret, so that they line up.
	var pad strings.Builder
	for _, c := range text[:min(col-1, len(text))] {
		if c == '\t' {
			pad.WriteByte('\t')
		} else {
			pad.WriteByte(' ')
		}
	}
	n := max(1, min(int(e.End-e.Pos), len(text)-col+1))
	return "    " + text + "\n    " + pad.String() + "^" + strings.Repeat("~", n-1)
}

// where says where a place is, in a message about another one.
func (s *Source) where(p Pos) string {
	line, col := s.Position(p)
	if f := s.part(p); f.start > 0 {
		return fmt.Sprintf("from %s, line %d, column %d", f.name, line, col)
	}
	return fmt.Sprintf("from line %d, column %d", line, col)
}

// errorf makes an Error for the place of a node.
func (s *Source) errorf(pos, end Pos, format string, args ...any) *Error {
	return &Error{Src: s, Pos: pos, End: end, Msg: fmt.Sprintf(format, args...)}
}
