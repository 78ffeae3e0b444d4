// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"seine/internal/lab"
)

//go:embed testdata/resolve.c
var source []byte

// A libc is a C library to make a program with that looks up hosts.
type libc struct {
	name    string
	files   []string // loader and library
	flags   []string // to link with them
	private bool     // the program sees them as copies in a root directory of its own
}

const muslPath = "/lib/ld-musl-x86_64.so.1"

var (
	glibc = libc{name: "glibc", files: []string{"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"}}
	musl  = libc{
		name: "musl", files: []string{muslPath}, private: true,
		flags: []string{"-DSTART", "-fno-stack-protector", "-nostdlib", "-Wl,--dynamic-linker=" + muslPath, muslPath},
	}
)

// program is the path of the program for l: beside our own, where make test put
// it for guests, which have no compiler; or made now.
func (l libc) program(w *lab.World) (string, error) {
	for _, f := range l.files {
		if _, err := os.Stat(f); err != nil {
			return "", err
		}
	}
	if self, err := os.Executable(); err == nil {
		made := filepath.Join(filepath.Dir(self), l.output())
		if _, err := os.Stat(made); err == nil {
			return made, nil
		}
	}
	dir, err := w.Dir()
	if err != nil {
		return "", err
	}
	return l.build(dir)
}

func (l libc) output() string { return "resolve-" + l.name }

func (l libc) build(dir string) (string, error) {
	out, src := filepath.Join(dir, l.output()), filepath.Join(dir, "resolve.c")
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return "", err
	}
	defer os.Remove(src)
	compiler := "cc"
	if _, err := exec.LookPath(compiler); err != nil {
		compiler = "clang-14"
	}
	text, err := exec.Command(compiler, append([]string{"-O1", "-w", "-o", out, src}, l.flags...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", compiler, err, text)
	}
	return out, nil
}

// GuestFiles makes the programs that the live cases start, and lists what a
// guest needs for them, as flags of test/vm.
func GuestFiles(dir string) ([]string, error) {
	var flags []string
	for _, l := range []libc{glibc, musl} {
		made, err := l.build(dir)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-file", made)
		for _, f := range l.files {
			flags = append(flags, "-file", f+":"+f)
		}
	}
	for _, f := range []string{"/bin/sh", "/usr/bin/getent"} { // the demo's traffic
		file, err := filepath.EvalSymlinks(f)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-file", file+":"+f)
	}
	return flags, nil
}
