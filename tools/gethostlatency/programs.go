// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"seine/internal/lab"
)

//go:embed testdata/resolve.c
var source []byte

// A libc is a C library to make a program with that looks up hosts.
type libc struct {
	name    string
	files   []string // loader and, unless that is it, library
	flags   []string // to link with them
	private bool     // the program sees them as copies in a root directory of its own
	foreign bool     // of another architecture
}

// bare is a program that brings its own beginning.
var bare = []string{"-DSTART", "-fno-stack-protector", "-nostdlib"}

var (
	glibc = libc{name: "glibc", files: glibcFiles[runtime.GOARCH]}
	musl  = libc{
		name: "musl", files: muslFiles[runtime.GOARCH], private: true,
		flags: append(bare, "-Wl,--dynamic-linker="+muslFiles[runtime.GOARCH][0], muslFiles[runtime.GOARCH][0]),
	}
)

var glibcFiles = map[string][]string{
	"amd64": {"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"},
	"arm64": {"/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu/libc.so.6"},
}

var muslFiles = map[string][]string{
	"amd64": {"/lib/ld-musl-x86_64.so.1"},
	"arm64": {"/lib/ld-musl-aarch64.so.1"},
}

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
	if _, err := exec.LookPath(compiler); err != nil || l.foreign {
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
	return guestFiles(dir, "", glibc, musl)
}

// ForeignFiles does so for guests of another architecture, whose libraries are
// under root, as Debian's packages have them.
func ForeignFiles(dir, arch, root string) ([]string, error) {
	of := func(name string, files []string) libc {
		at := filepath.Join(root, "usr", files[len(files)-1])
		return libc{name: name, files: files, foreign: true, flags: append(bare,
			"--target="+cpus[arch]+"-linux-gnu", "-fuse-ld=lld", "-Wl,--dynamic-linker="+files[0],
			"-L"+filepath.Dir(at), "-l:"+filepath.Base(at))}
	}
	return guestFiles(dir, filepath.Join(root, "usr"), of("glibc", glibcFiles[arch]), of("musl", muslFiles[arch]))
}

func guestFiles(dir, root string, libs ...libc) ([]string, error) {
	var flags []string
	for _, l := range libs {
		made, err := l.build(dir)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-file", made)
		for _, f := range l.files {
			flags = append(flags, "-file", root+f+":"+f)
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
