// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/kbtf"
)

// Load returns the options for loading programs of spec: the kernel types that
// they need. cilium/ebpf would decode all types of the kernel and of every module.
func (k *Kernel) Load(spec *ebpf.CollectionSpec) (ebpf.CollectionOptions, error) {
	if err := setOptions(spec); err != nil {
		return ebpf.CollectionOptions{}, err
	}
	n := k.needs(spec)
	n.poison(k)
	cache := btf.NewCache()
	if k.inModules(n.names()) {
		return ebpf.CollectionOptions{Cache: cache}, nil
	}
	types, err := k.begun(spec, n)
	if err != nil {
		return ebpf.CollectionOptions{}, err
	}
	setKernel(cache, types)
	return ebpf.CollectionOptions{Cache: cache, Programs: ebpf.ProgramOptions{KernelTypes: types}}, nil
}

// Expect reads in one pass everything that will be asked about the programs of
// spec, and about functions.
func (k *Kernel) Expect(spec *ebpf.CollectionSpec, functions ...string) {
	k.Types.Look(append(k.needs(spec).names(), functions...)...)
}

// An early part is the types for a spec, which Begin has decoded.
type early struct {
	spec  *ebpf.CollectionSpec
	types func() (*btf.Spec, error) // waits until they are
}

// Begin decodes the types that Load needs in the background, while the caller does what comes before.
func (k *Kernel) Begin(spec *ebpf.CollectionSpec) {
	names := k.needs(spec).names() // now: Load changes the programs
	e := &early{spec, sync.OnceValues(func() (*btf.Spec, error) { return k.part(names) })}
	go e.types()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.early = e
}

// begun returns the types for a spec, and forgets them if Begin has decoded them.
func (k *Kernel) begun(spec *ebpf.CollectionSpec, n needs) (*btf.Spec, error) {
	k.mu.Lock()
	e := k.early
	known := e != nil && e.spec == spec // not so for the table of owners, which comes before its tool
	if known {
		k.early = nil
	}
	k.mu.Unlock()
	if !known {
		return k.part(n.names())
	}
	return e.types()
}

// Part decodes the types of this kernel that the programs of spec need.
func (k *Kernel) Part(spec *ebpf.CollectionSpec) (*btf.Spec, error) {
	return k.part(k.needs(spec).names())
}

// needs caches needsOf, which is slow and is called again for the same spec.
func (k *Kernel) needs(spec *ebpf.CollectionSpec) needs {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spec != spec {
		k.spec, k.wants = spec, needsOf(spec)
	}
	return k.wants
}

func (k *Kernel) part(names []string) (*btf.Spec, error) {
	types, err := btf.LoadSpecFromReader(bytes.NewReader(k.Types.Part(names)))
	if err != nil {
		return nil, fmt.Errorf("a part of the kernel's BTF: %w", err)
	}
	return types, nil
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

// needs are the names of the types and functions of a kernel that programs need.
type needs struct {
	types  map[string]bool               // that are read, or attached to
	kfuncs map[string][]*asm.Instruction // functions that are called, and where
}

func needsOf(spec *ebpf.CollectionSpec) needs {
	n := needs{map[string]bool{}, map[string][]*asm.Instruction{}}
	names := map[uint64]string{}
	for _, ps := range spec.Programs {
		switch {
		case ps.Type == ebpf.RawTracepoint, ps.AttachType == ebpf.AttachTraceRawTp:
			n.types["btf_trace_"+ps.AttachTo] = true
		case ps.AttachType == ebpf.AttachTraceIter:
			n.types["bpf_iter_"+ps.AttachTo] = true
		case ps.Type == ebpf.Tracing, kindOf(ps) == "kprobe", kindOf(ps) == "kretprobe":
			n.types[ps.AttachTo] = true
		}
		for i := range ps.Instructions {
			ins := &ps.Instructions[i]
			if r := btf.CORERelocationMetadata(ins); r != nil {
				n.types[typeOf(r, names)] = true
			}
			if ins.IsKfuncCall() {
				n.kfuncs[ins.Reference()] = append(n.kfuncs[ins.Reference()], ins)
			}
		}
	}
	return n
}

func (n needs) names() []string {
	return slices.AppendSeq(slices.Collect(maps.Keys(n.types)), maps.Keys(n.kfuncs))
}

// poison replaces calls of functions that this kernel does not have by calls that the verifier
// refuses if it reaches them. cilium/ebpf does the same after it has searched every module.
func (n needs) poison(k *Kernel) {
	for name, calls := range n.kfuncs {
		if k.HasFunc(name) && !k.given {
			continue
		}
		for _, ins := range calls {
			*ins = asm.BuiltinFunc(poisoned).Call().WithSymbol(ins.Symbol())
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
