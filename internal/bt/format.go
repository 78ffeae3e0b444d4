// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A tpField is one field of a tracepoint, as its format file gives it.
type tpField struct {
	name, decl string
	off, size  int
	signed     bool
	dataLoc    bool // (length<<16 | offset) of a string or array behind the fields
	array      int  // elements; 0: none
}

// readFormat reads events/GROUP/NAME/format. The common_ fields are left out.
func readFormat(group, name string) ([]tpField, error) {
	root, err := host.Tracefs()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(root, "events", group, name, "format"))
	if err != nil {
		return nil, err
	}
	return parseFormat(string(data)), nil
}

// parseFormat reads lines like
//
//	field:const char * name;	offset:16;	size:8;	signed:0;
//	field:__data_loc char[] dev;	offset:8;	size:4;	signed:1;
func parseFormat(text string) (fields []tpField) {
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "field:")
		if !ok {
			continue
		}
		f := tpField{}
		for i, part := range strings.Split(line, ";") {
			part = strings.TrimSpace(part)
			key, value, _ := strings.Cut(part, ":")
			n, _ := strconv.Atoi(value)
			switch {
			case i == 0:
				f.declare(part)
			case key == "offset":
				f.off = n
			case key == "size":
				f.size = n
			case key == "signed":
				f.signed = n == 1
			}
		}
		if f.name != "" && !strings.HasPrefix(f.name, "common_") {
			fields = append(fields, f)
		}
	}
	return fields
}

func (f *tpField) declare(decl string) {
	if rest, ok := strings.CutPrefix(decl, "__data_loc "); ok {
		f.dataLoc, decl = true, rest
	} else if rest, ok := strings.CutPrefix(decl, "__rel_loc "); ok {
		f.dataLoc, decl = true, rest
	}
	i := strings.LastIndexAny(decl, " *")
	if i < 0 {
		return
	}
	f.decl, f.name = strings.TrimSpace(decl[:i+1]), decl[i+1:]
	if n, rest, ok := strings.Cut(f.name, "["); ok {
		f.name = n
		f.array, _ = strconv.Atoi(strings.TrimSuffix(rest, "]"))
		if f.array == 0 {
			f.array = -1 // of a length that only the compiler knew
		}
	}
	f.decl = strings.TrimSuffix(strings.ReplaceAll(f.decl, "[]", ""), " ")
}

// deviceFields are the names of network devices in tracepoints, by group. They
// have 16 bytes: as keys they cost a third of what strings of any length do.
var deviceFields = map[string]string{"net": "name", "napi": "dev_name", "qdisc": "dev", "neigh": "dev"}

// typ is the type of a field. Pointers of system calls' arguments lead to user
// memory.
func (c *checker) fieldType(t *Target, f *tpField) *Type {
	space := InKernel
	if t.Group == "syscalls" && strings.HasPrefix(t.Name, "sys_enter_") {
		space = InUser
	}
	if f.dataLoc {
		if strings.HasSuffix(f.decl, "char") {
			p := pointerTo(&Type{Kind: Number, Size: 1, Signed: true, Char: true}, InKernel)
			if deviceFields[t.Group] == f.name {
				p.Len = unix.IFNAMSIZ
			}
			return p
		}
		return pointerTo(c.declType(f, 1), InKernel)
	}
	if f.array != 0 {
		n := f.array
		elem := c.declType(f, 0)
		if n < 0 || elem.Size*n != f.size {
			if elem.Size == 0 || f.size%elem.Size != 0 {
				elem = typeU8
			}
			n = f.size / elem.Size
		}
		return arrayOf(elem, n)
	}
	if stars := strings.Count(f.decl, "*"); stars > 0 {
		decl := *f
		return &Type{Kind: Pointer, Size: 8, Space: space, elem: func() *Type { return c.pointee(&decl, stars-1, space) }}
	}
	if f.size > 8 || f.size != 1 && f.size != 2 && f.size != 4 && f.size != 8 {
		if e := c.declType(f, 0); e.Kind == Record {
			return e
		}
		return arrayOf(typeU8, f.size)
	}
	if space == InUser { // a register, of which the call takes as much as its type has
		if d := c.declType(f, 0); d.Kind == Number && d.Size > 0 && d.Size <= f.size {
			return &Type{Kind: Number, Size: d.Size, Signed: d.Signed, Space: space}
		}
	}
	return &Type{Kind: Number, Size: f.size, Signed: f.signed, Space: space, Bool: f.decl == "bool"}
}

// declType resolves the declaration without stars and array; what it cannot
// resolve is bytes of the field's size.
func (c *checker) declType(f *tpField, size int) *Type {
	if t := c.pointee(f, 0, InKernel); t.Kind != None {
		return t
	}
	return &Type{Kind: Number, Size: max(size, 1)}
}

func (c *checker) pointee(f *tpField, stars int, space Space) *Type {
	n := TypeName{}
	for _, w := range strings.Fields(strings.ReplaceAll(f.decl, "*", " ")) {
		switch w {
		case "const", "volatile", "__user":
		case "struct", "union", "enum":
			n.Tag = w
		default:
			n.Name = strings.TrimSpace(n.Name + " " + w)
		}
	}
	n.Stars = stars
	var t *Type
	func() { // an unknown type is no error here
		defer func() { recover() }()
		t = c.resolve(&n)
	}()
	if t == nil {
		return &Type{Kind: None, Space: space}
	}
	inSpace := *t
	inSpace.Space = space
	return &inSpace
}
