// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/kbtf"
)

// An Ahead is the types that the programs of an object need. They are decoded while the object itself is.
type Ahead struct {
	needs []string
	types func() (*btf.Spec, error) // waits until they are
}

// Begin decodes in the background the types that an object needs. functions are looked for in the same pass over the
// types of the kernel.
func Begin(kernel func() (*Kernel, error), needs []string, functions ...string) *Ahead {
	a := &Ahead{needs, sync.OnceValues(func() (*btf.Spec, error) {
		k, err := kernel()
		if err != nil {
			return nil, err
		}
		k.Types.Look(slices.Concat(needs, functions)...)
		return k.Types.Part(needs)
	})}
	go a.types()
	return a
}

// Load returns the options for loading programs of spec: the kernel types that
// they need. cilium/ebpf would decode all types of the kernel and of every module.
func (k *Kernel) Load(spec *ebpf.CollectionSpec) (ebpf.CollectionOptions, error) {
	return k.load(spec, nil)
}

// load is Load with types that may have been decoded before.
func (k *Kernel) load(spec *ebpf.CollectionSpec, ahead *Ahead) (ebpf.CollectionOptions, error) {
	if err := setOptions(spec); err != nil {
		return ebpf.CollectionOptions{}, err
	}
	k.poison(spec)
	if ahead == nil {
		needs := Needs(spec)
		ahead = &Ahead{needs, func() (*btf.Spec, error) { return k.Types.Part(needs) }}
	}
	cache := btf.NewCache()
	if k.inModules(ahead.needs) {
		return ebpf.CollectionOptions{Cache: cache}, nil
	}
	types, err := ahead.types()
	if err != nil {
		return ebpf.CollectionOptions{}, err
	}
	setKernel(cache, types)
	return ebpf.CollectionOptions{Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: types}}, nil
}

// Part decodes the types of this kernel that the programs of spec need.
func (k *Kernel) Part(spec *ebpf.CollectionSpec) (*btf.Spec, error) {
	return k.Types.Part(Needs(spec))
}

// inModules reports whether some of these names belong to a module.
func (k *Kernel) inModules(names []string) bool {
	var missing []string
	for i, ids := range k.Types.Look(names...) {
		if !slices.ContainsFunc(ids, func(id kbtf.ID) bool { return k.Types.ByID(id).Kind() != kbtf.Forward }) {
			missing = append(missing, names[i])
		}
	}
	if len(missing) == 0 {
		return false
	}
	for _, m := range k.modules() {
		for _, ids := range m.Look(missing...) {
			if len(ids) > 0 {
				return true
			}
		}
	}
	return false
}

// Needs are the names of the types and functions of a kernel that programs read, attach to or call, in order.
func Needs(spec *ebpf.CollectionSpec) []string {
	need := map[string]bool{}
	names := map[uint64]string{}
	for _, ps := range spec.Programs {
		switch {
		case ps.Type == ebpf.RawTracepoint, ps.AttachType == ebpf.AttachTraceRawTp:
			need["btf_trace_"+ps.AttachTo] = true
		case ps.AttachType == ebpf.AttachTraceIter:
			need["bpf_iter_"+ps.AttachTo] = true
		case ps.Type == ebpf.Tracing, kindOf(ps) == "kprobe", kindOf(ps) == "kretprobe":
			need[ps.AttachTo] = true
		}
		for i := range ps.Instructions {
			ins := &ps.Instructions[i]
			if r := btf.CORERelocationMetadata(ins); r != nil {
				need[typeOf(r, names)] = true
			}
			if ins.IsKfuncCall() {
				need[ins.Reference()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(need))
}

// poison replaces calls of functions that this kernel does not have by calls that the verifier
// refuses if it reaches them. cilium/ebpf does the same after it has searched every module.
func (k *Kernel) poison(spec *ebpf.CollectionSpec) {
	for _, ps := range spec.Programs {
		for i := range ps.Instructions {
			ins := &ps.Instructions[i]
			if ins.IsKfuncCall() && (k.given || !k.HasFunc(ins.Reference())) {
				*ins = asm.BuiltinFunc(poisoned).Call().WithSymbol(ins.Symbol())
			}
		}
	}
}

// hasOption is what owner_has of owner.h has in its code until programs are loaded, with the bits
// that it asks for in the lower half.
const hasOption = 0x5e1f0000

// setOptions writes into the programs what owner_has asks: 1 if one of the bits is on, else 0.
func setOptions(spec *ebpf.CollectionSpec) error {
	v := spec.Variables["owner_options"]
	if v == nil {
		return nil
	}
	var on uint32
	if err := v.Get(&on); err != nil {
		return fmt.Errorf("owner_options: %w", err)
	}
	for _, ps := range spec.Programs {
		for i := range ps.Instructions {
			ins := &ps.Instructions[i]
			if ins.OpCode != asm.Mov.Op(asm.ImmSource) || ins.Constant&^0xffff != hasOption {
				continue
			}
			if asked := uint32(ins.Constant & 0xffff); on&asked != 0 {
				ins.Constant = 1
			} else {
				ins.Constant = 0
			}
		}
	}
	return nil
}

// poisoned is not the number of any helper.
const poisoned = 0x5e1e
