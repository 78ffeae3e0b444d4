// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A mutant is one line of the tree with one defect put into it.
type mutant struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	Op   string `json:"op"`
	Old  string `json:"old"`
	New  string `json:"new"`
	Nth  int    `json:"nth,omitempty"` // of the same change to the same line in this file
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s => %s", m.File, m.Line, m.Op, strings.TrimSpace(m.Old), strings.TrimSpace(m.New))
}

// key identifies a mutant, wherever its line moves to. Equal changes of equal lines
// in a file differ only by their number in the file.
func (m mutant) key() string {
	file := m.File
	if m.Nth > 0 {
		file += fmt.Sprint(" #", m.Nth)
	}
	return keyOf(file, m.Old, m.New)
}

func keyOf(file, from, to string) string {
	return fmt.Sprintf("%s: %s => %s", strings.TrimSpace(file), strings.TrimSpace(from), strings.TrimSpace(to))
}

// shuffle puts mutants into an order that depends only on the seed and on each
// mutant: if a file changes, the mutants of other files keep their order.
func shuffle(list []mutant, seed uint64) {
	seen := map[string]int{}
	rank := map[string]string{}
	for i := range list {
		m := &list[i]
		plain := m.key()
		m.Nth = seen[plain]
		seen[plain]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.key()))
		rank[m.key()] = string(sum[:])
	}
	slices.SortFunc(list, func(a, b mutant) int { return strings.Compare(rank[a.key()], rank[b.key()]) })
}

// apply returns text with the mutant's line in place of the old one.
func (m mutant) apply(text string) string {
	lines := strings.Split(text, "\n")
	lines[m.Line-1] = m.New
	return strings.Join(lines, "\n")
}

// swaps are operators and what takes their place. Each occurrence is a mutant.
var swaps = []struct{ from, to string }{
	{" == ", " != "}, {" != ", " == "},
	{" < ", " <= "}, {" <= ", " < "}, {" > ", " >= "}, {" >= ", " > "},
	{" && ", " || "}, {" || ", " && "},
	{" + ", " - "}, {" - ", " + "}, {" += ", " -= "}, {" |= ", " = "},
	{"true", "false"}, {"false", "true"},
}

var (
	statement = regexp.MustCompile(`^\t+[A-Za-z_*(][^{}#]*;$`)
	// A declaration is needed by the lines after it, and an empty asm only keeps
	// the compiler from proving too much to the verifier.
	declaration = regexp.MustCompile(`^\t+(const |static |volatile |struct [a-z_]+ [*a-z]|__u\d+ |__s\d+ |int |bool |char |long |var |asm |__type|__uint|__array|case |goto |break|continue|package|import)`)
	condition   = regexp.MustCompile(`^(\t+(?:\} else )?if )\((.*)\)( \{)?$`)
	goCondition = regexp.MustCompile(`^(\t+(?:\} else )?if )([^;{]+) \{$`)
	number      = regexp.MustCompile(`([ (\[+-])(\d{1,3})([);,\] ])`)
	noise       = regexp.MustCompile(`^\s*(//|/\*|\*|#)|^const volatile`) // the loader writes the latter
)

// mutants lists every mutant of a file.
func mutants(file, text string) (out []mutant) {
	goFile := strings.HasSuffix(file, ".go")
	inComment := false
	for i, line := range strings.Split(text, "\n") {
		if opens, closes := strings.LastIndex(line, "/*"), strings.LastIndex(line, "*/"); inComment || opens > closes {
			inComment = closes < opens || inComment && closes < 0
			continue
		}
		if strings.TrimSpace(line) == "" || noise.MatchString(line) || declaration.MatchString(line) && !strings.Contains(line, "=") {
			continue
		}
		add := func(op, to string) { out = append(out, mutant{file, i + 1, op, line, to, 0}) }
		// Comments behind code are not code.
		code, _, _ := strings.Cut(line, "/*")
		code, _, _ = strings.Cut(code, "//")
		rest := line[len(code):]
		bare := strings.TrimRight(code, " \t")
		if !goFile && statement.MatchString(bare) && !declaration.MatchString(bare) {
			add("delete", line[:len(line)-len(strings.TrimLeft(line, "\t"))]+";")
		}
		if m := condition.FindStringSubmatch(bare); m != nil && !goFile {
			add("negate", fmt.Sprintf("%s(!(%s))%s", m[1], m[2], m[3]))
		}
		if m := goCondition.FindStringSubmatch(bare); m != nil && goFile {
			add("negate", fmt.Sprintf("%s!(%s) {", m[1], m[2]))
		}
		for _, s := range swaps {
			for from := 0; ; {
				at := strings.Index(code[from:], s.from)
				if at < 0 {
					break
				}
				at += from
				add("swap", code[:at]+s.to+code[at+len(s.from):]+rest)
				from = at + len(s.from)
			}
		}
		// The kernel ignores the return value of a tracing program.
		if !strings.Contains(line, "__uint") && strings.TrimSpace(bare) != "return 0;" {
			for _, m := range number.FindAllStringSubmatchIndex(code, -1) {
				var n int
				fmt.Sscan(code[m[4]:m[5]], &n)
				add("number", fmt.Sprintf("%s%d%s", code[:m[4]], n+1, code[m[5]:])+rest)
			}
		}
	}
	return out
}
