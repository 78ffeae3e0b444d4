// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"encoding/binary"

	"seine/internal/row"
)

// A Frame is one function of a stack.
type Frame struct {
	Sym    string // demangled; empty when unknown
	Off    uint64 // from the symbol's start, or the address when Sym is empty
	Module string // vmlinux, a kernel module, the mapped file's path; empty when unknown
}

// A Stack is a call stack, innermost frame first.
type Stack struct {
	Frames []Frame
	Broken bool // ends early, most likely because frame pointers are missing
}

// StackID is the id of a stack in the map stacks; negative when there is none.
type StackID int32

// Kind says that a StackID becomes an object when it is named.
func (StackID) Kind() row.Kind { return row.Object }

// Cell gives the id; a Namer makes a *Stack of it.
func (s *StackID) Cell(c *row.Cell) { c.SetInt(int64(*s)) }

// Same is equal for stacks of the same functions.
func (s *Stack) Same() string {
	var b []byte
	for _, f := range s.Frames {
		b = append(b, f.Module...)
		b = append(b, 0)
		b = append(b, f.Sym...)
		b = binary.LittleEndian.AppendUint64(append(b, 0), f.Off)
	}
	return string(b)
}

// Fold does nothing: stacks that are folded are the same.
func (s *Stack) Fold(any) {}
