// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// copyright is what Debian wants in the place of licences.
//
//go:embed copyright
var copyright []byte

const summary = "what the Linux network stack is doing, by process"

const description = summary + `
One static binary with the tools of the networking chapter of BPF Performance
Tools, rebuilt on CO-RE eBPF: who talks to whom, how many bytes, how long it
took, what went wrong. Needs Linux 5.10 or later with BTF, and nothing else.`

// pack writes a .deb or an .rpm. nfpm takes files from a disk.
func pack(format string, s *src, arch string, all []part, tmp, dist string) error {
	if format == deb {
		all = append(all[:len(all):len(all)], part{kind: doc, name: "copyright", data: copyright})
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "seine", Arch: arch, Version: s.version, VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The seine authors <authors@seine.invalid>",
		Description: description, License: "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		MTime: s.time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			RPM: nfpm.RPM{BuildHost: "seine", Summary: summary, Group: "Applications/System"},
		},
	})
	for _, p := range sorted(all, format) {
		from := filepath.Join(tmp, arch+"-"+format, p.path(format))
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(from, p.data, p.mode()); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{
			Source: from, Destination: "/" + p.path(format), Type: rpmType(p, format),
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: p.mode(), MTime: s.time},
		})
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	to, err := os.Create(filepath.Join(dist, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	if err := packager.Package(info, to); err != nil {
		to.Close()
		return fmt.Errorf("nfpm: %w", err)
	}
	return to.Close()
}

// rpmType marks what rpm -qd and rpm -qL list.
func rpmType(p part, format string) string {
	switch {
	case format == rpm && p.kind == licence:
		return files.TypeRPMLicense
	case format == rpm && (p.kind == doc || p.kind == manual):
		return files.TypeRPMDoc
	}
	return files.TypeFile
}
