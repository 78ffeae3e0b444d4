// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"seine/internal/probe"
	"seine/internal/row"
)

// Options of a run. The zero value works.
type Options struct {
	Context context.Context // its end stops the compiler; nil: nothing does
	Args    []string        // $1 and on
	Named   []string        // --name=value, of getopt()
	// Environment is NAME=value; its BPFTRACE_ variables are settings.
	Environment []string
	Unsafe      bool     // allow system(), signal(), write_user() and override()
	PIDs        []uint32 // only these processes
	Child       uint32   // cpid; 0: there is none
	Children    bool     // and the processes that they start
	Mode        Mode
	Filter      *regexp.Regexp // only the probes whose full name it matches, and BEGIN and END
	Check       bool           // only compile, also clauses that this kernel cannot trace
	Reads       bool           // tell of reads of memory that failed
	Headers     []string       // files to include first
	Way         string         // trace functions by "kprobe" or "fentry" only; "": by what fits
	Verbose     int
	Tool        string // name in rows
	Duration    time.Duration
	Interval    time.Duration // print and clear all maps this often
	Count       uint64        // stop after so many lines, or outputs with Interval
	Buffer      uint64        // bytes of the ring
	Out, Err    io.Writer
	Native      bool       // what Out gets is the JSON of bpftrace -f json
	Rows        row.Sink   // takes the output as rows, besides Out or in place of it; nil: none
	Ready       func()     // called when everything is attached
	Ended       func(*Run) // called when everything is printed, before it is detached

	// Show prints the maps in place of print.go, for BCC's tools.
	Show func(*Run, time.Time) error
	// Head is text that is printed before everything else.
	Head string
	// Line prints a printf record in another form, for BCC's trace.
	Line func(*Run, *Event)
}

func (o *Options) note(format string, args ...any) {
	if o.Err != nil {
		fmt.Fprintf(o.Err, "seine: "+format+"\n", args...)
	}
}

// A Program is a compiled script.
type Program struct {
	Script *Script
	opts   Options
	k      *kernel
	c      *checker
	u      *unit
	set    settings
	jobs   []*job
}

// A job is one program of the kernel and the targets it is attached to.
type job struct {
	clause  *Clause
	targets []*Target
	code    *code
	cookie  bool
	key     string
	calls   *calls // one program for many system calls
}

// Compile parses a program and emits its code. It needs no privileges beyond
// reading tracefs and BTF.
func Compile(src *Source, o Options) (*Program, error) {
	s, err := parse(src, o.Headers)
	if err != nil {
		return nil, err
	}
	return compile(s, running(), o)
}

func compile(s *Script, k *kernel, o Options) (*Program, error) {
	s, err := s.getopts(o.Named)
	if err != nil {
		return nil, err
	}
	p := &Program{Script: s, opts: o, k: k, c: newChecker(s, k)}
	p.c.params, p.c.unsafe, p.c.child, p.c.check = o.Args, o.Unsafe, o.Child, o.Check
	if o.Context != nil {
		p.c.ctx = o.Context
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	p.u = &unit{c: p.c, known: map[string]int{}, stacks: map[string]stackSpec{}, pids: o.PIDs, family: o.Children && len(o.PIDs) > 0, reads: o.Reads, stamped: o.Rows != nil || o.Line != nil}
	if o.Verbose > 0 {
		for _, inc := range s.Includes {
			o.note("#include %s is not needed: types come from the kernel's BTF", inc)
		}
	}
	targets, err := p.expand()
	if err != nil {
		return nil, err
	}
	p.u.ends = slices.ContainsFunc(p.u.names, func(t *Target) bool { return t.Kind == End })
	if err := p.infer(targets); err != nil {
		return nil, err
	}
	if err := p.clauses(func(i int, cl *Clause) error { return p.emitClause(cl, targets[i]) }); err != nil {
		return nil, err
	}
	for _, at := range p.c.unused {
		o.note("warning: %v", s.Src.errorf(at[0], at[1], "this value is not used: _ = … says that it is meant"))
	}
	if n := p.set.maxPrograms; n > 0 && len(p.jobs) > n {
		return nil, s.Src.errorf(0, 0, "there are %d programs, more than the %d of max_bpf_progs", len(p.jobs), n)
	}
	return p, nil
}

// expand finds the targets of all clauses and numbers them.
func (p *Program) expand() ([][]*Target, error) {
	x := &expander{src: p.Script.Src, k: p.k, args: p.opts.Args, way: p.opts.Way, pids: p.opts.PIDs, watched: p.watched(), note: p.opts.note, missingProbes: p.set.missing, check: p.opts.Check}
	var all [][]*Target
	some := false
	err := p.clauses(func(_ int, cl *Clause) error {
		list, err := x.expand(cl)
		if err != nil {
			return err
		}
		some = some || len(list) > 0
		list = slices.DeleteFunc(list, func(t *Target) bool { return !p.wanted(t) })
		for _, t := range list {
			t.ID = len(p.u.names)
			p.u.names = append(p.u.names, t)
			p.partial(t)
		}
		all = append(all, list)
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch at := p.Script.Clauses[0].Points[0]; {
	case len(p.u.names) == 0 && some:
		return nil, p.Script.Src.errorf(at.pos, at.end, "%s", p.unwanted())
	case len(p.u.names) == 0:
		return nil, p.Script.Src.errorf(at.pos, at.end, "none of the probes is there")
	case p.set.maxProbes > 0 && len(p.u.names) > p.set.maxProbes:
		return nil, p.Script.Src.errorf(at.pos, at.end, "there are %d probes, more than the %d of max_probes", len(p.u.names), p.set.maxProbes)
	}
	return all, nil
}

// partial warns about functions that most calls bypass.
func (p *Program) partial(t *Target) {
	if !t.Kind.function() || t.Name != "sock_sendmsg" {
		return
	}
	if _, err := p.k.proto("__sock_sendmsg", ""); err == nil {
		p.opts.note("warning: sock_sendmsg sees only part of the sends on this kernel: trace __sock_sendmsg for the others")
		return
	}
	if _, err := readFormat("sock", "sock_send_length"); err == nil {
		p.opts.note("warning: sock_sendmsg sees only splice and io_uring sends on this kernel: t:sock:sock_send_length sees all")
	}
}

// clauses calls a function with each clause, and returns the errors of all of them.
func (p *Program) clauses(do func(int, *Clause) error) error {
	var list []error
	for i, cl := range p.Script.Clauses {
		if err := do(i, cl); err != nil {
			var ok bool
			if list, ok = together(list, err); !ok {
				return list[0]
			}
		}
	}
	return joined(list)
}

// infer goes over the script until the types of all maps are known.
func (p *Program) infer(targets [][]*Target) error {
	for round := 0; ; round++ {
		if round == maxRoundsOfTypes {
			at := p.Script.Clauses[0].Points[0]
			return p.Script.Src.errorf(at.pos, at.end, "the types of maps depend on one another without end")
		}
		p.c.changed = false
		if err := p.clauses(func(i int, cl *Clause) error {
			return p.each(cl, targets[i], func(*Target) error { return nil })
		}); err != nil {
			return err
		}
		if !p.c.changed && round > 0 {
			break
		}
	}
	p.c.final = true // from now on a map without a value is an error
	slices.SortFunc(p.c.order, func(a, b *mapDef) int { return strings.Compare(a.name, b.name) })
	return nil
}

// each types a clause for its targets. If the code does not depend on their
// types, once is enough. Of several targets, some may not fit.
func (p *Program) each(cl *Clause, targets []*Target, do func(*Target) error) error {
	var first error
	fits, misfits := 0, 0
	for i, t := range targets {
		err := p.c.clause(cl, t)
		if err == nil {
			err = do(t)
		}
		var at *Error
		switch {
		case err == nil:
			fits++
		case !t.Wild || !errors.As(err, &at):
			return err
		default:
			if first == nil {
				first = err
			}
			misfits++
			if p.c.final {
				p.opts.note("%s is left out: %v", t.Probe, at.Msg)
			}
		}
		if i == 0 && err == nil && !p.c.uses.types && !p.c.final {
			return nil
		}
	}
	if fits == 0 && first != nil {
		return first
	}
	return nil
}

// emitClause emits the code of a clause, once for targets with the same code.
func (p *Program) emitClause(cl *Clause, targets []*Target) error {
	byKey := map[string]*job{}
	many := p.manyTracepoints(targets)
	cookies := len(targets) > 1 && p.k.cookies()
	var shared *job
	return p.each(cl, targets, func(t *Target) error {
		cookie := p.c.uses.name && !p.c.uses.address && cookies && (t.Way == Kprobe || t.Way == Kretprobe || t.Way == Uprobe || t.Way == Uretprobe)
		if many && t.Way == Tracepoint && !p.c.uses.fields && !p.c.uses.context && p.c.fns == 0 {
			if done, err := p.viaRaw(cl, t, byKey); done || err != nil {
				return err
			}
		}
		// Neither the types nor the name: all have the code of the first.
		if shared != nil && !p.c.uses.types && (!p.c.uses.name || cookie) && shared.targets[0].Way == t.Way {
			shared.targets = append(shared.targets, t)
			return nil
		}
		code, err := p.u.emit(cl, t, cookie, nil)
		if err != nil {
			return err
		}
		key := t.Way.String() + code.key()
		if j := byKey[key]; j != nil {
			j.targets = append(j.targets, t)
			return nil
		}
		j := &job{clause: cl, targets: []*Target{t}, code: code, cookie: cookie, key: key}
		byKey[key] = j
		shared = j
		p.jobs = append(p.jobs, j)
		return nil
	})
}

// key is equal for equal code.
func (c *code) key() string {
	var b strings.Builder
	for i := range c.ins {
		in := &c.ins[i]
		fmt.Fprintf(&b, "%x %d %d %d %d %s %s\n", uint32(in.OpCode), in.Dst, in.Src, in.Offset, in.Constant, in.Reference(), in.Symbol())
	}
	return b.String()
}

// Probes is how many places the program is attached to.
func (p *Program) Probes() int {
	n := 0
	for _, j := range p.jobs {
		n += len(j.targets)
	}
	return n
}

// Names are the probes that the program is attached to.
func (p *Program) Names() (names []string) {
	for _, j := range p.jobs {
		for _, t := range j.targets {
			names = append(names, t.Probe)
		}
	}
	return names
}

// Functions says whether all that is attached to are entries of functions.
func (p *Program) Functions() bool {
	for _, j := range p.jobs {
		for _, t := range j.targets {
			if t.Way != Kprobe && t.Way != Fentry && t.Way != Uprobe {
				return false
			}
		}
	}
	return true
}

// Listing is the code of all programs, for tests and -v -v.
func (p *Program) Listing() string {
	var b strings.Builder
	for _, j := range p.jobs {
		fmt.Fprintf(&b, "%s:\n%v", j.targets[0].Probe, j.code.ins)
	}
	return b.String()
}

// KernelsFault says whether an error with a place in the script is not the
// script's fault: the kernel cannot do what it asks for.
func KernelsFault(err error) bool {
	for _, e := range All(err) {
		if !errors.Is(e, probe.ErrNotSupported) {
			return false
		}
	}
	return err != nil
}
