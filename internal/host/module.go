// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// ModuleState is whether a kernel module can be used.
type ModuleState int

// The states of a module.
const (
	ModuleAbsent    ModuleState = iota // neither loaded nor installed
	ModuleInstalled                    // can be loaded
	ModuleLoaded
	ModuleBuiltin // part of the kernel
)

// Module looks for a kernel module by its name with underscores.
func Module(name string) ModuleState {
	return module("/sys/module", "/lib/modules/"+KernelVersion(), name)
}

func module(loaded, installed, name string) ModuleState {
	if listed(filepath.Join(installed, "modules.builtin"), name) {
		return ModuleBuiltin
	}
	// A directory without initstate belongs to a built-in that has parameters.
	if _, err := os.Stat(filepath.Join(loaded, name, "initstate")); err == nil {
		return ModuleLoaded
	}
	if _, err := os.Stat(filepath.Join(loaded, name)); err == nil {
		return ModuleBuiltin
	}
	if listed(filepath.Join(installed, "modules.dep"), name) {
		return ModuleInstalled
	}
	return ModuleAbsent
}

// listed reports whether modules.dep or modules.builtin has a line for the
// module.
func listed(file, name string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		first, _, _ := strings.Cut(lines.Text(), ":")
		base, _, _ := strings.Cut(path.Base(first), ".ko")
		if strings.ReplaceAll(base, "-", "_") == name {
			return true
		}
	}
	return false
}

// ModuleBTF reports whether the types of a loaded module are known: from its
// own BTF, or from the kernel's if it is built in.
func ModuleBTF(name string) bool {
	if _, err := os.Stat(filepath.Join("/sys/kernel/btf", name)); err == nil {
		return true
	}
	return Module(name) == ModuleBuiltin
}
