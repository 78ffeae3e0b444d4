// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"strconv"
	"strings"
)

// intNames are the integer types that need no BTF: size and sign.
var intNames = map[string]struct {
	size   int
	signed bool
}{
	"bool": {1, false}, "_Bool": {1, false}, "char": {1, true}, "short": {2, true}, "int": {4, true}, "long": {8, true}, "long long": {8, true},
	"signed char": {1, true}, "unsigned char": {1, false}, "unsigned short": {2, false}, "unsigned int": {4, false},
	"unsigned": {4, false}, "signed": {4, true}, "unsigned long": {8, false}, "unsigned long long": {8, false},
	"short int": {2, true}, "long int": {8, true}, "long long int": {8, true}, "signed int": {4, true}, "signed long": {8, true},
	"unsigned short int": {2, false}, "unsigned long int": {8, false}, "unsigned long long int": {8, false}, "long unsigned int": {8, false},
	"int8": {1, true}, "int16": {2, true}, "int32": {4, true}, "int64": {8, true},
	"uint8": {1, false}, "uint16": {2, false}, "uint32": {4, false}, "uint64": {8, false},
	"int8_t": {1, true}, "int16_t": {2, true}, "int32_t": {4, true}, "int64_t": {8, true},
	"uint8_t": {1, false}, "uint16_t": {2, false}, "uint32_t": {4, false}, "uint64_t": {8, false},
	"s8": {1, true}, "s16": {2, true}, "s32": {4, true}, "s64": {8, true},
	"u8": {1, false}, "u16": {2, false}, "u32": {4, false}, "u64": {8, false},
	"__s8": {1, true}, "__s16": {2, true}, "__s32": {4, true}, "__s64": {8, true},
	"__u8": {1, false}, "__u16": {2, false}, "__u32": {4, false}, "__u64": {8, false},
	"__be16": {2, false}, "__be32": {4, false}, "__be64": {8, false}, "__le16": {2, false}, "__le32": {4, false}, "__le64": {8, false},
	"size_t": {8, false}, "ssize_t": {8, true}, "uintptr_t": {8, false}, "intptr_t": {8, true}, "loff_t": {8, true}, "off_t": {8, true},
	"pid_t": {4, true}, "uid_t": {4, false}, "gid_t": {4, false}, "dev_t": {4, false}, "umode_t": {2, false}, "gfp_t": {4, false},
	"sa_family_t": {2, false}, "__kernel_sa_family_t": {2, false}, "socklen_t": {4, false}, "time_t": {8, true}, "sector_t": {8, false},
}

// typeWords can only begin or go on a type.
var typeWords = map[string]bool{
	"unsigned": true, "signed": true, "long": true, "short": true, "int": true, "char": true, "void": true, "const": true, "volatile": true,
}

// castType reads "type)" after an open parenthesis, or nothing.
func (p *parser) castType() (TypeName, bool) {
	at := p.at
	t := p.next()
	p.at = at
	if t.kind != tokIdent || p.bcc != nil && p.bcc.params[t.text] > 0 {
		return TypeName{}, false
	}
	sure := t.text == "typeof" || t.text == "struct" || t.text == "union" || t.text == "enum" || typeWords[t.text]
	_, known := intNames[t.text]
	if t.text == "string" || t.text == "inet" {
		known = true
	}
	if _, ok := p.script.ctypes[t.text]; ok {
		known = true
	}
	if _, ok := p.defines[t.text]; ok && !sure {
		return TypeName{}, false
	}
	n, ok := p.tryTypeName()
	if ok && p.accept(")") {
		if sure || known || n.Stars > 0 {
			return n, true
		}
		// (name) x is a cast if x cannot go on after an operand.
		switch a := p.peek(); {
		case a.kind == tokInt, a.kind == tokVar, a.kind == tokMap, a.kind == tokIdent, a.kind == tokPunct && a.text == "(":
			return n, true
		}
	} else if sure {
		t := p.peek()
		p.fail(t.pos, t.end, "expected ')' after the type, found %s", t)
	}
	p.at = at
	return TypeName{}, false
}

// typeName reads a type or fails.
func (p *parser) typeName() TypeName {
	n, ok := p.tryTypeName()
	if !ok {
		t := p.peek()
		p.fail(t.pos, t.end, "expected a type, found %s", t)
	}
	return n
}

func (p *parser) tryTypeName() (TypeName, bool) {
	n := TypeName{pos: p.peek().pos}
	var words []string
	for {
		at := p.at
		t := p.next()
		if t.kind != tokIdent {
			p.at = at
			break
		}
		n.end = t.end
		switch {
		case t.text == "const", t.text == "volatile", t.text == "__user", t.text == "restrict":
			continue
		case t.text == "typeof" && len(words) == 0 && p.is("("):
			p.next()
			if inner, ok := p.castType(); ok { // typeof(uint8) is uint8
				n = inner
			} else {
				n.Of = p.expr()
				p.expect(")", "after typeof(…")
			}
			n.end = Pos(p.at)
			goto stars
		case t.text == "struct", t.text == "union", t.text == "enum":
			name := p.next()
			if name.kind != tokIdent {
				p.fail(name.pos, name.end, "expected a name after %s, found %s", t.text, name)
			}
			n.Tag, n.Name, n.end = t.text, name.text, name.end
		case len(words) == 0 && n.Name == "":
			words = append(words, t.text)
			if !typeWords[t.text] {
				goto named
			}
			continue
		case len(words) > 0 && typeWords[t.text]:
			words = append(words, t.text)
			continue
		default:
			p.at = at
			goto named
		}
		break
	}
named:
	if n.Tag == "" {
		if len(words) == 0 {
			return n, false
		}
		n.Name = strings.Join(words, " ")
	}
stars:
	for p.accept("const") || p.accept("volatile") {
	}
	for p.accept("*") {
		n.Stars++
		n.end = Pos(p.at)
		for p.accept("const") || p.accept("volatile") || p.accept("__user") {
		}
	}
	for p.is("[") {
		at := p.at
		p.next()
		if p.accept("]") { // as many as there are
			n.Len = append(n.Len, 0)
			continue
		}
		t := p.next()
		if t.kind != tokInt || !p.accept("]") {
			p.at = at
			break
		}
		v, _ := strconv.Atoi(t.text)
		n.Len = append(n.Len, v)
	}
	if p.fixed != nil {
		n.pos, n.end = p.fixed.pos, p.fixed.end
	}
	return n, true
}

// A cstruct is a struct or union that the script defines.
type cstruct struct {
	pos, end Pos
	union    bool
	packed   bool
	fields   []cfield
}

type cfield struct {
	name string
	of   TypeName
	bits int      // -1: not a bit field
	anon *cstruct // struct { … } name
	lens []int
}

// declaration is a struct, union, enum or typedef of the script.
func (p *parser) declaration() {
	defer p.deeper()()
	t := p.next()
	if t.text == "typedef" {
		n := p.typeName()
		name := p.next()
		if name.kind != tokIdent {
			p.fail(name.pos, name.end, "expected the new type's name, found %s", name)
		}
		p.script.ctypes[name.text] = n
		p.expect(";", "after the typedef")
		return
	}
	name := p.next()
	if name.kind != tokIdent {
		if t.text == "enum" && name.text == "{" {
			p.enumerators("")
			p.accept(";")
			return
		}
		p.fail(name.pos, name.end, "expected a name after %s, found %s", t.text, name)
	}
	switch {
	case p.accept(";"): // declared, defined in BTF
		return
	case t.text == "enum":
		p.expect("{", "after enum "+name.text)
		p.enumerators(name.text)
	default:
		p.expect("{", "after "+t.text+" "+name.text)
		p.script.structs[t.text+" "+name.text] = p.members(t)
	}
	p.attributes(nil)
	p.accept(";")
}

func (p *parser) enumerators(tag string) {
	next := int64(0)
	names := map[int64]string{}
	e := &enum{tag, func(v int64) string { return names[v] }}
	if tag != "" {
		p.script.enumTags[tag] = e
	}
	for !p.accept("}") {
		t := p.next()
		if t.kind != tokIdent {
			p.fail(t.pos, t.end, "expected an enumerator's name, found %s", t)
		}
		if p.accept("=") {
			x := p.expr()
			v, ok := constant(x, p.script)
			if !ok {
				pos, end := x.span()
				p.fail(pos, end, "the value of an enumerator must be a number")
			}
			next = v
		}
		p.script.enums[t.text], p.script.enumIn[t.text] = next, e
		if names[next] == "" {
			names[next] = t.text
		}
		next++
		if !p.accept(",") && !p.is("}") {
			t := p.peek()
			p.fail(t.pos, t.end, "expected ',' or '}', found %s", t)
		}
	}
}

func (p *parser) members(open token) *cstruct {
	defer p.deeper()()
	s := &cstruct{pos: open.pos, end: open.end, union: open.text == "union"}
	for !p.accept("}") {
		if p.accept(";") {
			continue
		}
		t := p.peek()
		var anon *cstruct
		var of TypeName
		if t.text == "struct" || t.text == "union" {
			at := p.at
			p.next()
			tag := p.peek()
			if tag.kind == tokIdent {
				p.next()
			}
			if p.accept("{") {
				anon = p.members(t)
				if tag.kind == tokIdent {
					p.script.structs[t.text+" "+tag.text] = anon
				}
			} else {
				p.at = at
			}
		}
		if anon == nil {
			of = p.typeName()
		}
		for first := true; ; first = false {
			f := cfield{of: of, anon: anon, bits: -1}
			if !first {
				f.of.Stars = 0
			}
			for p.accept("*") {
				f.of.Stars++
			}
			if p.accept("(") { // a pointer to a function
				p.expect("*", "in a function pointer")
				f.name = p.next().text
				p.expect(")", "in a function pointer")
				p.expect("(", "in a function pointer")
				for n := p.next(); n.text != ")"; n = p.next() {
					if n.kind == tokEOF {
						p.fail(n.pos, n.end, "'(' without ')'")
					}
				}
				f.of = TypeName{pos: of.pos, end: of.end, Name: "void", Stars: 1}
			} else if n := p.peek(); n.kind == tokIdent {
				f.name = p.next().text
			}
			for p.accept("[") {
				if p.accept("]") {
					f.lens = append(f.lens, 0)
					continue
				}
				x := p.expr()
				v, ok := constant(x, p.script)
				if pos, end := x.span(); !ok || v < 0 || v > 1<<20 {
					p.fail(pos, end, "the length of an array must be a number")
				}
				f.lens = append(f.lens, int(v))
				p.expect("]", "after the length")
			}
			if p.accept(":") {
				n := p.next()
				v, err := strconv.Atoi(n.text)
				if err != nil || v < 0 || v > 64 {
					p.fail(n.pos, n.end, "expected the width of a bit field, found %s", n)
				}
				f.bits = v
			}
			p.attributes(s)
			if f.name == "" && f.anon == nil && f.bits < 0 {
				n := p.peek()
				p.fail(n.pos, n.end, "expected a field's name, found %s", n)
			}
			s.fields = append(s.fields, f)
			if !p.accept(",") {
				break
			}
		}
		p.expect(";", "after the field")
	}
	p.attributes(s)
	return s
}

// attributes skips __attribute__((…)), and notes packed.
func (p *parser) attributes(s *cstruct) {
	for p.accept("__attribute__") {
		depth := 0
		for {
			t := p.next()
			if t.kind == tokEOF {
				p.fail(t.pos, t.end, "'(' without ')'")
			}
			if t.text == "packed" && s != nil {
				s.packed = true
			}
			if t.text == "(" {
				depth++
			}
			if t.text == ")" {
				if depth--; depth == 0 {
					break
				}
			}
			if depth == 0 {
				p.fail(t.pos, t.end, "expected '(' after __attribute__")
			}
		}
	}
}
