// SPDX-License-Identifier: Apache-2.0

package kern

import "seine/internal/row"

// Pending marks an operation that has begun and not ended: true, or absent.
type Pending uint32

// Kind is Bool.
func (Pending) Kind() row.Kind { return row.Bool }

// Cell is true or nothing.
func (p *Pending) Cell(c *row.Cell) {
	*c = row.Cell{}
	if *p != 0 {
		*c = row.Cell{Kind: row.Bool, N: 1}
	}
}
