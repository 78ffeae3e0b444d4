// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"seine/internal/host"
)

// A functionList is the functions that can be traced, one a line, as ftrace lists
// them: the name, and in brackets the module. It is searched as it is: to make a
// map of 60,000 names takes longer.
type functionList string

// A traceable is one of them.
type traceable struct{ name, module string }

// find gives the functions that are wanted, each name once, in order.
func (l functionList) find(wanted func(traceable) bool) (list []traceable) {
	for line := range strings.Lines(string(l)) {
		name, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		if f := (traceable{name, strings.Trim(module, "[]")}); wanted(f) {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b traceable) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(list, func(a, b traceable) bool { return a.name == b.name })
}

// module says which module has a function; ok is whether there is such a function.
func (l functionList) module(name string) (module string, ok bool) {
	list := l.find(func(f traceable) bool { return f.name == name })
	if len(list) == 0 {
		return "", false
	}
	return list[0].module, true
}

// readFunctions takes ftrace's list, else the functions of kallsyms.
func readFunctions() (functionList, error) {
	if root, err := host.Tracefs(); err == nil {
		data, err := os.ReadFile(filepath.Join(root, "available_filter_functions"))
		if err == nil && len(data) > 0 {
			return functionList(data), nil
		}
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return "", err
	}
	defer f.Close()
	var list strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || !strings.Contains("tTwW", f[1]) || strings.ContainsAny(f[2], ".$") ||
			strings.HasPrefix(f[2], "__pfx_") || strings.HasPrefix(f[2], "__cfi_") || len(f) > 3 && f[3] == "[bpf]" {
			continue
		}
		list.WriteString(strings.Join(f[2:], " ") + "\n")
	}
	return functionList(list.String()), lines.Err()
}
