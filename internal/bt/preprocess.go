// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"strings"
)

// A define is #define NAME text.
type define struct {
	text string
	pos  Pos // of the text
}

// A preprocessed program has blanks where directives were, so that positions
// stay what they are.
type preprocessed struct {
	text     string
	includes []string
	defines  map[string]define
}

// preprocess takes out the #! line, #include (types come from BTF), #define and
// the branches of #if that do not hold. BPFTRACE_HAVE_BTF is always set.
func preprocess(src *Source) (*preprocessed, error) {
	p := &preprocessed{defines: map[string]define{"BPFTRACE_HAVE_BTF": {text: "1"}}}
	out := []byte(src.Text)
	type branch struct{ on, taken bool }
	var open []branch
	active := func() bool {
		for _, b := range open {
			if !b.on {
				return false
			}
		}
		return true
	}
	comment := false // inside /* … */, where # is no directive
	for at := 0; at < len(src.Text); {
		end := strings.IndexByte(src.Text[at:], '\n')
		if end < 0 {
			end = len(src.Text)
		} else {
			end += at
		}
		line := src.Text[at:end]
		text := strings.TrimSpace(line)
		fail := func(format string, args ...any) error {
			return src.errorf(Pos(at), Pos(end), format, args...)
		}
		directive := strings.HasPrefix(text, "#") && !comment
		switch {
		case !directive:
		case at == 0 && strings.HasPrefix(text, "#!"):
		default:
			word, rest, _ := strings.Cut(strings.TrimSpace(text[1:]), " ")
			rest = strings.TrimSpace(rest)
			last := len(open) - 1
			switch word {
			case "include":
				if active() {
					p.includes = append(p.includes, rest)
				}
			case "define":
				name, value, _ := strings.Cut(strings.ReplaceAll(rest, "\t", " "), " ")
				if strings.Contains(name, "(") {
					return nil, fail("#define with arguments is not supported")
				}
				if active() && name != "" {
					value = strings.TrimSpace(value)
					off := strings.LastIndex(line, value)
					p.defines[name] = define{value, Pos(at + max(off, 0))}
				}
			case "undef":
				delete(p.defines, rest)
			case "if", "ifdef", "ifndef":
				on := p.holds(word, rest)
				open = append(open, branch{on, on})
			case "elif":
				if last < 0 {
					return nil, fail("#elif without #if")
				}
				open[last].on = !open[last].taken && p.holds("if", rest)
				open[last].taken = open[last].taken || open[last].on
			case "else":
				if last < 0 {
					return nil, fail("#else without #if")
				}
				open[last].on = !open[last].taken
				open[last].taken = true
			case "endif":
				if last < 0 {
					return nil, fail("#endif without #if")
				}
				open = open[:last]
			case "pragma", "error", "warning", "line", "":
			default:
				return nil, fail("unknown directive #%s", word)
			}
		}
		if directive || !active() {
			for i := at; i < end; i++ {
				out[i] = ' '
			}
		} else {
			comment = inComment(line, comment)
		}
		at = end + 1
	}
	if len(open) > 0 {
		return nil, src.errorf(Pos(len(src.Text)), Pos(len(src.Text)), "#if without #endif")
	}
	p.text = string(out)
	return p, nil
}

// holds decides #ifdef, #ifndef, and of #if: defined(X), !defined(X), X, 0, 1.
func (p *preprocessed) holds(word, cond string) bool {
	cond, _, _ = strings.Cut(cond, "//")
	cond = strings.TrimSpace(cond)
	switch word {
	case "ifdef":
		_, ok := p.defines[cond]
		return ok
	case "ifndef":
		_, ok := p.defines[cond]
		return !ok
	}
	not := false
	for strings.HasPrefix(cond, "!") {
		not, cond = !not, strings.TrimSpace(cond[1:])
	}
	if rest, ok := strings.CutPrefix(cond, "defined"); ok {
		_, is := p.defines[strings.Trim(rest, " \t()")]
		return is != not
	}
	if d, ok := p.defines[cond]; ok {
		cond = d.text
	}
	return (cond != "" && cond != "0" && cond[0] >= '0' && cond[0] <= '9') != not
}

// inComment says whether a /* comment is open after the line.
func inComment(line string, open bool) bool {
	for line != "" {
		if open {
			i := strings.Index(line, "*/")
			if i < 0 {
				return true
			}
			line, open = line[i+2:], false
			continue
		}
		i := strings.IndexAny(line, "/\"")
		switch {
		case i < 0:
			return false
		case line[i] == '"':
			line = line[i+1:]
			for line != "" && line[0] != '"' {
				if line[0] == '\\' && len(line) > 1 {
					line = line[1:]
				}
				line = line[1:]
			}
			if line != "" {
				line = line[1:]
			}
		case strings.HasPrefix(line[i:], "//"):
			return false
		case strings.HasPrefix(line[i:], "/*"):
			line, open = line[i+2:], true
		default:
			line = line[i+1:]
		}
	}
	return open
}
