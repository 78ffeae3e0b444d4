// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"slices"
	"strings"
)

// unstable are the parts of the language that bpftrace calls unstable, by the settings
// that allow them. Here all are allowed, unless a script asks for a warning or an error.
var unstable = map[string]string{
	"unstable_addr":     "the address of a variable or map (&)",
	"unstable_import":   "import",
	"unstable_macro":    "a macro",
	"unstable_map_decl": "the declaration of a map",
	"unstable_tseries":  "tseries()",
	"unstable_typeinfo": "typeinfo()",
}

// An unstableUse is a place where a script uses an unstable part of the language.
type unstableUse struct {
	pos, end Pos
	setting  string
}

// allow sets whether an unstable part of the language is an error, a warning or allowed. It
// returns the possible values if the given one is not valid.
func (k *known) allow(s *settings, value string) (want string) {
	if s.unstable == nil {
		s.unstable = map[string]string{}
	}
	switch value = strings.ToLower(value); value {
	case "error", "warn", "enable":
	case "true", "1":
		value = "enable"
	case "false", "0":
		value = "error"
	default:
		return "one of error, warn, enable"
	}
	s.unstable[k.unstable] = value
	return ""
}

// unstable finds what is unstable in a script.
func (s *Script) unstable() []unstableUse {
	all := slices.Clone(s.uses)
	for _, name := range sortedKeys(s.decls) {
		all = append(all, unstableUse{s.decls[name].pos, s.decls[name].end, "unstable_map_decl"})
	}
	r := &rewriter{}
	r.replace = func(e Expr) (Expr, bool) {
		pos, end := e.span()
		switch e := e.(type) {
		case *Unary:
			switch e.X.(type) {
			case *Var, *MapRef:
				if e.Op == "&" {
					all = append(all, unstableUse{pos, end, "unstable_addr"})
				}
			}
		case *Call:
			if name := "unstable_" + e.Name; name == "unstable_tseries" || name == "unstable_typeinfo" {
				all = append(all, unstableUse{pos, end, name})
			}
		}
		return nil, false
	}
	for _, c := range s.Clauses {
		r.clause(c)
	}
	return all
}

// stable refuses parts that the settings do not allow, and warns once about each other part that
// they name.
func (p *Program) stable() error {
	if len(p.set.unstable) == 0 {
		return nil
	}
	warned := map[string]bool{}
	for _, u := range p.Script.unstable() {
		switch p.set.unstable[u.setting] {
		case "error":
			return p.Script.Src.errorf(u.pos, u.end, "%s needs %s = enable", unstable[u.setting], u.setting)
		case "warn":
			if !warned[u.setting] {
				p.opts.note("warning: %s = enable allows %s without this warning", u.setting, unstable[u.setting])
			}
			warned[u.setting] = true
		}
	}
	return nil
}
