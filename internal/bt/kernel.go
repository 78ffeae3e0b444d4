// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
)

// A kernel answers what a program asks of the running kernel. Everything is read
// when first asked for: a tracepoint's one-liner needs no BTF at all.
type kernel struct {
	cache *btf.Cache
	user  userProtos

	types     func() (*btf.Spec, error)
	modules   func() []string
	functions func() (functionList, error)
	symbols   func() map[string]uint64
	lookUp    func(name string) (uint64, error) // the address of one symbol
	fentry    func() error
	kprobes   func() error
	multi     func() bool // kprobe.multi
	graph     func() bool // kretprobe.multi by the function graph: who is attached last runs first
	cookies   func() bool // attach cookies
	stacks    func() bool // programs have one stack for each processor
	forEach   func() error
	loop      func() bool       // bpf_loop
	tai       func() bool       // bpf_ktime_get_tai_ns
	stackMost func() int        // frames that the kernel's map of stacks can have
	writes    func() bool       // bpf_probe_write_user
	overrides func() bool       // bpf_override_return
	pidSpace  func() *namespace // ours, if it is not the machine's
	preempt   func() bool       // programs can be preempted by others of this script
	events    func() ([]string, error)
}

// running is the kernel of this machine.
var running = sync.OnceValue(newKernel)

func newKernel() *kernel {
	k := &kernel{cache: btf.NewCache()}
	k.types = sync.OnceValues(func() (*btf.Spec, error) {
		if path := probe.BTFPath(); path != "" {
			return btf.LoadSpec(path)
		}
		spec, err := k.cache.Kernel()
		if err != nil {
			return nil, fmt.Errorf("%w: no BTF (CONFIG_DEBUG_INFO_BTF): give this kernel's with --btf FILE", probe.ErrNotSupported)
		}
		return spec, nil
	})
	k.modules = sync.OnceValue(func() []string {
		var names []string
		entries, _ := os.ReadDir("/sys/kernel/btf")
		for _, e := range entries {
			if e.Name() != "vmlinux" {
				names = append(names, e.Name())
			}
		}
		return names
	})
	k.functions = sync.OnceValues(readFunctions)
	k.symbols = sync.OnceValue(readSymbols)
	k.lookUp = remember(lookUp)
	k.fentry = func() error {
		kernel, err := probe.Running()
		if err != nil {
			return err
		}
		return kernel.Fentry()
	}
	k.kprobes = probe.Kprobes
	k.cookies = sync.OnceValue(func() bool {
		return features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
	})
	k.multi = sync.OnceValue(func() bool { return k.cookies() && haveMulti() })
	k.graph = sync.OnceValue(func() bool { // since 6.14
		kernel, err := probe.Running()
		return err == nil && len(kernel.Types.Look("fprobe_hlist")[0]) > 0
	})
	k.stacks = sync.OnceValue(func() bool { // since 6.13
		kernel, err := probe.Running()
		return err == nil && len(kernel.Types.Look("priv_stack_mode")[0]) > 0
	})
	k.forEach = sync.OnceValue(func() error {
		if err := features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnForEachMapElem); errors.Is(err, ebpf.ErrNotSupported) {
			return err
		}
		return nil // or nobody may ask
	})
	k.loop = sync.OnceValue(func() bool { return features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnLoop) == nil })
	k.tai = sync.OnceValue(func() bool { return features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnKtimeGetTaiNs) == nil })
	k.stackMost = sync.OnceValue(func() int {
		data, err := os.ReadFile("/proc/sys/kernel/perf_event_max_stack")
		n, err2 := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || err2 != nil {
			return 0
		}
		return n
	})
	k.writes = sync.OnceValue(func() bool {
		return !errors.Is(features.HaveProgramHelper(ebpf.Kprobe, asm.FnProbeWriteUser), ebpf.ErrNotSupported)
	})
	k.overrides = sync.OnceValue(func() bool {
		return !errors.Is(features.HaveProgramHelper(ebpf.Kprobe, asm.FnOverrideReturn), ebpf.ErrNotSupported)
	})
	k.pidSpace = sync.OnceValue(pidSpace)
	k.preempt = host.TracepointsPreempt
	k.events = sync.OnceValues(readEvents)
	return k
}

// proto is a function's prototype and the module that has it.
func (k *kernel) proto(name, module string) (*btf.FuncProto, error) {
	spec, err := k.types()
	if err != nil {
		return nil, err
	}
	var fn *btf.Func
	err = spec.TypeByName(name, &fn)
	if err != nil && module != "" {
		if spec, err2 := k.cache.Module(module); err2 == nil {
			err = spec.TypeByName(name, &fn)
		}
	}
	if err != nil {
		return nil, err
	}
	proto, ok := fn.Type.(*btf.FuncProto)
	if !ok {
		return nil, fmt.Errorf("%s has no prototype", name)
	}
	return proto, nil
}

// A namespace is known by the file of /proc/self/ns that it has.
type namespace struct{ dev, ino uint64 }

// pidSpace is the PID namespace that we are in, nil if it is the machine's.
func pidSpace() *namespace {
	var st unix.Stat_t
	if !host.InPIDNamespace() || unix.Stat("/proc/self/ns/pid", &st) != nil {
		return nil
	}
	return &namespace{st.Dev, st.Ino}
}

// percpu is the address of a symbol of which every CPU may have a copy.
func (k *kernel) percpu(name string) uint64 {
	if at := k.address(name); at != 0 {
		return at
	}
	return k.symbols()[name]
}

// readEvents lists GROUP:NAME of all tracepoints.
func readEvents() ([]string, error) {
	root, err := host.Tracefs()
	if err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(filepath.Join(root, "available_events")); err == nil && len(data) > 0 {
		list := strings.Fields(string(data))
		slices.Sort(list)
		return list, nil
	}
	var list []string
	groups, err := os.ReadDir(filepath.Join(root, "events"))
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		names, _ := os.ReadDir(filepath.Join(root, "events", g.Name()))
		for _, n := range names {
			if n.IsDir() {
				list = append(list, g.Name()+":"+n.Name())
			}
		}
	}
	slices.Sort(list)
	return list, nil
}

// match is the shell's * and ?, and nothing else.
func match(pattern, name string) bool {
	star, from := -1, 0 // where the last * was, and what it has taken so far
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func wild(s string) bool { return strings.ContainsAny(s, "*?") }

// rawProto is what a raw tracepoint's program gets.
func (k *kernel) rawProto(name string) (*btf.FuncProto, error) {
	spec, err := k.types()
	if err != nil {
		return nil, err
	}
	var def *btf.Typedef
	if err := spec.TypeByName("btf_trace_"+name, &def); err != nil {
		return nil, err
	}
	if p, ok := def.Type.(*btf.Pointer); ok {
		if proto, ok := p.Target.(*btf.FuncProto); ok && len(proto.Params) > 0 {
			// The function that calls it has the names, unless it serves several.
			if named, err := k.proto("__bpf_trace_"+name, ""); err == nil && len(named.Params) == len(proto.Params) {
				proto = named
			}
			// The first is the tracepoint's own data.
			return &btf.FuncProto{Return: proto.Return, Params: proto.Params[1:]}, nil
		}
	}
	return nil, fmt.Errorf("btf_trace_%s is not a prototype", name)
}
