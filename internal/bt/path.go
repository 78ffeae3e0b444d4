// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// path() goes from a struct path up to the root and keeps the names on the way. They are joined
// when they are printed. So it works in every probe, while the kernel's own helper works in few
// functions.
const (
	pathSteps = 20 // names, and mounts that are crossed
	pathName  = 40 // bytes of a name
)

// pathFields are where the structs on the way have their fields.
type pathFields struct{ mnt, dentry, parent, name, root, mount, mountParent, mountPoint int }

func (k *kernel) pathFields() (f pathFields, ok bool) {
	spec, err := k.types()
	if err != nil {
		return f, false
	}
	at := func(name string, fields ...string) int {
		var s *btf.Struct
		off := 0
		for _, field := range fields {
			if name != "" && spec.TypeByName(name, &s) != nil {
				return -1
			}
			m := findMember(s.Members, field, InKernel, 0, 0)
			if m == nil {
				return -1
			}
			off += m.off
			name = strings.TrimPrefix(m.t.String(), "struct ")
		}
		return off
	}
	f = pathFields{at("path", "mnt"), at("path", "dentry"), at("dentry", "d_parent"), at("dentry", "d_name", "name"), at("vfsmount", "mnt_root"),
		at("mount", "mnt"), at("mount", "mnt_parent"), at("mount", "mnt_mountpoint")}
	return f, min(f.mnt, f.dentry, f.parent, f.name, f.root, f.mount, f.mountParent, f.mountPoint) >= 0
}

func (c *checker) path(e *Call) *Type {
	t := c.expr(e.Args[0])
	if t.Kind == Pointer {
		t = t.Elem()
	}
	if t.Kind != Record || t.Rec.name != "struct path" {
		c.failAt(e.Args[0], "path() needs a struct path, not %s", e.Args[0].typ())
	}
	if len(e.Args) == 2 && !c.expr(e.Args[1]).number() {
		c.failAt(e.Args[1], "a length is a number")
	}
	if _, ok := c.kernel.pathFields(); !ok {
		c.failAt(e, "path() needs the kernel's BTF, with struct mount")
	}
	return &Type{Kind: PathOf}
}

// path writes the names on the way from a struct path to the root.
func (e *emitter) path(x *Call, dst loc) {
	f, _ := e.c.kernel.pathFields()
	e.zero(dst, (&Type{Kind: PathOf}).store())
	d, m, other, base := e.slot(), e.slot(), e.slot(), e.slot()
	if x.Args[0].typ().Kind == Pointer {
		e.scalar(x.Args[0])
	} else {
		e.placeAddress(e.place(x.Args[0]))
	}
	e.store(base, asm.R0)
	read := func(to, from loc, off int) {
		e.load(asm.R3, from)
		e.add(asm.Add.Imm(asm.R3, int32(off)))
		e.readTo(to, 8, InKernel)
	}
	read(m, base, f.mnt)
	read(d, base, f.dentry)
	done := e.label("path")
	for i := range pathSteps {
		name, next := e.label("name"), e.label("up")
		read(other, m, f.root)
		e.load(asm.R1, d)
		e.load(asm.R2, other)
		e.add(asm.JNE.Reg(asm.R1, asm.R2, name))
		// The root of what is mounted: go on where it is mounted.
		e.load(asm.R1, m)
		e.add(asm.Sub.Imm(asm.R1, int32(f.mount)))
		e.store(base, asm.R1)
		read(other, base, f.mountParent)
		e.load(asm.R1, base)
		e.load(asm.R2, other)
		e.add(asm.JEq.Reg(asm.R1, asm.R2, done))
		read(d, base, f.mountPoint)
		e.load(asm.R1, other)
		e.add(asm.Add.Imm(asm.R1, int32(f.mount)))
		e.store(m, asm.R1)
		e.add(asm.Ja.Label(next))
		e.here(name)
		read(other, d, f.parent)
		read(base, d, f.name)
		e.load(asm.R3, base)
		e.readStringTo(dst.at(i*pathName), pathName, InKernel)
		e.load(asm.R1, d)
		e.load(asm.R2, other)
		e.add(asm.JEq.Reg(asm.R1, asm.R2, done)) // mounted nowhere: a pipe, a socket
		e.store(d, asm.R2)
		e.here(next)
	}
	e.here(done)
}

// pathText puts the names together.
func pathText(b []byte) string {
	var names []string
	for i := range pathSteps {
		if name := cstring(b[i*pathName : (i+1)*pathName]); name != "" && name != "/" {
			names = append(names, clean(name))
		}
	}
	slices.Reverse(names)
	return "/" + strings.Join(names, "/")
}
