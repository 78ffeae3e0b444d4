// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"slices"
	"strings"
)

// A named option is getopt("name", default, "description").
type namedOption struct {
	name string
	def  Expr // nil: a switch
	help string
}

// A HelpError is the help that was asked for by --help among a script's options.
type HelpError struct{ Text string }

func (e *HelpError) Error() string { return e.Text }

// getopts puts the values of a script's options in place of getopt().
func (s *Script) getopts(given []string) (_ *Script, err error) {
	defer catch(&err)
	values := map[string]string{}
	for _, g := range given {
		name, value, has := strings.Cut(strings.TrimPrefix(g, "--"), "=")
		if !has {
			value = "true"
		}
		values[name] = value
	}
	var options []namedOption
	r := &rewriter{}
	r.replace = func(x Expr) (Expr, bool) {
		c, ok := x.(*Call)
		if !ok || c.Name != "getopt" {
			return nil, false
		}
		o := s.namedOption(c)
		i := slices.IndexFunc(options, func(p namedOption) bool { return p.name == o.name })
		if i < 0 {
			options = append(options, o)
		} else if options[i].kind() != o.kind() {
			s.fail(c, "the option --%s is %s elsewhere", o.name, options[i].kind())
		}
		value, has := values[o.name]
		if !has {
			if o.def == nil {
				return &Int{node: c.node, Bool: true}, true
			}
			return r.expr(o.def), true
		}
		return s.optionValue(c, o, value), true
	}
	out := *s
	out.Clauses = nil
	for _, c := range s.Clauses {
		out.Clauses = append(out.Clauses, r.clause(c))
	}
	if _, help := values["help"]; help && !slices.ContainsFunc(options, func(o namedOption) bool { return o.name == "help" }) {
		return nil, &HelpError{helpOf(s.Src.Name, options)}
	}
	for _, g := range given {
		name, _, _ := strings.Cut(strings.TrimPrefix(g, "--"), "=")
		if !slices.ContainsFunc(options, func(o namedOption) bool { return o.name == name }) {
			var names []string
			for _, o := range options {
				names = append(names, "--"+o.name)
			}
			return nil, &Error{Msg: fmt.Sprintf("%s has no option --%s%s", s.Src.Name, name, orList("--"+name, names))}
		}
	}
	return &out, nil
}

func (s *Script) fail(x Expr, format string, args ...any) {
	pos, end := x.span()
	panic(s.Src.errorf(pos, end, format, args...))
}

// namedOption reads a call of getopt.
func (s *Script) namedOption(c *Call) (o namedOption) {
	if len(c.Args) < 1 || len(c.Args) > 3 {
		s.fail(c, "getopt() takes a name, a default and a description")
	}
	text := func(x Expr) string {
		t, ok := x.(*Str)
		if !ok {
			s.fail(x, "a literal string is needed here")
		}
		return t.V
	}
	if o.name = text(c.Args[0]); o.name == "" {
		s.fail(c.Args[0], "an option has a name")
	}
	if len(c.Args) == 3 {
		o.help = text(c.Args[2])
	}
	if len(c.Args) < 2 {
		return o
	}
	o.def = c.Args[1]
	switch o.def.(type) {
	case *Int, *Str:
	default:
		v, ok := constant(o.def, s)
		if !ok {
			s.fail(o.def, "the default of an option is a number, a string, true or false")
		}
		pos, end := o.def.span()
		o.def = &Int{node: node{pos: pos, end: end}, V: v}
	}
	return o
}

func (o namedOption) kind() string {
	switch d := o.def.(type) {
	case *Str:
		return "a string"
	case *Int:
		if !d.Bool {
			return "a number"
		}
	}
	return "true or false"
}

// optionValue is what was given for an option, as its default's kind has it.
func (s *Script) optionValue(c *Call, o namedOption, value string) Expr {
	switch o.kind() {
	case "a string":
		return &Str{c.node, value}
	case "a number":
		digits, negative := strings.CutPrefix(value, "-")
		v, ok := number(digits)
		if !ok {
			s.fail(c, "--%s=%s: it is a number", o.name, value)
		}
		if negative {
			v = -v
		}
		return &Int{node: c.node, V: int64(v), U64: !negative && v > 1<<63-1}
	}
	switch value {
	case "true", "1":
		return &Int{node: c.node, V: 1, Bool: true}
	case "false", "0":
		return &Int{node: c.node, Bool: true}
	}
	s.fail(c, "--%s=%s: it is true or false", o.name, value)
	return nil
}

// helpOf lists the options of a script.
func helpOf(name string, options []namedOption) string {
	if len(options) == 0 {
		return name + " has no options of its own.\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Options of %s:\n", name)
	for _, o := range options {
		arg := "--" + o.name
		def := ""
		switch d := o.def.(type) {
		case *Str:
			arg += "=STRING"
			def = fmt.Sprintf(" (default %q)", d.V)
		case *Int:
			if d.Bool {
				arg += "=true|false"
				def = fmt.Sprintf(" (default %t)", d.V != 0)
			} else {
				arg += "=NUMBER"
				def = fmt.Sprintf(" (default %d)", d.V)
			}
		}
		fmt.Fprintf(&b, "  %-24s %s%s\n", arg, o.help, def)
	}
	return b.String()
}
