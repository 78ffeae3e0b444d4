// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/host"
	"seine/internal/kbtf"
)

// ErrNotSupported marks something that a kernel cannot do, whatever the
// privileges.
var ErrNotSupported = errors.New("not supported by this kernel")

// A Kernel answers questions about the running kernel, mostly from its BTF.
type Kernel struct {
	Types   *kbtf.Types
	modules func() []*kbtf.Types // of those that are loaded

	stored bool // only the BTF is known
	given  bool // the BTF is from a file: the kernel itself has none
	fentry func() error
}

// fromFile is the types that UseBTF has read from the file BTFPath.
var (
	fromFile *kbtf.Types
	btfPath  string
)

// BTFPath is the file that UseBTF was given; empty if the kernel's own types are used.
func BTFPath() string { return btfPath }

// UseBTF makes Running take the types of the kernel from a file, for a kernel without BTF of its
// own. The file must belong to the running kernel, which cannot be checked. UseBTF has to be
// called before Running.
func UseBTF(path string) (err error) {
	btfPath = path
	fromFile, err = kbtf.File(path)
	return err
}

// Running reads the BTF of the running kernel. Without it there is no CO-RE.
var Running = sync.OnceValues(func() (*Kernel, error) {
	if fromFile != nil {
		k := Offline(fromFile)
		k.stored, k.given = false, true
		k.fentry = func() error { return k.can("fentry") }
		return k, nil
	}
	types, err := kbtf.Running()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: no BTF (CONFIG_DEBUG_INFO_BTF) at %svmlinux: give this kernel's with --btf FILE", ErrNotSupported, kbtf.Dir)
	case err != nil:
		return nil, fmt.Errorf("%w: %svmlinux: %w", ErrNotSupported, kbtf.Dir, err)
	}
	k := &Kernel{Types: types}
	k.modules = sync.OnceValue(k.readModules)
	k.fentry = sync.OnceValue(k.tryFentry)
	return k, nil
})

// Offline is a kernel of which only the BTF is known.
func Offline(types *kbtf.Types) *Kernel {
	return &Kernel{Types: types, modules: func() []*kbtf.Types { return nil }, stored: true}
}

// Args returns the arguments of a tracepoint as tp_btf and raw_tp programs see
// them, nil if the kernel has no such tracepoint.
func (k *Kernel) Args(tracepoint string) []kbtf.Param {
	if args, ok := k.Types.Tracepoint(tracepoint); ok {
		return args
	}
	for _, m := range k.modules() {
		if args, ok := m.Tracepoint(tracepoint); ok {
			return args
		}
	}
	return nil
}

// function returns the parameters of a function, false if there is none.
func (k *Kernel) function(name string) ([]kbtf.Param, bool) {
	if params, ok := k.Types.Function(name); ok {
		return params, true
	}
	for _, m := range k.modules() {
		if params, ok := m.Function(name); ok {
			return params, true
		}
	}
	return nil, false
}

// HasFunc reports whether the kernel has a function that can be traced by name.
func (k *Kernel) HasFunc(name string) bool {
	_, ok := k.function(name)
	return ok
}

// Fentry returns the reason why functions cannot be traced by fentry and fexit
// here.
func (k *Kernel) Fentry() error { return k.fentry() }

// Untold is the reason for a way that is not taken because only a process with a capability can
// find out whether it works.
type Untold struct{ Cap host.Capability }

func (e Untold) Error() string { return fmt.Sprintf("nobody can tell without %v", e.Cap) }

// tryFentry loads a program that does nothing on a function made for tests.
func (k *Kernel) tryFentry() error {
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"p": {
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "bpf_fentry_test1", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}}}
	opts, err := k.Load(spec)
	if err != nil {
		return err
	}
	opts.Programs.LogDisabled = true
	coll, err := ebpf.NewCollectionWithOptions(spec, opts)
	if err != nil {
		if missing := host.NeedTrace.Missing(); len(missing) > 0 {
			return fmt.Errorf("%w: %w", ErrNotSupported, Untold{missing[0]})
		}
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("%w: this kernel refuses fentry and fexit programs (EPERM)", ErrNotSupported)
		}
		return fmt.Errorf("%w: fentry: %w", ErrNotSupported, err)
	}
	coll.Close()
	return nil
}

// Given reports whether the types come from a file. Then programs may neither call
// functions of the kernel nor have pointers whose type the verifier knows.
func (k *Kernel) Given() bool { return k.given }

// ownBTF are the sections of programs that the kernel itself checks against its BTF.
var ownBTF = []string{"tp_btf", "fentry", "fexit", "iter"}

// can returns the reason why programs of a section cannot work here, whatever
// they attach to.
func (k *Kernel) can(kind string) error {
	if k.given && slices.Contains(ownBTF, kind) {
		return fmt.Errorf("%w: %s programs need a kernel with BTF of its own, and this one's is from a file", ErrNotSupported, kind)
	}
	switch kind {
	case "fentry", "fexit":
		return k.fentry()
	case "kprobe", "kretprobe":
		return Kprobes()
	case "tracepoint":
		if _, err := host.Tracefs(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSupported, err)
		}
	}
	return nil
}

// Kprobes returns the reason why functions cannot be traced by kprobes here.
// kprobes do not need BTF.
func Kprobes() error {
	if _, err := os.Stat("/sys/bus/event_source/devices/kprobe/type"); err != nil {
		return fmt.Errorf("%w: no kprobes (CONFIG_KPROBES)", ErrNotSupported)
	}
	return nil
}

// WayNames are the ways that a kernel has or lacks as a whole.
var WayNames = []string{"btf", "raw", "tp", "fentry", "kprobe"}

// Offers returns for each of WayNames the reason why it does not work here;
// nil: it works.
func (k *Kernel) Offers() map[string]error {
	return map[string]error{
		"btf": k.can("tp_btf"), "raw": nil,
		"tp":     k.can("tracepoint"),
		"fentry": k.can("fentry"),
		"kprobe": k.can("kprobe"),
	}
}
