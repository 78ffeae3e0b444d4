// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// fentry:bpf:NAME and fentry:bpf:ID:NAME are on functions of BPF programs that are loaded. Only those
// with BTF have names.

// A bpfFunction is one function of a loaded program.
type bpfFunction struct {
	id    ebpf.ProgramID
	name  string
	proto *btf.FuncProto
}

func (f bpfFunction) probe(kind ProbeKind) string {
	return fmt.Sprintf("%s:bpf:%d:%s", kind, f.id, f.name)
}

// bpfFunctions are those of all programs that can be looked into.
func bpfFunctions() (all []bpfFunction, err error) {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) { // there are no more
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		id = next
		all = append(all, functionsOf(id)...)
	}
}

func functionsOf(id ebpf.ProgramID) (list []bpfFunction) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil // it is gone
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return nil
	}
	if _, ok := info.BTFID(); !ok {
		return nil
	}
	functions, err := info.FuncInfos()
	if err != nil {
		return nil
	}
	for _, f := range functions {
		proto, _ := f.Func.Type.(*btf.FuncProto)
		list = append(list, bpfFunction{id, f.Func.Name, proto})
	}
	return list
}

// bpfPrograms finds the functions of fentry:bpf:….
func (x *expander) bpfPrograms(ap AttachPoint, kind ProbeKind, parts []string) ([]*Target, error) {
	fail := func(format string, args ...any) ([]*Target, error) {
		return nil, x.src.errorf(ap.pos, ap.end, format, args...)
	}
	if err := x.k.fentry(); err != nil {
		return nil, x.noFunctions(ap, parts[len(parts)-1], err)
	}
	id := uint64(0)
	if len(parts) == 2 {
		var err error
		if id, err = strconv.ParseUint(parts[0], 10, 32); err != nil || id == 0 {
			return fail("write a function of a BPF program as %s:bpf:NAME or %s:bpf:ID:NAME", kind, kind)
		}
	}
	all, err := bpfFunctions()
	if err != nil {
		return nil, fmt.Errorf("BPF programs: %w", err)
	}
	name := parts[len(parts)-1]
	var list []*Target
	var names []string
	for _, f := range all {
		names = append(names, f.name)
		if !match(name, f.name) || id != 0 && uint64(f.id) != id {
			continue
		}
		t := &Target{Kind: kind, Way: kind, Name: f.name, Func: f.name, Probe: f.probe(kind), Wild: wild(name), bpf: f.id, proto: f.proto}
		if f.proto == nil {
			t.noType = fmt.Errorf("its BTF does not say them")
		}
		list = append(list, t)
	}
	if len(list) == 0 {
		slices.Sort(names)
		return nil, x.missing(ap, "no BPF program with BTF has a function %s%s", name, didYouMean(name, slices.Compact(names)))
	}
	return list, nil
}

// bpfPrograms lists them.
func (l *lister) bpfPrograms(kind ProbeKind, pattern string) {
	all, _ := bpfFunctions()
	for _, f := range all {
		if !match(pattern, f.name) && !match(pattern, fmt.Sprintf("%d:%s", f.id, f.name)) {
			continue
		}
		var args []string
		if f.proto != nil {
			args = described(f.proto.Params)
		}
		l.add(f.probe(kind), args...)
	}
}
