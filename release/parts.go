// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"debug/buildinfo"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// part is a file that is in every package.
type part struct {
	kind kind
	name string
	data []byte
}

type kind string

const (
	program kind = "program"
	manual  kind = "manual"
	bash    kind = "bash" // these three are what seine completion calls them
	zsh     kind = "zsh"
	fish    kind = "fish"
	doc     kind = "doc"
	licence kind = "licence"
	unit    kind = "unit" // of systemd; nothing enables it
)

const (
	tgz = "tar.gz"
	deb = "deb"
	rpm = "rpm"
)

// places says in which folder of a package each kind is.
var places = map[kind]map[string]string{
	program: {tgz: "", deb: "usr/bin", rpm: "usr/bin"},
	manual:  {tgz: "man/man8", deb: "usr/share/man/man8", rpm: "usr/share/man/man8"},
	bash:    {tgz: "completion/bash", deb: "usr/share/bash-completion/completions", rpm: "usr/share/bash-completion/completions"},
	zsh:     {tgz: "completion/zsh", deb: "usr/share/zsh/vendor-completions", rpm: "usr/share/zsh/site-functions"},
	fish:    {tgz: "completion/fish", deb: "usr/share/fish/vendor_completions.d", rpm: "usr/share/fish/vendor_completions.d"},
	doc:     {tgz: "", deb: "usr/share/doc/seine", rpm: "usr/share/doc/seine"},
	unit:    {tgz: "systemd", deb: "usr/lib/systemd/system", rpm: "usr/lib/systemd/system"},
	licence: {tgz: "LICENSES", deb: "usr/share/doc/seine/LICENSES", rpm: "usr/share/licenses/seine"},
}

func (p part) path(format string) string { return path.Join(places[p.kind][format], p.name) }

func (p part) mode() os.FileMode {
	if p.kind == program {
		return 0o755
	}
	return 0o644
}

// sorted is the parts in the order of their paths.
func sorted(all []part, format string) []part {
	return slices.SortedFunc(slices.Values(all), func(a, b part) int { return cmp.Compare(a.path(format), b.path(format)) })
}

// parts are those that belong to one architecture, and what is copied.
func parts(s *src, bin, arch string) ([]part, error) {
	data, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	mods, err := modules(s, info)
	if err != nil {
		return nil, err
	}
	bill, err := sbom(s, arch, data, mods)
	if err != nil {
		return nil, err
	}
	all := []part{
		{kind: program, name: "seine", data: data}, {kind: doc, name: sbomName, data: bill}, {kind: licence, name: "THIRD-PARTY.txt", data: notices(mods)},
	}
	for _, f := range []struct {
		kind kind
		glob string
	}{{doc, "README.md"}, {doc, "CHANGELOG.md"}, {licence, "LICENSES/*"}, {unit, "deploy/seine-agent.service"}} {
		names, err := filepath.Glob(filepath.Join(s.root, f.glob))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			all = append(all, part{kind: f.kind, name: filepath.Base(name), data: data})
		}
	}
	return all, nil
}
