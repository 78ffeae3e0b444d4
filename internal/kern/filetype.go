// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"strconv"
	"strings"

	"seine/internal/row"
)

// FileType is struct file_type of filetype.h: the kind of a file.
type FileType struct {
	Num    uint16
	Family uint16
	Name   [28]byte
}

// fileKinds are names by the upper bits of a file's mode.
var fileKinds = map[uint16]string{
	1: "pipe", 2: "char", 4: "directory", 6: "block", 8: "regular", 10: "link", 12: "socket", 16: "anon",
}

func (t *FileType) String() string {
	s, ok := fileKinds[t.Num]
	switch {
	case t.Num == 12 && t.Family != 0:
		s += ":" + Family(t.Family).String()
	case t.Num == 16:
		name, _, _ := strings.Cut(string(t.Name[:]), "\x00")
		s += ":" + strings.Trim(name, "[]")
	case !ok:
		s = "mode:" + strconv.FormatUint(uint64(t.Num)<<12, 8)
	}
	return s
}

// Kind says that a FileType is shown by name.
func (FileType) Kind() row.Kind { return row.Text }

// Cell gives the name: regular, socket:inet, anon:eventfd.
func (t *FileType) Cell(c *row.Cell) { c.SetText(t.String()) }
