// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"seine/internal/row"
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

// userFunctions gives the functions of an ELF file.
func (x *expander) userFunctions(ap AttachPoint, kind ProbeKind, file, name string) ([]*Target, error) {
	path, ok := findBinary(file)
	if !ok {
		return nil, x.missing(ap, "there is no file %s", file)
	}
	make := func(n string) *Target {
		return &Target{Kind: kind, Way: kind, Path: path, Name: n, Func: n, Probe: kind.String() + ":" + path + ":" + n, Wild: wild(name)}
	}
	if addr, err := strconv.ParseUint(name, 0, 64); err == nil {
		t := make(name)
		t.Addr = addr
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
	for _, f := range funcs {
		if match(name, f) {
			t := make(f)
			t.Offset = off
			list = append(list, t)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return nil, x.missing(ap, "%s", noFunction(path, name, funcs))
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
