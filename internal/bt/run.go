// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bufio"
	"bytes"
	"context"
	"debug/dwarf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/probe"
	"seine/internal/ringbuf"
	"seine/internal/row"
	"seine/internal/sym"
)

// A Run is a program in the kernel and what prints its output.
type Run struct {
	p      *Program
	l      *loaded
	a      *attached
	out    *bufio.Writer // text as bpftrace prints it; nil: none is wanted
	under  *under
	rowErr error // of the sink of rows
	// schemas of rows, by the map or the call that they come of.
	schemas map[any]*row.Schema
	kernel  sym.Kernel
	procs   sym.Processes

	mu     sync.Mutex // of everything that prints
	lines  uint64
	ticks  uint64
	turn   bool                            // an interval ends: what is read is taken
	taken  map[*mapDef]map[string][]uint64 // of each key, until the last interval
	cut    uint64                          // readings of maps whose keys came and went meanwhile
	unrun  uint64                          // commands of system() that the end came before
	broken uint64                          // records that make no sense
	failed map[*action]int                 // reads of memory
	files  map[string]*os.File             // of skboutput()
	dwarfs map[any]*dwarf.Data             // of files, for show_debug_info; nil: there is none
	errors int                             // of errorf()
	exit   bool
	Code   int // of exit(code)
	lost   Lost
	began  time.Time
	reader *ringbuf.Reader
	ctx    context.Context // of the run
	stop   context.CancelFunc
}

// An Event is one record of the ring.
type Event struct {
	a    *action
	Time time.Time
	data []byte
}

// Run attaches the program and prints until ctx is done, exit() is called or a
// limit of the options is reached. Then it prints what the maps hold.
func (p *Program) Run(ctx context.Context) (*Run, error) {
	l, err := p.makeMaps()
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &Run{p: p, l: l, began: time.Now(), taken: map[*mapDef]map[string][]uint64{}}
	if p.opts.Out != nil {
		r.under = &under{Writer: p.opts.Out}
		r.out = bufio.NewWriterSize(r.under, 64<<10)
	}
	r.procs.Mangled = p.set.mangled
	defer r.procs.Close()
	defer r.closeFiles()
	if err := r.setStart(); err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	r.ctx = ctx
	if ring := l.maps[mapRing]; ring != nil {
		if r.reader, err = ringbuf.NewReader(ring); err != nil {
			return nil, fmt.Errorf("reading the ring: %w", err)
		}
		defer r.reader.Close()
	}
	if r.out != nil {
		if _, err := r.out.WriteString(p.opts.Head); err != nil {
			return nil, err
		}
	}
	r.a, err = p.attach(l, func(a *attached) error {
		for _, prog := range a.begin {
			if err := trigger(prog); err != nil {
				return fmt.Errorf("running BEGIN: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.u.family {
		forks, err := p.followForks(l)
		if err != nil {
			r.a.close()
			return nil, err
		}
		defer forks.Close()
	}
	l.twice.Begin()
	defer func() { // after the printing
		late := time.AfterFunc(time.Second, func() { p.opts.note("detaching %s", plural(r.a.count, "probe")) })
		defer late.Stop()
		r.a.close()
	}()
	if r.a.failed > 0 && p.set.missing != "ignore" {
		p.opts.note("%d of %d probes could not be attached: %s … (%s)", r.a.failed, p.Probes(), strings.Join(r.a.firsts, ", "), probe.Reason(r.a.lastErr))
	}
	if p.opts.Verbose > 0 {
		p.explain(r.a, time.Since(r.began))
	}
	if r.native() {
		r.typed("attached_probes", fmt.Sprintf(`{"probes": %d}`, r.a.count))
	}
	if p.opts.Ready != nil {
		p.opts.Ready()
	}
	if err = r.flush(); err == nil && p.opts.Mode == ToTrace {
		err = r.loop(ctx)
	} else if err == nil {
		err = r.ownRuns()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.a.end) > 0 {
		if e := r.last(); err == nil {
			err = e
		}
	}
	r.drain() // under a flood the ring is full, and END's records would be lost
	for _, prog := range r.a.end {
		if e := trigger(prog); e != nil && err == nil {
			err = fmt.Errorf("running END: %w", e)
		}
	}
	r.drain()
	if !r.enough() && !p.set.quiet {
		if e := r.maps(time.Now()); err == nil {
			err = e
		}
	}
	if r.lost = r.readLost(); r.native() && r.lost.Events > 0 {
		r.typed("lost_events", fmt.Sprintf(`{"events": %d}`, r.lost.Events))
	}
	if losses := r.lost.Losses(); losses != nil && err == nil {
		err = r.endRows(row.End{Losses: losses})
	}
	if e := r.flush(); err == nil {
		err = e
	}
	if e := r.endRows(row.End{Output: true, Last: true}); err == nil {
		err = e
	}
	if err == nil && p.opts.Ended != nil {
		p.opts.Ended(r)
	}
	return r, err
}

// last makes all programs but END's do nothing from now on, and waits for those that run. Detaching them takes longer.
func (r *Run) last() error {
	m := r.l.maps[mapEnded]
	if m == nil {
		return nil
	}
	if err := m.Put(uint32(0), uint64(1)); err != nil {
		return fmt.Errorf("before END: %w", err)
	}
	const global = 1                                          // MEMBARRIER_CMD_GLOBAL: all CPUs have been seen without a program
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0) // the kernel refuses it with nohz_full: then one may be late
	return nil
}

// trigger runs a program of type raw tracepoint now.
func trigger(prog *ebpf.Program) error {
	_, err := prog.Run(&ebpf.RunOptions{})
	return err
}

func (r *Run) setStart() error {
	value := make([]uint64, countSlots)
	value[startTime] = uint64(bootNow())
	return r.l.maps[mapCounts].Put(uint32(0), value)
}

// loop waits for events, timers and the end.
func (r *Run) loop(ctx context.Context) error {
	if r.p.opts.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.p.opts.Duration)
		defer cancel()
		r.mu.Lock()
		r.ctx = ctx
		r.mu.Unlock()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, t := range r.a.timers {
		wg.Go(func() { r.tick(ctx, t) })
	}
	if r.p.opts.Interval > 0 {
		wg.Go(func() { r.outputs(ctx) })
	}
	if len(r.a.signals) > 0 {
		wg.Go(func() {
			r.a.signalled(ctx.Done(), func(err error) { r.p.opts.note("running a signal's program: %v", err) })
		})
	}
	iterated := make(chan error, 1)
	if len(r.a.iters) > 0 {
		alone := r.a.count == len(r.a.begin)+len(r.a.end)+len(r.a.iters)
		say := func(format string, args ...any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.say(format, args...)
		}
		wg.Go(func() {
			for _, it := range r.a.iters {
				if err := iterate(it.Program, it.target, say); err != nil {
					iterated <- err
					r.stop()
					return
				}
			}
			iterated <- nil
			if alone { // nothing more will happen
				r.stop()
			}
		})
	} else {
		iterated <- nil
	}
	if r.a.count == len(r.a.begin)+len(r.a.end) && r.p.opts.Child == 0 { // nothing more will happen
		r.mu.Lock()
		defer r.mu.Unlock()
		r.drain()
		return r.flush()
	}
	if r.reader == nil {
		<-ctx.Done()
		return finished(iterated)
	}
	wg.Go(func() {
		<-ctx.Done()
		_ = r.reader.Flush() // wakes the reader
	})
	var rec ringbuf.Record
	for {
		err := r.reader.ReadInto(&rec)
		if errors.Is(err, ringbuf.ErrFlushed) {
			return finished(iterated)
		}
		if err != nil {
			return fmt.Errorf("reading the ring: %w", err)
		}
		r.mu.Lock()
		r.handle(rec.RawSample)
		if rec.Remaining == 0 {
			err = r.flush()
		}
		done := r.exit
		if ctx.Err() != nil { // the ring need never be empty: writing what it holds may fill it
			r.drain()
			done = true
		}
		r.mu.Unlock()
		if err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

// finished is the error of the run, if there is one so far.
func finished(told <-chan error) error {
	select {
	case err := <-told:
		return err
	default:
		return nil
	}
}

// tick runs the program of an interval. A tick that comes late is not made up
// for.
func (r *Run) tick(ctx context.Context, t timer) {
	ticker := time.NewTicker(t.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, prog := range t.progs {
				if err := trigger(prog); err != nil {
					r.p.opts.note("running an interval: %v", err)
					return
				}
			}
		}
	}
}

// outputs prints every interval what it added to the maps.
func (r *Run) outputs(ctx context.Context) {
	ticker := time.NewTicker(r.p.opts.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if end, ok := ctx.Deadline(); ok && end.Sub(now) < r.p.opts.Interval/10 || ctx.Err() != nil {
				continue // the output at the end covers it
			}
			r.mu.Lock()
			r.turn = true
			err := r.maps(now)
			r.turn = false
			r.ticks++
			if e := r.endRows(row.End{Time: now, Output: true}); err == nil {
				err = e
			}
			if e := r.flush(); e != nil {
				err = e
			}
			if err != nil || r.enough() {
				r.stop()
			}
			r.mu.Unlock()
		}
	}
}

// enough says that there are as many outputs as -n asked for.
func (r *Run) enough() bool { return r.p.opts.Count > 0 && r.ticks >= r.p.opts.Count }

// maps prints all maps, as at the end. Those of intervals have their time above
// them and an empty line between them, as outputs of tools do.
func (r *Run) maps(now time.Time) error {
	if r.p.opts.Interval > 0 && r.out != nil {
		if err := r.out.Flush(); err != nil {
			return err
		}
		if r.under.open {
			fmt.Fprintln(r.out)
		}
		fmt.Fprintln(r.out, now.Format("15:04:05"))
	}
	if r.p.opts.Show != nil {
		return r.p.opts.Show(r, now)
	}
	for _, d := range r.p.c.order {
		if d.value == nil {
			continue
		}
		if err := r.show(d, 0, 0, now); err != nil {
			return err
		}
	}
	return nil
}

// under is where output goes; open says that its last line is not an empty one.
type under struct {
	io.Writer
	open bool
}

func (u *under) Write(b []byte) (int, error) {
	if len(b) > 1 {
		u.open = !bytes.HasSuffix(b, []byte("\n\n"))
	}
	return u.Writer.Write(b)
}

// flush writes out text and rows so far.
func (r *Run) flush() error {
	if r.out != nil {
		if err := r.out.Flush(); err != nil {
			return err
		}
	}
	return r.endRows(row.End{})
}

// drain handles the records that are in the ring now, and not those that come meanwhile.
func (r *Run) drain() {
	if r.reader == nil {
		return
	}
	left := r.reader.AvailableBytes()
	_ = r.reader.Flush()
	var rec ringbuf.Record
	for left > 0 && r.reader.ReadInto(&rec) == nil {
		left -= unix.BPF_RINGBUF_HDR_SZ + round8(len(rec.RawSample))
		r.handle(rec.RawSample)
	}
}

// Lost says what the run could not keep.
func (r *Run) Lost() Lost { return r.lost }

// Lost is what could not be kept: records, updates of maps, runs, stacks; runs
// that the kernel skipped, of whatever process; readings that were cut short;
// commands that the end came before; records that make no sense; and loops that the
// kernel ended.
type Lost struct{ Events, Updates, Runs, Stacks, Skipped, Cut, Commands, Broken, Loops uint64 }

// readLost reads the counters.
func (r *Run) readLost() Lost {
	value := make([]uint64, countSlots)
	if r.l.maps[mapCounts].Lookup(uint32(0), &value) != nil {
		return Lost{}
	}
	return Lost{value[lostEvents], value[lostUpdates], value[lostScratch], value[lostStacks], r.a.missed(r.l.twice), r.cut, r.unrun, r.broken, value[lostTurns]}
}

// explain says which way each target took.
func (p *Program) explain(a *attached, took time.Duration) {
	for _, j := range p.jobs {
		t := j.targets[0]
		how := t.Way.String()
		if p.multi(j) {
			how = "kprobe.multi"
		}
		if len(j.targets) == 1 {
			p.opts.note("%s by %s, %d instructions", t.Probe, how, len(j.code.ins))
		} else {
			p.opts.note("%s and %d more by %s, %d instructions", t.Probe, len(j.targets)-1, how, len(j.code.ins))
		}
	}
	p.opts.note("attached %d probes in %.1f ms", a.count, float64(took.Microseconds())/1000)
}
