// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// copyright is what Debian wants in the place of licences.
//
//go:embed copyright
var copyright []byte

const maintainer = "The seine authors <authors@seine.invalid>"

const summary = "what the Linux network stack is doing, by process"

const description = `One static binary with the tools of the networking chapter of BPF Performance
Tools, rebuilt on CO-RE eBPF: who talks to whom, how many bytes, how long it
took, what went wrong. Needs Linux 5.10 or later with BTF, and nothing else.`

// pack writes a .deb or an .rpm. nfpm takes files from a disk.
func pack(format string, s *src, arch string, all []part, tmp, dist string) error {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "seine", Arch: arch, Version: s.version, VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: maintainer,
		Description: description,
		MTime:       s.time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			RPM: nfpm.RPM{BuildHost: "seine", Summary: summary, Group: "Applications/System"},
		},
	})
	if format == deb {
		info.Description = summary + "\n" + description
		all = append(all[:len(all):len(all)], part{kind: doc, name: "copyright", data: copyright}, part{kind: doc, name: "changelog.Debian.gz", data: changelog(s)})
	} else {
		info.License = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"
	}
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
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: p.mode()},
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

// changelog is the package's own, which Debian wants.
func changelog(s *src) []byte {
	const entry = "seine (%s-1) unstable; urgency=medium\n\n  * Built from the sources; CHANGELOG.md says what is new.\n\n -- %s  %s\n"
	return compress(fmt.Appendf(nil, entry, s.version, maintainer, s.time.Format(time.RFC1123Z)))
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
