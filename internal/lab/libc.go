// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// A LibC is a C library that a program which looks up hosts is linked with.
type LibC struct {
	Name    string
	Files   []string // loader and, unless that is it, library
	Private bool     // the program sees them as copies in a root directory of its own
}

// The C libraries that there are programs for.
var (
	Glibc = LibC{Name: "glibc", Files: GlibcFiles[runtime.GOARCH]}
	Musl  = LibC{Name: "musl", Files: MuslFiles[runtime.GOARCH], Private: true}
)

// GlibcFiles are the loader and the library of glibc, by architecture.
var GlibcFiles = map[string][]string{
	"amd64": {"/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"},
	"arm64": {"/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu/libc.so.6"},
}

// MuslFiles is the one file of musl.
var MuslFiles = map[string][]string{
	"amd64": {"/lib/ld-musl-x86_64.so.1"},
	"arm64": {"/lib/ld-musl-aarch64.so.1"},
}

// Start starts a program that is ready to make calls, each a function and a host:
// test/programs/resolve.c. It begins when it is told so, and reports a [Resolved] of
// each call. ErrNotSupported: this machine does not have the library or the program.
func (l LibC) Start(w *World, etc map[string]string, calls ...string) (*Proc, error) {
	for _, f := range l.Files {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("lab: %w: %w", ErrNotSupported, err)
		}
	}
	prog, err := w.Program("resolve-" + l.Name)
	if err != nil {
		return nil, err
	}
	m := Mounts{Etc: etc, Program: append([]string{prog}, calls...)}
	if l.Private {
		m.Root = map[string]string{"/" + filepath.Base(prog): prog}
		for _, f := range l.Files {
			m.Root[f] = f
		}
		m.Program[0] = "/" + filepath.Base(prog)
	}
	return w.StartIn("", filepath.Base(prog), m)
}

// Resolved is what resolve.c says of a call.
type Resolved struct {
	Call, Host string
	Code       int32
	NS         int64
}

// Resolve has the program make its n calls and waits for its end.
func Resolve(p *Proc, n int) ([]Resolved, error) {
	if err := p.Tell("go"); err != nil {
		return nil, err
	}
	out := make([]Resolved, n)
	for i := range out {
		if err := p.Expect(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, p.Wait()
}
