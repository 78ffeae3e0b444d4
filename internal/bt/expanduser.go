// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"seine/internal/row"
	"seine/internal/sym"
)

// libraryDirs are where a library named without its path is looked for.
var libraryDirs = []string{
	"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
}

// findBinary gives the path of "libc", "bash" or "/bin/bash".
func findBinary(name string) (string, bool) {
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err == nil
	}
	for _, dir := range libraryDirs {
		for _, pattern := range []string{name, "lib" + name + ".so.[0-9]*", name + ".so.[0-9]*", "lib" + name + ".so", name + ".so"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, f := range found {
				if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() {
					return f, true
				}
			}
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		f := filepath.Join(dir, name)
		if st, err := os.Stat(f); err == nil && st.Mode().IsRegular() {
			return f, true
		}
	}
	return name, false
}

// userFunctions gives the functions of an ELF file; with cpp, by their names as C++ has them.
func (x *expander) userFunctions(ap AttachPoint, kind ProbeKind, file, name string, cpp bool) ([]*Target, error) {
	if wild(file) {
		return x.allFiles(ap, kind, file, name, cpp)
	}
	path, ok := findBinary(file)
	if !ok {
		return nil, x.missing(ap, "there is no file %s", file)
	}
	make := func(n string) *Target {
		return &Target{Kind: kind, Way: kind, Path: path, Name: n, Func: n, Probe: kind.String() + ":" + path + ":" + n, Wild: wild(name)}
	}
	if addr, err := strconv.ParseUint(name, 0, 64); err == nil {
		t := make(name)
		if t.Addr, err = fileOffset(path, addr); err != nil {
			return nil, x.missing(ap, "%s: %v", path, err)
		}
		if t.Addr == 0 {
			return nil, x.missing(ap, "%s has no code at %s", path, name)
		}
		return []*Target{t}, nil
	}
	name, offset, hasOffset := strings.Cut(name, "+")
	var off uint64
	if hasOffset {
		var err error
		if off, err = strconv.ParseUint(offset, 0, 32); err != nil {
			return nil, x.src.errorf(ap.pos, ap.end, "%s: an offset is a number", ap.Raw)
		}
	}
	funcs, err := elfFunctions(path)
	if err != nil {
		return nil, x.missing(ap, "%s: %v", path, err)
	}
	var list []*Target
	is := func(f string) bool { return match(name, f) }
	if cpp {
		is = func(f string) bool { return matchCPP(name, sym.Written(f)) }
	}
	for _, f := range funcs {
		if is(f) {
			t := make(f)
			t.Wild = t.Wild || cpp
			t.Offset = off
			list = append(list, t)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, x.missing(ap, "%s", noFunction(path, name, funcs))
}

// matchCPP says whether a pattern is of a name of C++, with its parameters or without.
func matchCPP(pattern, name string) bool {
	if match(pattern, name) {
		return true
	}
	without, _, ok := strings.Cut(name, "(")
	return ok && match(pattern, without)
}

// allFiles gives the functions of all files that match a pattern: a path, or the
// name of a file that a process of -p has mapped. A file without the function is
// passed over.
func (x *expander) allFiles(ap AttachPoint, kind ProbeKind, pattern, name string, cpp bool) (list []*Target, err error) {
	files, err := x.matchingFiles(ap, pattern)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		found, err := x.userFunctions(ap, kind, f, name, cpp)
		var none *missingError
		if err != nil && !errors.As(err, &none) {
			return nil, err
		}
		for _, t := range found {
			t.Wild = true
		}
		list = append(list, found...)
	}
	if len(list) == 0 {
		return nil, x.missing(ap, "no file that matches %s has a function %s", pattern, name)
	}
	return list, nil
}

// mappedFiles are the files whose code a process has mapped, as this process
// reaches them.
func mappedFiles(pid uint32) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	data, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return nil, fmt.Errorf("the files of process %d: %w", pid, err)
	}
	var files []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.Contains(f[1], "x") || !strings.HasPrefix(f[5], "/") {
			continue
		}
		path := strings.TrimSuffix(line[strings.Index(line, f[5]):], "\n")
		for _, reached := range []string{path, dir + "/root" + path} {
			if st, err := os.Stat(reached); err == nil && st.Mode().IsRegular() {
				files = append(files, reached)
				break
			}
		}
	}
	return files, nil
}

// fileOffset is where in a file the code at an address lies, 0 if there is none.
func fileOffset(path string, addr uint64) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, nil
		}
	}
	return 0, nil
}

// noFunction says why a file has no function of a name, of those that it has.
func noFunction(path, name string, funcs []string) string {
	if len(funcs) == 0 {
		return path + " has no symbols: it is stripped; give an address (" + path + ":0x1234), or a build that has them"
	}
	why := fmt.Sprintf("%s has no function %s", path, name)
	if near := row.Nearest(name, funcs); near != "" {
		return why + ": did you mean " + near + "?"
	}
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		if f.Section(".symtab") == nil {
			why += ": it is stripped, and names only what it exports"
		}
	}
	return why
}

// elfFunctions lists the functions of both symbol tables.
func elfFunctions(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	var names []string
	for _, s := range append(static, dynamic...) {
		if t := elf.ST_TYPE(s.Info); (t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC) && s.Section != elf.SHN_UNDEF && s.Value != 0 {
			name, _, _ := strings.Cut(s.Name, "@")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
