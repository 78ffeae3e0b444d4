// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/host"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/words"
)

// Options are what the common flags ask of a run. The zero value works.
type Options struct {
	Interval time.Duration // outputs this often; 0: one at the end
	Duration time.Duration // end after this long; 0: when the context ends
	Filter   Wanted
	By       []string // key fields of a counting tool; nil: the view's own
	View     string   // the one that is shown; empty: all. Counters of a Poll that is not shown are not read
	Buffer   uint64   // bytes of the ring; 0: 4 MiB
	Memory   uint64   // bytes for maps; 0: 32 MiB
	Force    probe.Force
	Log      ebpf.LogLevel // of the verifier
	Stats    bool          // count what programs cost and maps hold
	Ahead    *Ahead        // what Begin has begun for this tool; nil: nothing
}

// Defaults of Options.
const (
	DefaultBuffer = 4 << 20
	DefaultMemory = 32 << 20
)

// Prepared is a tool that has been checked and configured but not attached.
type Prepared struct {
	Tool    *Tool
	Views   []View
	Schemas []*row.Schema
	Points  []probe.Point
	cfg     any
	spec    *ebpf.CollectionSpec
	opts    Options
	by      []string
	keyBits map[string]uint64
	least   uint64 // bytes of maps
	ahead   *probe.Ahead
}

// ErrUsage marks errors that are the caller's: a filter or a grouping that the
// tool cannot honour.
var ErrUsage = errors.New("usage")

// usage is an error of the user's, with the whole message.
type usage string

func (u usage) Error() string   { return string(u) }
func (u usage) Is(t error) bool { return t == ErrUsage }

// Usagef makes an error that Is ErrUsage.
func Usagef(format string, args ...any) error { return usage(fmt.Sprintf(format, args...)) }

// Prepare reads the tool's object and writes the configuration into it. It
// needs no privilege.
func Prepare(t *Tool, cfg any, o Options) (*Prepared, error) {
	if o.Buffer == 0 {
		o.Buffer = cmp.Or(t.Buffer, DefaultBuffer)
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	if t.Check != nil {
		if err := t.Check(cfg); err != nil {
			return nil, err
		}
	}
	p := &Prepared{Tool: t, Views: t.Views(cfg), cfg: cfg, opts: o}
	var err error
	if p.spec, err = p.begun(); err != nil {
		return nil, err
	}
	if p.Schemas, err = t.Schemas(p.Views); err != nil {
		return nil, err
	}
	p.Points = t.AllPoints(p.spec, cfg)
	if t.Narrow != nil {
		p.Points = t.Narrow(p.Points, &o.Filter)
	}
	if err := probe.CheckForce(p.spec, p.Points, o.Force); err != nil {
		return nil, Usagef("--way: %v", err)
	}
	if err := p.group(); err != nil {
		return nil, err
	}
	if err := Constants(p.spec, cfg); err != nil {
		return nil, err
	}
	if err := o.Filter.constants(p.spec); err != nil {
		return nil, err
	}
	if err := p.Use(columns(p.Schemas, true)); err != nil {
		return nil, err
	}
	if p.spec.Variables["count_ticks"] != nil {
		if err := setConstant(p.spec, "count_ticks", o.Interval > 0); err != nil {
			return nil, err
		}
	}
	return p, p.size()
}

// begun is the object of the tool.
func (p *Prepared) begun() (*ebpf.CollectionSpec, error) {
	if a := p.opts.Ahead; a != nil {
		p.ahead, p.opts.Ahead = a.types, nil
		return a.spec()
	}
	go probe.Running() // it is needed next
	return object.Spec(p.Tool.Name)
}

// Use says which columns are in use: all are unless it is called. Names that no column shows are
// not looked up.
func (p *Prepared) Use(use map[string]bool) error {
	if p.spec.Variables["who_thread"] == nil {
		return nil
	}
	return setConstant(p.spec, "who_thread", use["thread"])
}

// group turns --by into key_mask.
func (p *Prepared) group() error {
	p.by = p.opts.By
	if p.by == nil {
		p.by = p.Views[0].By
	}
	for _, id := range p.Views[0].Always {
		if !slices.Contains(p.by, id) {
			p.by = append(slices.Clone(p.by), id)
		}
	}
	k, ok := p.Views[0].Output.(keyed)
	if !ok {
		return nil
	}
	var err error
	if p.keyBits, err = k.keys(p.spec); err != nil {
		return err
	}
	var mask uint64
	for _, id := range p.by {
		bit, ok := p.keyBits[id]
		if !ok {
			return Usagef("--by %s: %s counts by %s", id, p.Tool.Name, words.And(slices.Sorted(maps.Keys(p.keyBits))))
		}
		mask |= 1 << bit
	}
	return setConstant(p.spec, "key_mask", mask)
}

// Forget frees the programs when the kernel has them. The tool cannot be attached again.
func (p *Prepared) Forget() { p.spec, p.ahead = nil, nil }

// Maps are the maps that a run makes, as large as they will be.
func (p *Prepared) Maps() map[string]*ebpf.MapSpec { return p.spec.Maps }

// By lists the key fields in use.
func (p *Prepared) By() []string { return p.by }

// Keys lists the columns that --by of a counting tool may name.
func (p *Prepared) Keys() []string { return slices.Collect(maps.Keys(p.keyBits)) }

// setCode tells programs the addresses of functions: code_<function> is the first byte and the
// one after the last. Both are 0 if the kernel does not have the function or hides its address.
func setCode(spec *ebpf.CollectionSpec) error {
	names := codeNames(spec)
	if names == nil {
		return nil
	}
	found, err := host.Code(names...)
	if errors.Is(err, host.ErrHidden) {
		return nil // the ways that need it do not fit
	}
	for name, at := range found {
		if err := spec.Variables["code_"+name].Set(at); err != nil {
			return err
		}
	}
	return err
}

// codeNames are the functions whose place the programs want to know.
func codeNames(spec *ebpf.CollectionSpec) (names []string) {
	for name := range spec.Variables {
		if fn, ok := strings.CutPrefix(name, "code_"); ok {
			names = append(names, fn)
		}
	}
	return names
}
