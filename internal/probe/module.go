// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"

	"seine/internal/host"
	"seine/internal/kbtf"
)

// readModules reads the types of the modules that are loaded.
func (k *Kernel) readModules() (out []*kbtf.Types) {
	files, _ := os.ReadDir(kbtf.Dir)
	for _, f := range files {
		if f.Name() == "vmlinux" {
			continue
		}
		if m, err := kbtf.Module(f.Name(), k.Types); err == nil { // else it was unloaded just now
			out = append(out, m)
		}
	}
	return out
}

// HasModule fits kernels with the BTF of a module, or with the module built in.
// Otherwise its error says what would help. For a stored kernel it cannot know;
// there the tracepoints decide.
func HasModule(name string) func(*Kernel) error {
	return func(k *Kernel) error {
		if k.stored {
			return nil
		}
		switch host.Module(name) {
		case host.ModuleAbsent:
			return fmt.Errorf("%w: this kernel has no %s: use a kernel with that module, built in or loaded", ErrNotSupported, name)
		case host.ModuleInstalled:
			return fmt.Errorf("%w: the module %s is not loaded: modprobe %s, or plug in a device that needs it", ErrNotSupported, name, name)
		}
		if host.ModuleBTF(name) {
			return nil
		}
		return fmt.Errorf("%w: the module %s has no BTF, which is needed to read its data: it takes Linux 5.11 with CONFIG_DEBUG_INFO_BTF_MODULES",
			ErrNotSupported, name)
	}
}
