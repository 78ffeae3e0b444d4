// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"bytes"
	"slices"

	"seine/internal/row"
)

// FilePath is struct file_path of path.h: names from a file's own upwards.
type FilePath struct {
	Len   uint32
	Ends  PathEnd
	Names [708]byte
}

// PathEnd is where a FilePath ends: enum path_end.
type PathEnd uint32

// Where paths end.
const (
	PathCut   PathEnd = iota // there is more above
	PathWhole                // up to the process's root
	PathAlone                // a name in no directory
)

func (p *FilePath) String() string {
	names := bytes.Split(p.Names[:min(int(p.Len), len(p.Names))], []byte{0})
	names = names[:len(names)-1] // after the last NUL
	slices.Reverse(names)
	s := string(bytes.Join(names, []byte{'/'}))
	switch p.Ends {
	case PathWhole:
		return "/" + s
	case PathCut:
		return ".../" + s
	}
	return s
}

// Kind says that a FilePath is text.
func (FilePath) Kind() row.Kind { return row.Text }

// Cell gives the path.
func (p *FilePath) Cell(c *row.Cell) { c.SetText(p.String()) }
