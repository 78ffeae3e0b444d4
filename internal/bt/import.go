// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// import "lib" reads lib.bt, or all scripts of the folder lib. The text of a file
// is put behind the program's, so that every place of both has a position.

// A part is a file whose text begins at a place of a source.
type part struct {
	start int
	name  string
}

// part is the file of a place.
func (s *Source) part(p Pos) part {
	at := part{name: s.Name}
	for _, f := range s.parts {
		if int(p) >= f.start {
			at = f
		}
	}
	return at
}

// standardLibrary are the names under which bpftrace has what is built in here.
const standardLibrary = "stdlib"

// maxImports and maxImported bound what imports bring.
const (
	maxImports  = 100
	maxImported = 4 << 20
)

func (p *parser) importDecl() {
	p.next()
	t := p.next()
	p.script.uses = append(p.script.uses, unstableUse{t.pos, t.end, "unstable_import"})
	if t.kind != tokStr {
		p.fail(t.pos, t.end, "import takes the name of a file in quotes, not %s", t)
	}
	if t.text == standardLibrary || strings.HasPrefix(t.text, standardLibrary+"/") {
		p.accept(";")
		return
	}
	from := p.src.part(t.pos).name
	files, err := imported(filepath.Dir(from), t.text)
	if err != "" {
		p.fail(t.pos, t.end, "%s", err)
	}
	for _, name := range files {
		p.include(t, name)
	}
	p.accept(";")
}

// imported are the files that a name stands for: beside the file that imports
// them, else where we are.
func imported(dir, name string) (files []string, problem string) {
	dirs := []string{dir}
	if filepath.IsAbs(name) {
		dirs = []string{""}
	} else if dir != "." {
		dirs = append(dirs, ".")
	}
	for _, d := range dirs {
		for _, suffix := range []string{"", ".bt"} {
			path := filepath.Join(d, name+suffix)
			st, err := os.Stat(path)
			switch {
			case err != nil:
				continue
			case st.IsDir():
				files, _ = filepath.Glob(filepath.Join(path, "*.bt"))
				slices.Sort(files)
				if len(files) == 0 {
					return nil, path + " has no scripts (*.bt)"
				}
				return files, ""
			case strings.HasSuffix(path, ".bt"):
				return []string{path}, ""
			default:
				return nil, path + " is not a script (.bt): code of other languages is not imported"
			}
		}
	}
	return nil, "there is no " + name + " and no " + name + ".bt to import"
}

// include puts a file behind the program, once.
func (p *parser) include(t token, name string) {
	if path, err := filepath.EvalSymlinks(name); err == nil {
		name = path
	}
	p.uses = append(p.uses, [2]string{p.src.part(t.pos).name, name})
	if slices.ContainsFunc(p.src.parts, func(f part) bool { return f.name == name }) {
		return
	}
	data, err := os.ReadFile(name)
	if err != nil {
		p.fail(t.pos, t.end, "%v", err)
	}
	if len(p.src.parts) >= maxImports || len(p.src.Text)+len(data) > maxImported {
		p.fail(t.pos, t.end, "imports bring more than %d files or %d MB", maxImports, maxImported>>20)
	}
	own := &Source{Name: name, Text: string(data)}
	pre, err := preprocess(own)
	if err != nil {
		panic(err.(*Error))
	}
	p.src.Text += "\n"
	p.text += "\n"
	start := len(p.src.Text)
	p.src.parts = append(p.src.parts, part{start: start, name: name})
	p.src.Text += own.Text
	p.text += pre.text
	p.script.Includes = append(p.script.Includes, pre.includes...)
	for n, d := range pre.defines {
		if _, ok := p.defines[n]; !ok {
			d.pos += Pos(start)
			p.defines[n] = d
		}
	}
}

// order puts the probes of a file behind those of the files that it imports.
func (p *parser) order() {
	if len(p.src.parts) == 0 {
		return
	}
	var names []string
	var visit func(string)
	seen := map[string]bool{}
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, u := range p.uses {
			if u[0] == name {
				visit(u[1])
			}
		}
		names = append(names, name)
	}
	visit(p.src.Name)
	rank := func(c *Clause) int { return slices.Index(names, p.src.part(c.Points[0].pos).name) }
	slices.SortStableFunc(p.script.Clauses, func(a, b *Clause) int { return rank(a) - rank(b) })
}
