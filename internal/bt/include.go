// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"os"
	"path/filepath"
	"strings"
)

// #include "file.h" reads a header of the script's own: its structs, unions, enums,
// typedefs and #defines. Headers of the kernel are not needed: types come from BTF.

// header is the file that an #include or --include means, "" if it is none of the
// script's own: beside the script, where we are, or in a folder of -I.
func (s *Source) header(what string) string {
	name, quoted := strings.CutPrefix(strings.TrimSpace(what), `"`)
	if i := strings.IndexByte(name, '"'); quoted && i >= 0 {
		name = name[:i]
	}
	dirs := s.Dirs
	if quoted {
		dirs = append([]string{filepath.Dir(s.Name), "."}, dirs...)
	} else {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "<"), ">")
	}
	if filepath.IsAbs(name) {
		dirs = []string{""}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// headers reads the script's own headers, and what they include, before the script:
// names of types must be known where they are used. It leaves the others in Includes.
func (p *parser) headers(files []string) {
	var rest []string
	for _, f := range files {
		rest = append(rest, `"`+f+`"`)
	}
	rest = append(rest, p.script.Includes...)
	p.script.Includes = nil
	end := len(p.src.Text)
	for len(rest) > 0 {
		what := rest[0]
		rest = rest[1:]
		path := p.src.header(what)
		if path == "" {
			p.script.Includes = append(p.script.Includes, what)
			continue
		}
		start := len(p.src.Text)
		p.include(token{}, path)
		rest = append(p.script.Includes, rest...) // those of the header come next
		p.script.Includes = nil
		if len(p.src.Text) == start {
			continue // it was there
		}
	}
	if len(p.src.Text) == end {
		return
	}
	main := p.at
	p.at = end
	for t := p.peek(); t.kind != tokEOF; t = p.peek() {
		switch {
		case t.kind == tokPunct && t.text == ";":
			p.next()
		case t.kind == tokIdent && (t.text == "struct" || t.text == "union" || t.text == "enum" || t.text == "typedef"):
			p.declaration()
		default:
			p.fail(t.pos, t.end, "of a header, seine takes struct, union, enum, typedef and #define, not %s", t)
		}
	}
	p.text = p.text[:end] + strings.Repeat(" ", len(p.text)-end)
	p.at = main
}
