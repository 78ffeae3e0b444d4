// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
)

// attached is the programs in place.
type attached struct {
	links   []io.Closer
	progs   []program
	begin   []*ebpf.Program
	end     []*ebpf.Program
	timers  []timer
	signals map[unix.Signal][]*ebpf.Program
	iters   []iteration
	watches map[uint64][]*watchEvents
	count   int
	own     int         // of count, what seine itself runs
	runs    []iteration // those of bench and test probes
	failed  int
	firsts  []string // the first few that failed
	lastErr error
}

// A timer runs the programs of one interval, in the order of the script.
type timer struct {
	progs []*ebpf.Program
	every time.Duration
}

// An iteration is a program to run for each object of a kind.
type iteration struct {
	*ebpf.Program
	target *Target
}

// run keeps a program that seine itself runs.
func (a *attached) run(prog *ebpf.Program, t *Target) {
	a.count++
	a.own++
	switch t.Way {
	case Begin:
		a.begin = append(a.begin, prog)
	case End:
		a.end = append(a.end, prog)
	case Self:
		if a.signals == nil {
			a.signals = map[unix.Signal][]*ebpf.Program{}
		}
		a.signals[t.signal] = append(a.signals[t.signal], prog)
	case Bench, Test:
		a.runs = append(a.runs, iteration{prog, t})
	case Iter:
		a.iters = append(a.iters, iteration{prog, t})
	case Interval:
		for i := range a.timers {
			if a.timers[i].every == t.Every {
				a.timers[i].progs = append(a.timers[i].progs, prog)
				return
			}
		}
		a.timers = append(a.timers, timer{[]*ebpf.Program{prog}, t.Every})
	}
}

// lastFirst says whether the kernel runs the program that was attached last first.
func lastFirst(way ProbeKind) bool {
	return way == Kprobe || way == Fentry || way == Fexit || way == Uprobe || way == Uretprobe || way == Software
}

// haveMulti says whether kprobe.multi links can be made: it takes CONFIG_FPROBE.
func haveMulti() bool {
	prog, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceKprobeMulti, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return false
	}
	defer prog.Close()
	l, err := link.KprobeMulti(prog, link.KprobeMultiOptions{Symbols: []string{"vprintk"}})
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// attach loads and attaches everything. BEGIN runs before anything else is attached. If one of
// many targets cannot be attached, it is counted and named.
func (p *Program) attach(l *loaded, started func(*attached) error) (*attached, error) {
	a := &attached{}
	ok := false
	defer func() {
		if !ok {
			a.close()
		}
	}()
	type pending struct {
		j     *job
		t     *Target
		progs []program
		turn  int
	}
	var later []pending
	wait := func(j *job, t *Target, progs []program) {
		turn := len(later)
		if lastFirst(t.Way) || t.Way == Kretprobe && p.multi(j) && p.k.graph() {
			turn = -turn
		}
		later = append(later, pending{j, t, progs, turn})
	}
	total := p.Probes()
	// Load first: a refusal of the verifier is reported before anything has run.
	for _, j := range p.jobs {
		t := j.targets[0]
		if t.Way == Fentry || t.Way == Fexit || p.multi(j) {
			wait(j, t, nil)
			continue
		}
		progs, err := p.programs(l, j, t, false)
		if err != nil {
			if p.lenient(t.Wild && total > 1) && !isRefusal(err) {
				a.fail(t, err)
				continue
			}
			return nil, err
		}
		a.progs = append(a.progs, progs...)
		switch t.Way {
		case Begin, End, Interval, Self, Iter, Bench, Test:
			for _, t := range j.targets {
				a.run(progs[0].Program, t)
			}
		default:
			wait(j, t, progs)
		}
	}
	if err := started(a); err != nil {
		return nil, err
	}
	// Clauses of one event run in the order of the script.
	slices.SortStableFunc(later, func(x, y pending) int { return cmp.Compare(x.turn, y.turn) })
	for _, w := range later {
		var err error
		switch {
		case w.progs == nil && p.multi(w.j):
			err = p.attachMulti(l, w.j, a)
		case w.progs == nil:
			err = p.attachTracing(l, w.j, a, total)
		default:
			for i, t := range w.j.targets {
				if w.j.calls != nil && i > 0 {
					a.count++ // the first one's link serves all
					continue
				}
				p.progress(a, total)
				if err = p.all(w.progs, t, w.j.cookie, a); err != nil {
					err = fmt.Errorf("%w: attaching %s: %s", probe.ErrNotSupported, t.Probe, probe.Reason(err))
					if !p.lenient(t.Wild) {
						break
					}
					a.fail(t, err)
					err = nil
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if a.count == 0 || a.failed > 0 && a.count == a.own {
		return nil, fmt.Errorf("%w: none of the %d probes could be attached: %w", probe.ErrNotSupported, total, a.lastErr)
	}
	ok = true
	return a, nil
}

func isRefusal(err error) bool {
	var r *refusedError
	return errors.As(err, &r)
}

// lenient says whether the run goes on without a target. By default it does so
// where a pattern found many.
func (p *Program) lenient(many bool) bool {
	return p.set.missing == "" && many || p.set.missing == "warn" || p.set.missing == "ignore"
}

func (a *attached) fail(t *Target, err error) {
	a.failed++
	a.lastErr = err
	if len(a.firsts) < 3 {
		a.firsts = append(a.firsts, t.Probe)
	}
}

// progress says how far it is when there are many probes: on a terminal, in a
// line that is replaced by the next.
func (p *Program) progress(a *attached, total int) {
	n := a.count + a.failed
	if total < 50 || p.opts.Err == nil || n%25 != 0 || n == 0 {
		return
	}
	end := "\n"
	if f, ok := p.opts.Err.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			end = "\r"
		}
	}
	if end == "\r" || n%100 == 0 {
		fmt.Fprintf(p.opts.Err, "seine: attaching %d of %d probes%s", n, total, end)
	}
}

// multi says whether a job takes one kprobe.multi link for all its targets. One of a
// single function does so too where another clause reaches it by such a link: the
// order of links of different kinds is the kernel's.
func (p *Program) multi(j *job) bool {
	return (many(j) || p.amongMany(j)) && p.k.multi()
}

// many says whether a job is worth a kprobe.multi link.
func many(j *job) bool {
	t := j.targets[0]
	return (t.Way == Kprobe || t.Way == Kretprobe) && (len(j.targets) > 1 || t.Wild) && !offsets(j)
}

func offsets(j *job) bool {
	return slices.ContainsFunc(j.targets, func(t *Target) bool { return t.Offset != 0 })
}

func (p *Program) amongMany(j *job) bool {
	t := j.targets[0]
	if t.Way != Kprobe && t.Way != Kretprobe || len(j.targets) > 1 || offsets(j) {
		return false
	}
	return slices.ContainsFunc(p.jobs, func(o *job) bool {
		return o.targets[0].Way == t.Way && many(o) && slices.ContainsFunc(o.targets, func(u *Target) bool { return u.Name == t.Name })
	})
}

func (p *Program) attachMulti(l *loaded, j *job, a *attached) error {
	progs, err := p.programs(l, j, j.targets[0], true)
	if err != nil {
		return err
	}
	a.progs = append(a.progs, progs...)
	if len(j.targets) >= 50 && p.opts.Err != nil {
		p.opts.note("attaching %d functions by kprobe.multi", len(j.targets))
	}
	failed := a.failed
	p.divide(progs[0].Program, j.targets, j, a)
	if a.failed > failed && !p.lenient(true) {
		return fmt.Errorf("%w: attaching %s: %s", probe.ErrNotSupported, a.firsts[0], probe.Reason(a.lastErr))
	}
	return nil
}

// divide attaches a list at once. If the kernel refuses it, for one name that
// it does not know or does not allow, the halves are tried.
func (p *Program) divide(prog *ebpf.Program, targets []*Target, j *job, a *attached) {
	opts := link.KprobeMultiOptions{}
	for _, t := range targets {
		opts.Symbols = append(opts.Symbols, t.Name)
		if j.cookie {
			opts.Cookies = append(opts.Cookies, uint64(t.ID))
		}
	}
	attach := link.KprobeMulti
	if targets[0].Way == Kretprobe {
		attach = link.KretprobeMulti
	}
	c, err := attach(prog, opts)
	switch {
	case err == nil:
		a.links = append(a.links, c)
		a.count += len(targets)
	case len(targets) == 1:
		a.fail(targets[0], err)
	default:
		p.divide(prog, targets[:len(targets)/2], j, a)
		p.divide(prog, targets[len(targets)/2:], j, a)
	}
}

func (p *Program) attachTracing(l *loaded, j *job, a *attached, total int) error {
	for _, t := range j.targets {
		p.progress(a, total)
		progs, err := p.programs(l, j, t, false)
		if err == nil {
			a.progs = append(a.progs, progs...)
			if err = p.all(progs, t, false, a); err == nil {
				continue
			}
		}
		if isRefusal(err) && !t.Wild {
			return err
		}
		if !p.lenient(t.Wild) {
			return fmt.Errorf("%w: attaching %s: %s", probe.ErrNotSupported, t.Probe, probe.Reason(err))
		}
		a.fail(t, err)
	}
	return nil
}

// all attaches the copies of a program to one target.
func (p *Program) all(progs []program, t *Target, cookie bool, a *attached) error {
	for i, prog := range progs {
		c, err := p.one(prog.Program, t, cookie)
		if err != nil {
			for range i { // detach the others: a single copy could be one that leaves the work to another
				a.links[len(a.links)-1].Close()
				a.links = a.links[:len(a.links)-1]
			}
			return err
		}
		a.links = append(a.links, c)
		if w, ok := c.(*watchEvents); ok {
			if a.watches == nil {
				a.watches = map[uint64][]*watchEvents{}
			}
			a.watches[w.addr] = append(a.watches[w.addr], w)
		}
	}
	a.count++
	return nil
}

// missed is how many events were lost because the kernel skipped a program.
func (a *attached) missed(twice *probe.Twice) uint64 {
	var progs []*ebpf.Program
	for _, p := range a.progs {
		if !p.again {
			progs = append(progs, p.Program)
		}
	}
	return twice.Missed(progs)
}

// one attaches a program to one target.
func (p *Program) one(prog *ebpf.Program, t *Target, cookie bool) (io.Closer, error) {
	id := uint64(0)
	if cookie {
		id = uint64(t.ID)
	}
	switch t.Way {
	case Tracepoint:
		return tracepoint(prog, t.Group, t.Name)
	case RawTracepoint:
		name := t.Name
		if t.Kind == Tracepoint && t.Group == "syscalls" {
			name, _ = callOf(t.Name)
		}
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
	case Fentry, Fexit:
		return link.AttachTracing(link.TracingOptions{Program: prog})
	case Kprobe:
		return link.Kprobe(t.Name, prog, &link.KprobeOptions{Cookie: id, Offset: t.Offset})
	case Kretprobe:
		return link.Kretprobe(t.Name, prog, &link.KprobeOptions{Cookie: id})
	case Uprobe, Uretprobe:
		ex, err := link.OpenExecutable(t.Path)
		if err != nil {
			return nil, err
		}
		o := &link.UprobeOptions{Cookie: id, Offset: t.Offset, Address: t.Addr}
		if t.usdt != nil {
			o.RefCtrOffset = t.usdt.semaphore
		}
		if len(p.opts.PIDs) == 1 && !p.u.family {
			o.PID = int(p.opts.PIDs[0])
		}
		if t.Way == Uretprobe {
			return ex.Uretprobe(t.Name, prog, o)
		}
		return ex.Uprobe(t.Name, prog, o)
	case Profile, Software, Hardware:
		return perfEvents(prog, t)
	case Watch:
		w, err := p.watchEvents(prog, t.watch)
		if err != nil {
			return nil, err
		}
		return &watchEvents{perfEvent: w, addr: t.watch.addr}, nil
	}
	return nil, fmt.Errorf("%s cannot be attached", t.Probe)
}

// A perfEvent is a program on a perf event. Closing the event detaches it.
type perfEvent []int

func (p perfEvent) Close() error {
	for _, fd := range p {
		unix.Close(fd)
	}
	return nil
}

// tracepoint attaches by perf_event_open, with the number read from a tracefs
// that may be mounted for this process alone.
func tracepoint(prog *ebpf.Program, group, name string) (io.Closer, error) {
	id, err := host.TracepointID(group, name)
	if err != nil {
		return nil, err
	}
	fd, err := perf(prog, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample_type: unix.PERF_SAMPLE_RAW, Sample: 1, Wakeup: 1,
	}, 0)
	if err != nil {
		return nil, err
	}
	return perfEvent{fd}, nil
}

// perf opens one event and puts the program on it. For a tracepoint the CPU does
// not matter: the program runs on all.
func perf(prog *ebpf.Program, attr unix.PerfEventAttr, cpu int) (int, error) {
	return perfOn(prog, attr, -1, cpu)
}

// perfOn opens an event of one thread, or of one CPU.
func perfOn(prog *ebpf.Program, attr unix.PerfEventAttr, pid, cpu int) (int, error) {
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("perf event: %w", err)
	}
	if err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("program on perf event: %w", err)
	}
	return fd, nil
}

// perfEvents samples on every CPU.
func perfEvents(prog *ebpf.Program, t *Target) (io.Closer, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: t.Event, Sample: t.Count}
	switch t.Kind {
	case Hardware:
		attr.Type = unix.PERF_TYPE_HARDWARE
	case Profile:
		attr.Config = unix.PERF_COUNT_SW_CPU_CLOCK
		if t.Hz > 0 {
			attr.Sample, attr.Bits = t.Hz, unix.PerfBitFreq
		} else {
			attr.Sample = uint64(t.Every)
		}
	}
	cpus, last := host.OnlineCPUs() // all of them, not only those that we may run on
	var fds perfEvent
	for _, cpu := range cpus {
		fd, err := perf(prog, attr, cpu)
		if err != nil {
			last = err
			continue
		}
		fds = append(fds, fd)
	}
	if len(fds) == 0 {
		return nil, last
	}
	return fds, nil
}

// close detaches everything: for hundreds of kprobes it takes a while.
func (a *attached) close() {
	done := make(chan struct{})
	work := make(chan io.Closer)
	for range 4 {
		go func() {
			for c := range work {
				c.Close()
			}
			done <- struct{}{}
		}()
	}
	for _, c := range a.links {
		work <- c
	}
	close(work)
	for range 4 {
		<-done
	}
	closeAll(a.progs)
}
