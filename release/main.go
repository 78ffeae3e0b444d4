// SPDX-License-Identifier: Apache-2.0

// Command release makes what is given away of seine: for each architecture a
// tarball, a .deb, an .rpm and a bill of materials, and their checksums. The
// same sources and the same Go make the same bytes, wherever and whenever.
//
// It is a module of its own, so that what makes packages is no part of seine.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

var arches = []string{"amd64", "arm64"}

func main() {
	root := flag.String("root", "..", "seine's sources")
	dist := flag.String("dist", "../dist", "where to write to; what was there is removed")
	flag.Parse()
	if err := release(*root, *dist); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(root, dist string) error {
	s, err := source(root)
	if err != nil {
		return err
	}
	// Cobra and nfpm look at it too.
	if err := os.Setenv("SOURCE_DATE_EPOCH", fmt.Sprint(s.time.Unix())); err != nil {
		return err
	}
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "seine-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	pages, err := pages(s, tmp)
	if err != nil {
		return err
	}
	for _, arch := range arches {
		if err := one(s, arch, pages, tmp, dist); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return sums(dist)
}

// one makes the packages of an architecture.
func one(s *src, arch string, pages []part, tmp, dist string) error {
	bin, err := build(s, arch, tmp)
	if err != nil {
		return err
	}
	own, err := parts(s, bin, arch)
	if err != nil {
		return err
	}
	all := append(own, pages...)
	name := filepath.Join(dist, fmt.Sprintf("seine-%s-linux-%s", s.version, arch))
	for _, p := range own {
		if p.name == sbomName {
			if err := os.WriteFile(name+".spdx.json", p.data, 0o644); err != nil {
				return err
			}
		}
	}
	if err := tarball(name+".tar.gz", s, all); err != nil {
		return err
	}
	for _, format := range []string{deb, rpm} {
		if err := pack(format, s, arch, all, tmp, dist); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// sums writes SHA256SUMS, as sha256sum -c reads it.
func sums(dist string) error {
	names, err := filepath.Glob(filepath.Join(dist, "*"))
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, name := range names { // Glob sorts
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), filepath.Base(name))
		fmt.Printf("%9d %s\n", len(data), name)
	}
	return os.WriteFile(filepath.Join(dist, "SHA256SUMS"), []byte(b.String()), 0o644)
}
