// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strconv"
	"strings"
)

// installed is dpkg's list of packages, by name and by what they provide.
type installed map[string]*debPackage

type debPackage struct {
	version string
	kb      float64
	base    bool       // every Debian has it
	needs   [][]string // each by one of several
}

// parseStatus reads /var/lib/dpkg/status.
func parseStatus(text []byte) installed {
	all := installed{}
	for stanza := range bytes.SplitSeq(text, []byte("\n\n")) {
		p := &debPackage{}
		for line := range bytes.Lines(stanza) {
			field, value, _ := strings.Cut(strings.TrimSpace(string(line)), ": ")
			switch field {
			case "Package":
				all[value] = p
			case "Version":
				p.version = value
			case "Installed-Size":
				p.kb, _ = strconv.ParseFloat(value, 64)
			case "Essential":
				p.base = p.base || value == "yes"
			case "Priority":
				p.base = p.base || value == "required"
			case "Provides":
				for _, names := range relations(value) {
					if all[names[0]] == nil {
						all[names[0]] = p
					}
				}
			case "Depends", "Pre-Depends":
				p.needs = append(p.needs, relations(value)...)
			}
		}
	}
	return all
}

// relations reads a list such as "a (>= 1), b:any | c".
func relations(list string) (out [][]string) {
	for item := range strings.SplitSeq(list, ",") {
		var names []string
		for choice := range strings.SplitSeq(item, "|") {
			if words := strings.Fields(choice); len(words) > 0 {
				name, _, _ := strings.Cut(words[0], ":")
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			out = append(out, names)
		}
	}
	return out
}

// size is the bytes of a package and of its dependencies, without packages that
// every Debian has.
func (all installed) size(name string) (bytes float64) {
	base := map[*debPackage]bool{}
	for _, p := range all {
		if p.base {
			all.reach(p, base)
		}
	}
	seen := map[*debPackage]bool{}
	all.reach(all[name], seen)
	for p := range seen {
		if !base[p] {
			bytes += p.kb * 1024
		}
	}
	return bytes
}

// reach adds a package and its dependencies, recursively.
func (all installed) reach(p *debPackage, seen map[*debPackage]bool) {
	if p == nil || seen[p] {
		return
	}
	seen[p] = true
	for _, names := range p.needs {
		for _, name := range names {
			if all[name] != nil {
				all.reach(all[name], seen)
				break
			}
		}
	}
}
