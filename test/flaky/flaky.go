// SPDX-License-Identifier: Apache-2.0

// Package flaky lists the live tests that may need a second try, and why.
package flaky

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

//go:embed list.txt
var list string

// Native is the kernel of a machine that is not emulated.
const Native = "native"

// An Entry is a line of list.txt.
type Entry struct {
	Kernels []string
	Name    string // for path.Match
	Reason  string
}

// All is the list.
func All() ([]Entry, error) { return parse(list) }

func parse(text string) (out []Entry, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 4 {
			return nil, fmt.Errorf("%q: want kernels, a name and a reason", line)
		}
		if _, err := path.Match(words[1], ""); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out = append(out, Entry{strings.Split(words[0], ","), words[1], strings.Join(words[2:], " ")})
	}
	return out, nil
}

// Of is the entry for a test on a kernel, Native or a version such as 6.12.48.
func Of(kernel, test string) (Entry, bool) {
	all, err := All()
	if err != nil {
		panic(err) // TestList has seen the list
	}
	for _, e := range all {
		if same, _ := path.Match(e.Name, test); same && e.on(kernel) {
			return e, true
		}
	}
	return Entry{}, false
}

func (e Entry) on(kernel string) bool {
	for _, k := range e.Kernels {
		if k == "*" || k == kernel {
			return true
		}
		// 6.1 is not 6.12.
		if rest, ok := strings.CutPrefix(kernel, k); ok && !strings.ContainsAny(rest[:1], "0123456789") {
			return true
		}
	}
	return false
}
