// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"seine/internal/host"
	"seine/internal/kern"
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
	Buffer   uint64   // bytes of the ring; 0: 4 MiB
	Memory   uint64   // bytes for maps; 0: 32 MiB
	Force    probe.Force
	Log      ebpf.LogLevel // of the verifier
	Stats    bool          // count what programs cost and maps hold
}

// Defaults of Options.
const (
	DefaultBuffer = 4 << 20
	DefaultMemory = 32 << 20
)

// A Session is one run of a tool.
type Session struct {
	Maps    map[string]*ebpf.Map
	Choices []probe.Choice
	Notes   []string // of the tool's Look

	opts    Options
	set     *probe.Set
	views   []View
	schemas []*row.Schema
	readers []reader // of the views
	sink    row.Sink
	report  Report
	told    Report // as far as its losses have been told
	onLoss  func(*Report)
	ticks   bool              // more than one output may come
	epochs  epochs            // of the maps of counts
	turned  string            // what the names of those that are being read end with
	by      []string          // key fields in use
	keyBits map[string]uint64 // bits of key_mask by column
	notice  func(pid uint32)
	late    bool        // programs are attached while it runs
	keeps   []Privilege // the tool's own
}

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
}

// ErrUsage marks errors that are the caller's: a filter or a grouping that the
// tool cannot honour.
var ErrUsage = errors.New("usage")

// usage is an error that is the user's and reads as it stands.
type usage string

func (u usage) Error() string   { return string(u) }
func (u usage) Is(t error) bool { return t == ErrUsage }

// Usagef makes an error that Is ErrUsage.
func Usagef(format string, args ...any) error { return usage(fmt.Sprintf(format, args...)) }

// Prepare reads the tool's object and writes the configuration into it. It
// needs no privilege.
func Prepare(t *Tool, cfg any, o Options) (*Prepared, error) {
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
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
	if p.spec, err = object.Spec(t.Name); err != nil {
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

// Use says which columns are in use: all are unless it is called. What no column
// shows is not looked up.
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

func (s Snapshot[K, V]) mapName() string { return s.Map }

// Attach loads the programs and puts them into place. The session must be
// closed, or run to its end.
func (p *Prepared) Attach() (*Session, error) {
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	var notes []string
	if p.Tool.Look != nil {
		if notes, err = p.Tool.Look(p.cfg, &p.opts.Filter); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
		}
	}
	if err := setHelpers(p.spec, k); err != nil {
		return nil, err
	}
	for name, v := range p.spec.Variables {
		// args_<tracepoint>: how many arguments it has here; see drop.h
		if tp, ok := strings.CutPrefix(name, "args_"); ok {
			if err := v.Set(uint32(len(k.Args(tp)))); err != nil {
				return nil, err
			}
		}
	}
	if err := setCode(p.spec); err != nil {
		return nil, err
	}
	fill := func(maps map[string]*ebpf.Map) error {
		if p.opts.Filter.On == 0 {
			return nil
		}
		return p.opts.Filter.fill(maps)
	}
	set, err := probe.Attach(k, p.spec, p.Points, p.opts.Force, p.opts.Log, fill)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
	}
	s := &Session{
		Maps: set.Maps, Choices: set.Choices, Notes: notes, opts: p.opts, set: set,
		views: p.Views, schemas: p.Schemas, by: p.by, keyBits: p.keyBits,
		ticks: p.opts.Interval > 0, late: attachesLate(p.spec), keeps: p.Tool.Keeps,
	}
	if s.report.Budget = p.opts.Memory; p.opts.Stats {
		s.report.Memory, s.report.Ring = memory(set.Maps)
	}
	if v := set.Vars["count_epoch"]; v != nil {
		if s.ticks {
			s.epochs.v = v
		}
		if s.epochs.wait, err = newGrace(); err != nil {
			s.Close()
			return nil, fmt.Errorf("%s: %w", p.Tool.Name, err)
		}
	}
	for _, it := range set.Iters[ownerSeed] {
		if err := drain(it); err != nil {
			s.Close()
			return nil, fmt.Errorf("walking over open sockets: %w", err)
		}
	}
	// Now, not when the run begins: what happens after we are ready counts.
	for i := range s.views {
		r, err := s.views[i].Output.open(s, &s.views[i], i)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.readers = append(s.readers, r)
	}
	return s, nil
}

// setCode tells programs where functions lie: code_<function> is the first byte
// and the one after the last, zeros if the kernel has none or hides it.
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

// drain runs an iterator whose program writes to maps.
func drain(it interface{ Open() (io.ReadCloser, error) }) error {
	f, err := it.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// Close detaches everything.
func (s *Session) Close() {
	s.set.Close()
	s.epochs.close()
}

// Schemas are those of the session's views.
func (s *Session) Schemas() []*row.Schema { return s.schemas }

// Wanted is the session's filters.
func (s *Session) Wanted() *Wanted { return &s.opts.Filter }

// Warn adds to what the summary says was not seen, and what to do about it.
func (s *Session) Warn(text string) { s.report.Unseen = append(s.report.Unseen, text) }

// OnNotice has f called for each process of which a stack is kept.
func (s *Session) OnNotice(f func(pid uint32)) { s.notice = f }

// Run hands rows to sink until ctx ends, the duration is over or the sink wants
// no more; then it prints what has been gathered, detaches, and reports.
func (s *Session) Run(ctx context.Context, sink row.Sink) (*Report, error) {
	defer s.Close()
	s.sink = sink
	start := time.Now()
	err := s.loop(ctx)
	if errors.Is(err, row.Done) {
		err = nil
	}
	s.report.Duration = time.Since(start)
	s.collect()
	return &s.report, err
}

// poll is how long an event may wait in the ring before it is read.
const poll = 50 * time.Millisecond

func (s *Session) loop(ctx context.Context) error {
	if s.opts.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Duration)
		defer cancel()
	}
	var ring *ringbuf.Reader
	if m := s.Maps["events"]; m != nil {
		var err error
		if ring, err = ringbuf.NewReader(m); err != nil {
			return fmt.Errorf("ring: %w", err)
		}
		defer ring.Close()
		defer context.AfterFunc(ctx, func() { ring.Flush() })()
	}
	output := func(last bool) error {
		if told, err := s.tellPending(); err != nil {
			return err
		} else if told && ring != nil {
			if err := s.readRing(ring); err != nil {
				return err
			}
		}
		if last {
			if err := s.tellLosses(true); err != nil {
				return err
			}
		}
		return s.output(last)
	}
	next := time.Now().Add(s.opts.Interval)
	tick := s.opts.Interval
	if tick == 0 {
		tick = lossTick
	}
	tell := time.Now().Add(tick)
	for {
		until := time.Now().Add(poll)
		if s.opts.Interval > 0 && next.Before(until) {
			until = next
		}
		ended := ctx.Err() != nil
		if ended {
			s.set.Detach() // else a busy machine could fill the ring for ever
		}
		if err := s.drainRing(ctx, ring, until, ended); err != nil {
			return err
		}
		for _, r := range s.readers {
			if t, ok := r.(interface{ tick() error }); ok {
				if err := t.tick(); err != nil {
					return err
				}
			}
		}
		if ended {
			break
		}
		if now := time.Now(); !now.Before(tell) {
			if err := s.tellLosses(false); err != nil {
				return err
			}
			tell = now.Add(tick)
		}
		if s.opts.Interval > 0 && !time.Now().Before(next) {
			// A tick at the moment of the end is the end's.
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > s.opts.Interval/10 {
				if err := output(false); err != nil {
					return err
				}
			}
			for !next.After(time.Now()) {
				next = next.Add(s.opts.Interval)
			}
		}
	}
	return output(true)
}

// drainRing reads what is in the ring; if nothing is, it waits until then.
func (s *Session) drainRing(ctx context.Context, ring *ringbuf.Reader, until time.Time, ended bool) error {
	if ring == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(until)):
		}
		return nil
	}
	if ended {
		until = time.Now()
	}
	ring.SetDeadline(until)
	s.mayWake()
	kern.SyncClock()
	var rec ringbuf.Record
	for {
		err := ring.ReadInto(&rec)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) || errors.Is(err, os.ErrClosed) {
			return s.sink.End(row.End{Time: time.Now()})
		}
		if err != nil {
			return fmt.Errorf("ring: %w", err)
		}
		if err := s.dispatch(rec.RawSample); err != nil {
			return err
		}
		if rec.Remaining == 0 {
			s.mayWake()
		}
		if rec.Remaining == 0 && !ended {
			if err := s.sink.End(row.End{Time: time.Now()}); err != nil {
				return err
			}
		}
		if time.Now().After(until) && !ended {
			return nil
		}
	}
}

// readRing reads what is in the ring now, and no more: programs go on writing to it.
func (s *Session) readRing(ring *ringbuf.Reader) error {
	const header = 8 // of a record, which is padded to as many bytes
	ring.SetDeadline(time.Now())
	var rec ringbuf.Record
	for left := ring.AvailableBytes(); left > 0; left -= header + (len(rec.RawSample)+7)&^7 {
		err := ring.ReadInto(&rec)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
			break
		}
		if err != nil {
			return fmt.Errorf("ring: %w", err)
		}
		if err := s.dispatch(rec.RawSample); err != nil {
			return err
		}
	}
	return s.sink.End(row.End{Time: time.Now()})
}

// mayWake has programs wake the reader again; see event.h.
func (s *Session) mayWake() {
	if v := s.set.Vars["woken"]; v != nil {
		v.Set(uint64(0))
	}
}

// noticeView is VIEW_NOTICE of event.h.
const noticeView = 0xffffffff

func (s *Session) dispatch(raw []byte) error {
	if len(raw) < int(unsafe.Sizeof(kern.Head{})) {
		s.report.Undecodable++
		return nil
	}
	var head kern.Head
	decode(&head, raw)
	if head.View == noticeView {
		if s.notice != nil {
			s.notice(uint32(head.PID))
		}
		for _, r := range s.readers {
			if n, ok := r.(interface{ notice([]byte) }); ok {
				n.notice(raw)
			}
		}
		return nil
	}
	if int(head.View) >= len(s.readers) {
		s.report.Undecodable++
		return nil
	}
	s.report.Events++
	return s.readers[head.View].event(raw)
}

// output has every view print what it has counted.
func (s *Session) output(last bool) (err error) {
	if s.turned, err = s.epochs.turn(last); err != nil {
		return err
	}
	for _, r := range s.readers {
		if err := r.output(last); err != nil {
			return err
		}
	}
	if !last {
		for _, r := range s.readers {
			if c, ok := r.(interface{ clear() error }); ok {
				if err := c.clear(); err != nil {
					return err
				}
			}
		}
	}
	return s.sink.End(row.End{Time: time.Now(), Output: true, Last: last})
}

// Maps are the maps that a run makes, as large as they will be.
func (p *Prepared) Maps() map[string]*ebpf.MapSpec { return p.spec.Maps }

// By lists the key fields in use.
func (p *Prepared) By() []string { return p.by }

// Keys lists the columns that --by of a counting tool may name.
func (p *Prepared) Keys() []string { return slices.Collect(maps.Keys(p.keyBits)) }
