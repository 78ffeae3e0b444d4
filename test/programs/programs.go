// SPDX-License-Identifier: Apache-2.0

// Package programs makes the compiled programs that live cases start, and lists
// what a guest needs to run them.
package programs

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"seine/internal/lab"
)

//go:embed *.c
var sources embed.FS

// A program is a C file and the flags to compile it with.
type program struct {
	source  string
	flags   []string
	foreign bool // for another architecture
}

// bare is a program with its own entry point.
var bare = []string{"-DSTART", "-fno-stack-protector", "-nostdlib"}

// programs are those for this architecture, by name.
var programs = map[string]program{
	"hot":           {source: "hot.c", flags: []string{"-O0", "-fno-omit-frame-pointer"}},
	"resolve-glibc": {source: "resolve.c", flags: []string{"-O1", "-w"}},
	"resolve-musl":  {source: "resolve.c", flags: append([]string{"-O1", "-w"}, musl(lab.MuslFiles[runtime.GOARCH][0])...)},
}

func musl(loader string) []string {
	return append(bare, "-Wl,--dynamic-linker="+loader, loader)
}

// Path finds a program beside this binary, where make test puts it for guests, which
// have no compiler; or makes it in dir. It is for [lab.Programs].
func Path(name, dir string) (string, error) {
	if self, err := os.Executable(); err == nil {
		made := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(made); err == nil {
			return made, nil
		}
	}
	if name == "systemd-resolved" {
		return resolved(dir)
	}
	p, ok := programs[name]
	if !ok {
		return "", errors.New("there is no such program")
	}
	return p.build(name, dir)
}

// build compiles the program. Without a compiler the error is ErrNotSupported.
func (p program) build(name, dir string) (string, error) {
	text, err := sources.ReadFile(p.source)
	if err != nil {
		return "", err
	}
	compiler := ""
	for _, c := range []string{"cc", "clang-14"} {
		if path, err := exec.LookPath(c); err == nil && compiler == "" && (c != "cc" || !p.foreign) {
			compiler = path
		}
	}
	if compiler == "" {
		return "", fmt.Errorf("no C compiler here: %w", lab.ErrNotSupported)
	}
	out, src := filepath.Join(dir, name), filepath.Join(dir, p.source)
	if err := os.WriteFile(src, text, 0o644); err != nil {
		return "", err
	}
	defer os.Remove(src)
	if said, err := exec.Command(compiler, append([]string{"-o", out, src}, p.flags...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", compiler, err, said)
	}
	return out, nil
}

// GuestFiles makes the programs that the live cases start, and lists what a
// guest needs for them, as flags of test/vm.
func GuestFiles(dir string) ([]string, error) {
	return guestFiles(dir, "", runtime.GOARCH, programs)
}

// cpus are the names of architectures in a compiler's targets.
var cpus = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// ForeignFiles does so for guests of another architecture, whose libraries are
// under root, as Debian's packages have them.
func ForeignFiles(dir, arch, root string) ([]string, error) {
	of := func(files []string) program {
		at := filepath.Join(root, "usr", files[len(files)-1])
		return program{source: "resolve.c", foreign: true, flags: append([]string{"-O1", "-w"}, append(bare,
			"--target="+cpus[arch]+"-linux-gnu", "-fuse-ld=lld", "-Wl,--dynamic-linker="+files[0],
			"-L"+filepath.Dir(at), "-l:"+filepath.Base(at))...)}
	}
	return guestFiles(dir, filepath.Join(root, "usr"), arch, map[string]program{
		"resolve-glibc": of(lab.GlibcFiles[arch]), "resolve-musl": of(lab.MuslFiles[arch]),
	})
}

func guestFiles(dir, root, arch string, from map[string]program) ([]string, error) {
	var flags []string
	for _, name := range []string{"resolve-glibc", "resolve-musl"} {
		made, err := from[name].build(name, dir)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-file", made)
	}
	for _, files := range [][]string{lab.GlibcFiles[arch], lab.MuslFiles[arch]} {
		for _, f := range files {
			flags = append(flags, "-file", root+f+":"+f)
		}
	}
	if root != "" {
		return flags, nil // programs of this machine do not run there
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
