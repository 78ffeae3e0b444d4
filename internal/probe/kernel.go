// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/host"
)

// ErrNotSupported is what a kernel cannot do, however much one is allowed.
var ErrNotSupported = errors.New("not supported by this kernel")

// A Kernel answers questions about the running kernel, mostly from its BTF, and
// keeps the decoded types for the programs that are loaded.
type Kernel struct {
	Types *btf.Spec
	cache *btf.Cache

	fentry func() error
}

// Running reads the BTF of the running kernel. Without it there is no CO-RE.
var Running = sync.OnceValues(func() (*Kernel, error) {
	k := &Kernel{cache: btf.NewCache()}
	types, err := k.cache.Kernel()
	if err != nil {
		return nil, fmt.Errorf("%w: no BTF (CONFIG_DEBUG_INFO_BTF) at /sys/kernel/btf/vmlinux", ErrNotSupported)
	}
	k.Types = types
	k.fentry = sync.OnceValue(k.tryFentry)
	return k, nil
})

// Offline is a kernel of which only the BTF is at hand.
func Offline(types *btf.Spec) *Kernel { return &Kernel{Types: types} }

// Args returns the types of a tracepoint's arguments as tp_btf and raw_tp
// programs see them, nil if the kernel has no such tracepoint.
func (k *Kernel) Args(tracepoint string) []btf.Type {
	var def *btf.Typedef
	if k.find("btf_trace_"+tracepoint, &def) != nil {
		return nil
	}
	ptr, ok := def.Type.(*btf.Pointer)
	if !ok {
		return nil
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	if !ok || len(proto.Params) == 0 {
		return nil
	}
	var args []btf.Type
	for _, p := range proto.Params[1:] { // the first is the tracepoint's own data
		args = append(args, p.Type)
	}
	return args
}

// HasFunc says whether the kernel has a function that can be traced by name.
func (k *Kernel) HasFunc(name string) bool {
	var fn *btf.Func
	return k.find(name, &fn) == nil
}

// tryFentry loads a program that does nothing on a function made for tests.
func (k *Kernel) tryFentry() error {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "bpf_fentry_test1", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		if missing := host.NeedTrace.Missing(); len(missing) > 0 {
			return fmt.Errorf("%w: nobody can tell without %v", ErrNotSupported, missing[0])
		}
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("%w: this kernel refuses fentry and fexit programs (EPERM)", ErrNotSupported)
		}
		return fmt.Errorf("%w: fentry: %w", ErrNotSupported, err)
	}
	return prog.Close()
}

// can says why programs of a section cannot work here whatever they attach to.
func (k *Kernel) can(kind string) error {
	switch kind {
	case "fentry", "fexit":
		return k.fentry()
	case "kprobe", "kretprobe":
		if _, err := os.Stat("/sys/bus/event_source/devices/kprobe/type"); err != nil {
			return fmt.Errorf("%w: no kprobes (CONFIG_KPROBES)", ErrNotSupported)
		}
	case "tracepoint":
		if _, err := host.Tracefs(); err != nil {
			return fmt.Errorf("%w: %w", ErrNotSupported, err)
		}
	}
	return nil
}

// WayNames are the ways whose being there depends on the kernel as a whole.
var WayNames = []string{"btf", "raw", "tp", "fentry", "kprobe"}

// Offers says of each of WayNames why it cannot be had here; nil: it can.
func (k *Kernel) Offers() map[string]error {
	return map[string]error{
		"btf": nil, "raw": nil,
		"tp":     k.can("tracepoint"),
		"fentry": k.can("fentry"),
		"kprobe": k.can("kprobe"),
	}
}
