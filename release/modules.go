// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is code of others that is linked into the binary.
type module struct {
	path, version string
	sum           string // as in go.sum
	licence       string // its SPDX name
	text          []byte
}

// modules are those that a binary says it is made of, and Go's own library.
func modules(s *src, info *buildinfo.BuildInfo) ([]module, error) {
	root, err := goTool(s, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all := []module{{path: "stdlib", version: strings.TrimPrefix(info.GoVersion, "go")}}
	dirs := []string{root}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		dir, err := goTool(s, "list", "-m", "-f", "{{.Dir}}", d.Path)
		if err != nil {
			return nil, err
		}
		all = append(all, module{path: d.Path, version: d.Version, sum: d.Sum})
		dirs = append(dirs, dir)
	}
	for i := range all {
		if all[i].text, err = texts(dirs[i], more[all[i].path]); err != nil {
			return nil, err
		}
		if all[i].licence = name(all[i].text); all[i].licence == "" {
			return nil, fmt.Errorf("%s: a licence that is not known here", all[i].path)
		}
	}
	return all, nil
}

func goTool(s *src, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = s.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// more are licences of parts of a module, where those are not the module's.
var more = map[string][]string{"golang.org/x/image": {"font/gofont/ttfs/README"}}

// texts are the files that must go along with the code in dir.
func texts(dir string, names []string) ([]byte, error) {
	var b bytes.Buffer
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		stem, _, _ := strings.Cut(strings.ToUpper(e.Name()), ".")
		if !e.IsDir() && slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, stem) {
			names = append(names, e.Name())
		}
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s\n\n", bytes.TrimSpace(text))
	}
	return b.Bytes(), nil
}

// name finds licences by sentences that only they have.
func name(text []byte) string {
	words := strings.Join(strings.Fields(string(text)), " ")
	var names []string
	for _, l := range []struct{ name, has string }{
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"Apache-2.0", "Licensed under the Apache License, Version 2.0"},
		{"MIT", "Permission is hereby granted, free of charge, to any person"},
		{"BSD-3-Clause", "names of its contributors may be used to endorse"},
	} {
		if strings.Contains(words, l.has) && !slices.Contains(names, l.name) {
			names = append(names, l.name)
		}
	}
	if strings.Contains(words, "Redistribution and use in source and binary forms") && !slices.Contains(names, "BSD-3-Clause") {
		names = append(names, "BSD-2-Clause")
	}
	return strings.Join(names, " AND ")
}

// notices are the texts one after the other.
func notices(mods []module) []byte {
	var b bytes.Buffer
	b.WriteString("seine is linked with this code of others.\n")
	for _, m := range mods {
		fmt.Fprintf(&b, "\n%s\n%s %s (%s)\n%[1]s\n\n%[5]s", strings.Repeat("=", 78), m.path, m.version, m.licence, m.text)
	}
	return b.Bytes()
}
