// SPDX-License-Identifier: Apache-2.0

package kern

import "seine/internal/row"

// Via is how a program made a request: by a system call, or through io_uring.
type Via uint32

// Kind says that a Via is shown by name.
func (Via) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (v *Via) Cell(c *row.Cell) { c.SetWord(uint64(*v), []string{"syscall", "uring"}) }
