// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"

	"seine/internal/host"
)

// find looks for a type in the kernel, then in the modules that are loaded, as
// cilium/ebpf does for what programs attach to.
func (k *Kernel) find(name string, typ any) error {
	err := k.Types.TypeByName(name, typ)
	if k.cache == nil || !errors.Is(err, btf.ErrNotFound) {
		return err
	}
	modules, merr := k.cache.Modules()
	if merr != nil {
		return err
	}
	for _, m := range modules {
		types, merr := k.cache.Module(m)
		if merr == nil && types.TypeByName(name, typ) == nil {
			return nil
		}
	}
	return err
}

// HasModule fits kernels with the BTF of a module, or with the module built in;
// where they have none it says what would help. Of a stored kernel it knows
// nothing: there the tracepoints decide.
func HasModule(name string) func(*Kernel) error {
	return func(k *Kernel) error {
		if k.cache == nil {
			return nil
		}
		switch host.Module(name) {
		case host.ModuleAbsent:
			return fmt.Errorf("%w: this kernel has no %s: it takes one with that module, built in or loaded", ErrNotSupported, name)
		case host.ModuleInstalled:
			return fmt.Errorf("%w: the module %s is not loaded: modprobe %s, or plug in what it is for", ErrNotSupported, name, name)
		}
		if host.ModuleBTF(name) {
			return nil
		}
		return fmt.Errorf("%w: the module %s has no BTF, by which its data could be read: that takes Linux 5.11 with CONFIG_DEBUG_INFO_BTF_MODULES",
			ErrNotSupported, name)
	}
}
