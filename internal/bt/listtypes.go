// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// types lists the types of the kernel that a pattern finds, as struct task_struct or enum *_state; with
// their members, as C has them, if arguments are asked for.
func (l *lister) types(tag, pattern string) error {
	spec, err := l.k.types()
	if err != nil {
		return err
	}
	if !wild(pattern) { // going through all of them takes a while
		if t := lookupType(spec, &TypeName{Tag: tag, Name: pattern}); t != nil {
			l.typ(t)
		}
		return nil
	}
	seen := map[string]bool{}
	for t, err := range spec.All() {
		if err != nil {
			return err
		}
		name := describe(t)
		if of, named, ok := strings.Cut(name, " "); ok && of == tag && named != "" && match(pattern, named) && !seen[name] {
			seen[name] = true
			l.typ(t)
		}
	}
	return nil
}

func (l *lister) typ(t btf.Type) {
	if !l.args {
		l.add(describe(t))
		return
	}
	var b strings.Builder
	declare(&b, t, 0)
	l.add(b.String())
}

// declare writes the declaration of a type.
func declare(b *strings.Builder, t btf.Type, depth int) {
	indent := strings.Repeat("        ", depth)
	members := func(list []btf.Member) {
		b.WriteString(strings.TrimSuffix(describe(t), " ") + " {\n")
		for _, m := range list {
			b.WriteString(indent + "        ")
			writeMember(b, m, depth)
		}
		b.WriteString(indent + "}")
	}
	switch t := t.(type) {
	case *btf.Struct:
		members(t.Members)
	case *btf.Union:
		members(t.Members)
	case *btf.Enum:
		b.WriteString(describe(t) + " {\n")
		for _, v := range t.Values {
			fmt.Fprintf(b, "%s        %s = %d,\n", indent, v.Name, v.Value)
		}
		b.WriteString(indent + "}")
	}
	if depth == 0 {
		b.WriteString(";")
	}
}

func writeMember(b *strings.Builder, m btf.Member, depth int) {
	dims, t := "", m.Type
	for {
		a, ok := t.(*btf.Array)
		if !ok {
			break
		}
		dims, t = dims+fmt.Sprintf("[%d]", a.Nelems), a.Type
	}
	if nameless(t) {
		declare(b, t, depth+1)
	} else {
		b.WriteString(describe(t))
	}
	if m.Name != "" {
		if !strings.HasSuffix(describe(t), "*") || nameless(t) {
			b.WriteString(" ")
		}
		b.WriteString(m.Name)
	}
	b.WriteString(dims)
	if m.BitfieldSize > 0 {
		fmt.Fprintf(b, " : %d", m.BitfieldSize)
	}
	b.WriteString(";\n")
}

// nameless says whether a type is declared where it is used.
func nameless(t btf.Type) bool {
	switch t := t.(type) {
	case *btf.Struct:
		return t.Name == ""
	case *btf.Union:
		return t.Name == ""
	case *btf.Enum:
		return t.Name == ""
	}
	return false
}
