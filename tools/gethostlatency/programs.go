// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"os"
	"runtime"

	"seine/internal/lab"
)

// A libc is a C library that a program which looks up hosts is linked with.
type libc struct {
	name    string
	files   []string // loader and, unless that is it, library
	private bool     // the program sees them as copies in a root directory of its own
}

var (
	glibc = libc{name: "glibc", files: GlibcFiles[runtime.GOARCH]}
	musl  = libc{name: "musl", files: MuslFiles[runtime.GOARCH], private: true}
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

// program is the path of the program for l.
func (l libc) program(w *lab.World) (string, error) {
	for _, f := range l.files {
		if _, err := os.Stat(f); err != nil {
			return "", err
		}
	}
	return w.Program("resolve-" + l.name)
}
