// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"seine/internal/row"
)

// iter:task and its like run a program for each object of a kind that the kernel
// has. What it gets is a struct bpf_iter__KIND.

const iterPrefix = "bpf_iter__"

// iterators are the kinds of iterators that need no more than their name.
func (k *kernel) iterators() (names []string) {
	spec, err := k.types()
	if err != nil {
		return nil
	}
	for t, err := range spec.All() {
		if err != nil {
			break
		}
		if s, ok := t.(*btf.Struct); ok {
			if name, ok := strings.CutPrefix(s.Name, iterPrefix); ok && !needsMap[name] {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// needsMap are the iterators over the entries of one map.
var needsMap = map[string]bool{"bpf_map_elem": true, "bpf_sk_storage_map": true, "sockmap": true, "cgroup": true}

// iterContext is what an iterator's program gets.
func (k *kernel) iterContext(name string) *btf.Struct {
	spec, err := k.types()
	var s *btf.Struct
	if err != nil || spec.TypeByName(iterPrefix+name, &s) != nil {
		return nil
	}
	return s
}

func (x *expander) iterator(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	switch {
	case len(parts) == 3 && parts[2] != "":
		if t.pin = parts[2]; !filepath.IsAbs(t.pin) {
			t.pin = filepath.Join("/sys/fs/bpf", t.pin)
		}
	case len(parts) != 2 || parts[1] == "":
		return nil, x.src.errorf(ap.pos, ap.end, "write an iterator as iter:task")
	}
	if needsMap[parts[1]] || wild(parts[1]) {
		return nil, x.src.errorf(ap.pos, ap.end, "iter:%s is not supported", parts[1])
	}
	t.Name, t.Func = parts[1], parts[1]
	t.Probe = "iter:" + t.Name
	if t.iter = x.k.iterContext(t.Name); t.iter != nil {
		return []*Target{&t}, nil
	}
	names := x.k.iterators()
	if near := row.Nearest(t.Name, names); near != "" {
		return nil, x.missing(ap, "this kernel has no iterator %s: did you mean %s?", t.Name, near)
	}
	return nil, x.missing(ap, "this kernel has no iterator %s: there are %s", t.Name, strings.Join(names, ", "))
}

// noObject leaves a program that is called at the end, without an object.
func (e *emitter) noObject(end string) {
	for _, m := range e.target.iter.Members {
		union, ok := m.Type.(*btf.Union)
		if m.Name == "meta" || !ok && m.Name == "" {
			continue
		}
		if ok && len(union.Members) > 0 {
			m.Type = union.Members[0].Type // __bpf_md_ptr(struct task_struct *, task)
			if m.Name == "" && union.Members[0].Name == "meta" {
				continue
			}
		}
		if _, pointer := skipQualifiers(m.Type).(*btf.Pointer); pointer {
			e.add(asm.LoadMem(asm.R0, asm.R6, int16(m.Offset.Bytes()), asm.DWord), asm.JEq.Imm(asm.R0, 0, end))
		}
		return
	}
}

// iterate runs an iterator's program for all objects, or pins it.
func iterate(prog *ebpf.Program, t *Target, say func(format string, args ...any)) error {
	it, err := link.AttachIter(link.IterOptions{Program: prog})
	if err != nil {
		return fmt.Errorf("%s: %w", t.Probe, err)
	}
	defer it.Close()
	if t.pin != "" {
		return pin(it, t.pin, say)
	}
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("%s: %w", t.Probe, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("%s: %w", t.Probe, err)
	}
	return nil
}

// iterators lists iterators, and what their programs get.
func (l *lister) iterators(pattern string) {
	for _, name := range l.k.iterators() {
		if !match(pattern, name) {
			continue
		}
		var args []string
		if s := l.k.iterContext(name); s != nil && l.args {
			for _, f := range memberNames(s.Members, 0) {
				if m := findMember(s.Members, f, InKernel, 0, 0); m != nil {
					args = append(args, m.t.String()+" "+f)
				}
			}
		}
		l.add("iter:"+name, args...)
	}
}
