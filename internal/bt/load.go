// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
)

// mapBudget is how much memory one map of the script may take.
const mapBudget = 32 << 20

// loaded is the part of a program that is in the kernel.
type loaded struct {
	maps  map[string]*ebpf.Map
	twice *probe.Twice
}

// makeMaps makes the maps that the code refers to.
func (p *Program) makeMaps() (*loaded, error) {
	used := map[string]bool{mapCounts: true, mapFamily: p.u.family}
	for _, j := range p.jobs {
		for i := range j.code.ins {
			used[j.code.ins[i].Reference()] = true
		}
		used[mapNever] = used[mapNever] || p.ownStack(j.targets[0])
	}
	l := &loaded{maps: map[string]*ebpf.Map{}}
	add := func(name string, spec *ebpf.MapSpec) error {
		if !used[name] {
			return nil
		}
		m, err := ebpf.NewMap(spec)
		if err != nil {
			return noMap(name, spec.KeySize, err)
		}
		l.maps[name] = m
		return nil
	}
	ring := uint32(1 << 20)
	bytes := p.opts.Buffer
	if bytes == 0 {
		bytes = uint64(p.set.ringPages * os.Getpagesize())
	}
	if bytes > 0 {
		for ring = uint32(os.Getpagesize()); uint64(ring) < bytes && ring < 1<<30; ring *= 2 {
		}
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		cpus = runtime.NumCPU()
	}
	l.twice, err = probe.NewTwice()
	err = errors.Join(
		err,
		add(mapRing, &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: ring}),
		add(mapCounts, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8 * countSlots, MaxEntries: 1}),
		add(mapEnded, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}),
		add(mapZeroes, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(max(p.u.zeroes, 8)), MaxEntries: 1}),
		add(mapScratch, &ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(8 + scratchSlots*p.slotSize()), MaxEntries: 1}),
		add(mapNever, &ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}),
		add(mapFamily, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: familyMost}),
		add(mapSeen, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 16384}),
	)
	for name, stack := range p.u.stacks {
		spec := &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: uint32(stack.size), MaxEntries: 8192}
		if stack.kernel {
			spec.Type, spec.KeySize, spec.MaxEntries = ebpf.StackTrace, 4, uint32(stackPlaces)
		}
		err = errors.Join(err, add(name, spec))
	}
	for _, j := range p.jobs {
		if c := j.calls; c != nil {
			err = errors.Join(err, add(c.table, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4 * mostCalls, MaxEntries: 1,
				Contents: []ebpf.MapKV{{Key: uint32(0), Value: c.targets[:]}}}))
		}
	}
	for _, d := range p.c.order {
		if d.value == nil {
			continue
		}
		spec := &ebpf.MapSpec{Type: ebpf.Hash, KeySize: uint32(d.keySize()), ValueSize: uint32(d.value.store())}
		each := round8(d.keySize()) + round8(d.value.store()) + 48
		if d.perCPU() {
			spec.Type = ebpf.PerCPUHash
			each = round8(d.keySize()) + 48 + round8(d.value.store())*cpus
		}
		n := p.set.mapKeys
		if n == 0 {
			n = max(64, min(10240, mapBudget/each))
		}
		if !d.keyed {
			n = 1
		}
		if d.decl.kind != "" {
			n = d.decl.keys
		}
		spec.MaxEntries = uint32(n)
		if mapKinds[d.decl.kind].lru {
			spec.Type = map[ebpf.MapType]ebpf.MapType{ebpf.Hash: ebpf.LRUHash, ebpf.PerCPUHash: ebpf.LRUCPUHash}[spec.Type]
		}
		if n := p.u.places(d); n > 0 {
			spec.Type, spec.KeySize, spec.MaxEntries = ebpf.PerCPUArray, 4, uint32(n)
		}
		used[d.name] = true
		err = errors.Join(err, add(d.name, spec))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// noMap says why there is no map. Before Linux 5.11 a key had to fit the stack.
func noMap(name string, keySize uint32, err error) error {
	if errors.Is(err, unix.E2BIG) && keySize > 512 {
		return fmt.Errorf("%w: keys of %s have %d bytes, more than the 512 before Linux 5.11: shorten strings, as str(x, 64)", probe.ErrNotSupported, name, keySize)
	}
	return fmt.Errorf("map %s: %w", name, err)
}

// slotSize is the bytes of one slot of scratch memory. A value of a per-CPU map has at most 32 kB.
func (p *Program) slotSize() int { return round8(max(p.u.scratch, 8)) }

func (l *loaded) close() {
	for _, m := range l.maps {
		m.Close()
	}
	l.twice.Close()
}

// programs loads a job's code for a target: one program, or the two that see the
// same events, in the order to attach them in.
func (p *Program) programs(l *loaded, j *job, t *Target, multi bool) (list []program, err error) {
	spec := p.spec(l, j, t, multi)
	if t.bpf != 0 {
		if spec.AttachTarget, err = ebpf.NewProgramFromID(t.bpf); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Probe, err)
		}
		defer spec.AttachTarget.Close()
	}
	copies := []probe.Copy{{ProgramSpec: spec}}
	if !t.Way.ownTask() {
		copies = l.twice.Copies(spec)
	}
	for _, c := range copies {
		prog, err := p.load(c.ProgramSpec, j, t)
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, program{prog, c.Again > 0})
	}
	return list, nil
}

// A program is in the kernel; again is one that works only where the first one
// was skipped.
type program struct {
	*ebpf.Program
	again bool
}

func closeAll(list []program) {
	for _, p := range list {
		p.Close()
	}
}

// spec is the program of a job as it is given to the kernel.
func (p *Program) spec(l *loaded, j *job, t *Target, multi bool) *ebpf.ProgramSpec {
	ins := j.code.ins
	if p.ownStack(t) {
		ins = neverCalls(ins)
	}
	spec := programSpec(t.Way, t.Name, multi)
	spec.Name, spec.License, spec.Instructions = "seine_bt", p.set.license, p.link(l, ins)
	return spec
}

// programSpec is the kind of program that a probe takes.
func programSpec(way ProbeKind, name string, multi bool) *ebpf.ProgramSpec {
	spec := &ebpf.ProgramSpec{}
	switch way {
	case Begin, End, Interval, Self, Bench, Test, RawTracepoint:
		spec.Type = ebpf.RawTracepoint
	case Profile, Software, Hardware, Watch:
		spec.Type = ebpf.PerfEvent
	case Tracepoint:
		spec.Type = ebpf.TracePoint
	case Iter:
		spec.Type, spec.AttachTo, spec.AttachType = ebpf.Tracing, name, ebpf.AttachTraceIter
	case Fentry, Fexit:
		spec.Type, spec.AttachTo, spec.AttachType = ebpf.Tracing, name, ebpf.AttachTraceFEntry
		if way == Fexit {
			spec.AttachType = ebpf.AttachTraceFExit
		}
	default:
		spec.Type = ebpf.Kprobe
		if multi {
			spec.AttachType = ebpf.AttachTraceKprobeMulti
		}
	}
	return spec
}

// mapNever is the table of a tail call that is never made.
const mapNever = "never"

// ownStack says whether a program must not use the per-CPU stack: a uprobe can be preempted, and
// the kernel lets the next task run the same program.
func (p *Program) ownStack(t *Target) bool {
	return (t.Way == Uprobe || t.Way == Uretprobe) && p.k.stacks()
}

// neverCalls puts a tail call in front of a program, and a jump over it. The kernel lets a program
// with a tail call use the task's own stack.
func neverCalls(ins asm.Instructions) asm.Instructions {
	const over = "over"
	code := asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.JEq.Imm(asm.R0, 0, over),
		asm.LoadMapPtr(asm.R2, 0).WithReference(mapNever),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
	}
	first := ins[0]
	code[0] = btf.WithFuncMetadata(code[0].WithSymbol(first.Symbol()), btf.FuncMetadata(&first))
	code = append(code, btf.WithFuncMetadata(first.WithSymbol(over), nil))
	return append(code, ins[1:]...)
}

// load brings one program of a job into the kernel.
func (p *Program) load(spec *ebpf.ProgramSpec, j *job, t *Target) (*ebpf.Program, error) {
	opts := ebpf.ProgramOptions{}
	if p.opts.Verbose > 1 {
		opts.LogLevel = ebpf.LogLevelBranch
	}
	var prog *ebpf.Program
	var err error
	if spec.Type == ebpf.Tracing { // needs BTF, which is read once
		var coll *ebpf.Collection
		coll, err = ebpf.NewCollectionWithOptions(&ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{"p": spec}},
			ebpf.CollectionOptions{Cache: p.k.cache, Programs: opts})
		if err == nil {
			prog = coll.DetachProgram("p")
			coll.Close()
		}
	} else {
		prog, err = ebpf.NewProgramWithOptions(spec, opts)
	}
	if err == nil {
		return prog, nil
	}
	return nil, p.refused(j, t, err, width(spec.Instructions)-width(j.code.ins))
}

// link puts the maps and the size of scratch slots into a copy of the code.
func (p *Program) link(l *loaded, ins asm.Instructions) asm.Instructions {
	out := make(asm.Instructions, len(ins))
	copy(out, ins)
	for i := range out {
		switch ref := out[i].Reference(); {
		case ref == slotSizeRef:
			out[i] = asm.LoadImm(out[i].Dst, int64(p.slotSize()), asm.DWord)
		case l.maps[ref] != nil && out[i].IsLoadFromMap():
			_ = out[i].AssociateMap(l.maps[ref])
		}
	}
	return out
}

const slotSizeRef = "slot size"

var verifierLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+): \(`) })

const tooLong = "the verifier refuses it: a loop that may not end, or too large"

// endless is a line with which the verifier gives up.
func endless(line string) bool {
	return strings.Contains(line, "infinite loop detected") || strings.Contains(line, "program is too large") || strings.Contains(line, "too complex")
}

// width is how many instructions the kernel counts.
func width(ins asm.Instructions) (n int) {
	for i := range ins {
		n += int(ins[i].Width())
	}
	return n
}

// refused maps the verifier's message to the line of the script. Some instructions come before
// the code of the script.
func (p *Program) refused(j *job, t *Target, err error, front int) error {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		if errors.Is(err, os.ErrPermission) && len(host.NeedTrace.Missing()) == 0 {
			return fmt.Errorf("%w: %s: %s", probe.ErrNotSupported, t.Probe, probe.Reason(err))
		}
		if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.EFAULT) || errors.Is(err, unix.ENOSPC) {
			// The log would not fit either.
			return &refusedError{p.Script.Src.errorf(t.pos.pos, t.pos.end, "%s: %s", t.Probe, tooLong), err}
		}
		return fmt.Errorf("loading %s: %w", t.Probe, err)
	}
	at := -1
	for i := len(ve.Log) - 1; i >= 0 && at < 0; i-- {
		if m := verifierLine().FindStringSubmatch(ve.Log[i]); m != nil {
			at, _ = strconv.Atoi(m[1])
		}
	}
	span := [2]Pos{t.pos.pos, t.pos.end}
	raw := front
	for i := range j.code.ins {
		if raw >= at && at >= 0 {
			span = j.code.spans[i]
			break
		}
		raw += int(j.code.ins[i].Width())
	}
	if p.opts.Verbose > 1 {
		p.opts.note("%s", strings.Join(ve.Log, "\n"))
	}
	reason := probe.Reason(err)
	if slices.ContainsFunc(ve.Log, endless) { // followed by registers
		reason = tooLong
	}
	return &refusedError{p.Script.Src.errorf(span[0], span[1], "%s: %s", t.Probe, reason), err}
}

// A refusedError is a verifier's refusal at a place of the script.
type refusedError struct {
	at  *Error
	err error
}

func (e *refusedError) Error() string { return e.at.Error() }

// Unwrap gives the place and not the cause: EACCES of the verifier is not a lack
// of permission.
func (e *refusedError) Unwrap() error { return e.at }
