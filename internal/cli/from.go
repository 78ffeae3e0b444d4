// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/words"
)

// fromFlags are the flags that read rows from a recording.
type fromFlags struct {
	path, since, until string
	follow             bool
	tee                string
}

func (f *fromFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, "from", "", "read rows from this recording, not from the kernel: a directory or a file")
	fs.StringVar(&f.since, "since", "", "with --from: only rows from this time on: 14:02, 2026-11-16T14:02:00Z, '10m ago'")
	fs.StringVar(&f.until, "until", "", "with --from: only rows before this time")
	fs.BoolVar(&f.follow, "follow", false, "with --from: keep reading while it is being recorded")
	fs.StringVar(&f.tee, "tee", "", "record what is shown, into this directory")
	fs.MarkHidden("tee") // for tests: a recording must print what the run printed
}

// notOfRecordings are the flags that apply to the kernel only.
var notOfRecordings = []string{"buffer", "memory", "way", "stats", "btf"}

// check refuses flags that exclude each other.
func (f *fromFlags) check(given *pflag.FlagSet) error {
	if f.path == "" {
		for _, name := range []string{"since", "until", "follow"} {
			if given.Changed(name) {
				return tool.Usagef("--%s applies to recordings: give --from DIR", name)
			}
		}
		return nil
	}
	for _, name := range notOfRecordings {
		if given.Changed(name) {
			return tool.Usagef("--%s applies to the kernel, not to a recording", name)
		}
	}
	if f.follow && f.until != "" {
		return tool.Usagef("--follow does not end: leave out --until")
	}
	return nil
}

// A past is a recording in place of the kernel.
type past struct {
	run      *run
	rec      *record.Recording
	stream   *record.Contents
	query    record.Query
	keep     func(*row.Row) bool // the filters, which the kernel tests in a live run
	head     row.Sink
	interval time.Duration // between outputs, as recorded
	merge    bool          // several outputs become one, or keys are dropped
	blank    map[*row.Schema][]int
	other    *other // the tool whose rows answer; nil: the tool itself

	origin int64     // -d and outputs count from here; 0: from the start of the range, or the first row
	begin  int64     // the same, once it is known
	now    time.Time // time of the current row or end
	next   time.Time // when the next output ends, if outputs are made of events
	above  string
	held   *row.End // the end of a run; passed on unless another run follows
	losses map[string]uint64
	lost   uint64 // rows that could not be recorded
	runs   int
	idle   func() error // called when there are no more rows for now; may be nil
}

// openPast finds the rows in the recording that the flags ask for.
func (r *run) openPast() (*past, error) {
	f := &r.flags.from
	rec, err := record.Read(f.path)
	if err != nil {
		return nil, tool.Usagef("--from: %v", err)
	}
	p := &past{run: r, rec: rec, losses: map[string]uint64{}, blank: map[*row.Schema][]int{}}
	_, end, err := rec.Span()
	if err != nil {
		return nil, err
	}
	if p.query.Since, p.query.Until, err = f.bounds(end); err != nil {
		return nil, err
	}
	// Usually the wanted stream has rows in the range. Then the rest of the recording
	// need not be read.
	if err = p.chooseIn(&p.query); err != nil {
		if err = p.chooseIn(&record.Query{}); err != nil {
			return nil, err
		}
	}
	p.interval = p.stream.Interval
	if r.flags.interval == 0 && r.tool.Kind(r.cfg) == tool.Interval {
		r.flags.interval = p.interval
	}
	if err := p.outputs(); err != nil {
		return nil, err
	}
	if p.keep, err = r.flags.filters.rows(r, p.stream, rec.Names()); err != nil {
		return nil, err
	}
	p.query.Streams, p.query.Follow, p.query.Into = map[uint64]bool{p.stream.Stream: true}, f.follow, p.into
	return p, nil
}

// chooseIn chooses among the streams that have rows in the range of q.
func (p *past) chooseIn(q *record.Query) error {
	rec, err := record.Read(p.run.flags.from.path)
	if err != nil {
		return err
	}
	all, err := rec.Contents(q)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(c *record.Contents) bool { return c.Tool == p.run.tool.Name }) {
		if p.other, p.stream, err = p.run.instead(all); err != nil || p.other != nil {
			return err
		}
	}
	p.stream, err = p.run.choose(all)
	return err
}

// bounds reads --since and --until for a recording that ends at end. A time of day
// in --until may be after end on the same day: it never means a day before --since.
func (f *fromFlags) bounds(end time.Time) (since, until time.Time, err error) {
	if f.since != "" {
		if since, err = parseWhen(f.since, time.Now(), end); err != nil {
			return since, until, tool.Usagef("--since: %v", err)
		}
	}
	if f.until == "" {
		return since, until, nil
	}
	midnight := time.Date(end.Year(), end.Month(), end.Day()+1, 0, 0, 0, -1, end.Location())
	for _, last := range []time.Time{end, midnight} {
		if until, err = parseWhen(f.until, time.Now(), last); err != nil {
			return since, until, tool.Usagef("--until: %v", err)
		}
		if f.since == "" || since.Before(until) {
			return since, until, nil
		}
	}
	return since, until, tool.Usagef("--since %s is not before --until %s", f.since, f.until)
}

// began is the time that relative times count from: the start of the range, or of the first run.
func (p *past) began() time.Time {
	if !p.query.Since.IsZero() {
		return p.query.Since
	}
	first := &firstMark{at: p.stream.Min} // if the mark was deleted, the oldest row counts
	if rec, err := record.Read(p.run.flags.from.path); err == nil {
		rec.Play(context.Background(), &record.Query{Streams: p.query.Streams, Into: func(*record.Schema) *row.Schema { return nil }}, first)
	}
	return time.Unix(0, first.at)
}

// firstMark finds when a run began.
type firstMark struct{ at int64 }

func (*firstMark) Row(*row.Row) error { return nil }
func (*firstMark) Idle() error        { return nil }
func (f *firstMark) Mark(_ *record.Schema, m *record.Mark) error {
	if m.Kind == record.Start {
		f.at = m.Time
	}
	return row.Done
}

// outputs decides how recorded outputs become outputs of this run.
func (p *past) outputs() error {
	r := p.run
	kind, asked := r.tool.Kind(r.cfg), r.flags.interval
	if kind == tool.Events {
		return nil
	}
	switch {
	case asked == p.interval:
	case asked > 0 && asked < p.interval:
		return tool.Usagef("outputs were recorded every %s: -i %s or more, or 'seine record %s --dir DIR' with a shorter interval", p.interval, p.interval, quoted(p.stream.Tool+" -i "+asked.String()))
	case kind == tool.Interval && !r.counts():
		return tool.Usagef("outputs of %s are snapshots every %s and do not add up: leave out -i", r.tool.Name, p.interval)
	default:
		p.merge = true
	}
	by := r.prepared.By()
	for _, s := range p.stream.Schemas {
		if s.View != r.prepared.Views[0].Name {
			continue
		}
		for _, id := range by {
			if !s.Has(id) {
				return tool.Usagef("--by %s: %s was recorded by %s: 'seine record %s --dir DIR' would have recorded it", id, r.tool.Name, list(p.stream.By), quoted(p.stream.Tool+" --by "+strings.Join(by, ",")))
			}
		}
	}
	if len(by) < len(p.stream.By) {
		p.merge = true
	}
	return nil
}

func list(ids []string) string {
	if len(ids) == 0 {
		return "nothing"
	}
	return strings.Join(ids, ",")
}

func quoted(tool string) string {
	if strings.ContainsAny(tool, " ") {
		return "\"" + tool + "\""
	}
	return tool
}

// counts reports whether outputs of a tool that prints at intervals can be added up.
func (r *run) counts() bool { return len(r.prepared.Keys()) > 0 }

// into maps a recorded schema to a schema of the run.
func (p *past) into(s *record.Schema) *row.Schema {
	if p.other != nil {
		return p.other.into(p.run.prepared.Schemas[0], s)
	}
	for _, mine := range p.run.prepared.Schemas {
		if mine.View != s.View {
			continue
		}
		if p.merge && mine == p.run.prepared.Schemas[0] {
			p.blank[mine] = nil
			for _, id := range p.run.prepared.Keys() {
				if i := mine.Index(id); i >= 0 && !slices.Contains(p.run.prepared.By(), id) {
					p.blank[mine] = append(p.blank[mine], i)
				}
			}
		}
		return mine
	}
	return nil
}

// options fills in the options of a sink that describe the recorded machine.
func (p *past) options(o *sink.Options) {
	if o.Time == "rel" {
		o.Start = p.began()
	}
	o.Netns = func(inode uint64) string { return p.rec.Names().Netns[inode] }
	if o.Above != nil {
		o.Above = func(time.Time) string { return p.above }
	}
}

// wire connects the recording to the pipe.
func (p *past) wire(pipe *row.Pipe) {
	r := p.run
	if r.query().By != nil { // else a sink may read any column
		use := maps.Clone(pipe.Uses)
		for _, s := range r.prepared.Schemas {
			for i := range s.Columns {
				if c := &s.Columns[i]; c.Sum || c.ID == row.PendingID || c.ID == "time" {
					use[c.ID] = true
				}
			}
		}
		if p.keep == nil && p.other == nil {
			p.query.Use = use
		}
	}
	p.head = pipe.Head(r.made())
	if p.merge {
		p.head = &merged{past: p, fold: row.Fold(&stamped{p, p.head}, r.prepared.By())}
	}
}

// play runs over a recording.
func (p *past) play(ctx context.Context, pipe *row.Pipe) error {
	r := p.run
	p.wire(pipe)
	if !r.quiet {
		for _, n := range p.notes() {
			r.say("%s", n)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopWhenClosed(ctx, r.out, stop)
	if err := p.head.End(row.End{}); err != nil { // prints the head of the table
		return err
	}
	if r.flags.from.follow {
		r.say("ready")
	}
	err := p.read(ctx)
	if !r.quiet {
		p.summary(pipe)
	}
	return err
}

// read reads the recording to its end or to the end of the range.
func (p *past) read(ctx context.Context) error {
	err := p.rec.Play(ctx, &p.query, p)
	if err == nil || errors.Is(err, row.Done) || ctx.Err() != nil {
		return p.finish()
	}
	return err
}

// notes returns what a user must know about the recording.
func (p *past) notes() (out []string) {
	if f := p.stream.Filters; len(f) > 0 {
		out = append(out, fmt.Sprintf("recorded with %s: other rows are missing", strings.Join(f, " ")))
	}
	if p.other != nil {
		out = append(out, p.other.note(p.run.asked()))
	}
	return out
}

// finish ends the last output.
func (p *past) finish() error {
	e := row.End{Time: p.now, Output: true, Last: true}
	if p.held != nil {
		e.Time = p.held.Time
	}
	err := p.head.End(e)
	if errors.Is(err, row.Done) {
		return nil
	}
	return err
}

// Row takes a row of the recording.
func (p *past) Row(r *row.Row) error {
	if err := p.goOn(); err != nil {
		return err
	}
	if p.other != nil {
		r = p.other.row(p.run.prepared.Schemas[0], r)
	}
	if c := r.Get("time"); c != nil && c.Kind == row.Time {
		if err := p.reach(int64(c.N)); err != nil {
			return err
		}
	}
	if p.keep != nil && !p.keep(r) {
		return nil
	}
	for _, i := range p.blank[r.Schema] {
		r.Cells[i] = row.Cell{}
	}
	return p.head.Row(r)
}

// reach moves the clock of the run forward. It ends outputs, and the run if --duration is over.
func (p *past) reach(ns int64) error {
	f := p.run.flags
	at := time.Unix(0, ns)
	if p.begin == 0 {
		if p.begin = cmp.Or(p.origin, ns); !p.query.Since.IsZero() {
			p.begin = p.query.Since.UnixNano()
		}
		p.next = time.Unix(0, p.begin).Add(f.interval)
	}
	if f.duration > 0 && ns >= p.begin+int64(f.duration) {
		p.now = time.Unix(0, p.begin).Add(f.duration)
		return row.Done
	}
	if at.After(p.now) {
		p.now = at
	}
	for p.ticks() && !at.Before(p.next) {
		if err := p.head.End(row.End{Time: p.next, Output: true}); err != nil {
			return err
		}
		p.next = p.next.Add(f.interval)
	}
	return nil
}

// ticks reports whether outputs have to be made from recorded events.
func (p *past) ticks() bool {
	f := p.run.flags
	return f.interval > 0 && p.run.tool.Kind(p.run.cfg) == tool.Events && f.interval != p.interval
}

// goOn passes on the end of a run that was not the last one.
func (p *past) goOn() error {
	if p.held == nil {
		return nil
	}
	e := *p.held
	p.held = nil
	if p.run.tool.Kind(p.run.cfg) == tool.Events {
		return nil
	}
	e.Last = false
	return p.head.End(e)
}

// Mark takes a mark of the recording: the start or end of a run or output, or a loss.
func (p *past) Mark(s *record.Schema, m *record.Mark) error {
	if err := p.goOn(); err != nil {
		return err
	}
	if m.Kind == record.Batch {
		return p.head.End(row.End{Time: p.now})
	}
	at := time.Unix(0, m.Time)
	if m.Kind != record.Start && at.After(p.now) {
		p.now = at
	}
	for _, l := range m.Losses {
		p.losses[l.Kind] += l.N
	}
	switch m.Kind {
	case record.Start:
		p.runs++
	case record.Losses:
		return p.head.End(row.End{Time: at, Losses: m.Losses, Tool: s.Tool})
	case record.Dropped:
		p.lost += m.Rows
	case record.Last:
		p.above = m.Above
		p.held = &row.End{Time: at, Output: true, Losses: m.Losses, Tool: s.Tool}
	case record.Output:
		if p.above = m.Above; p.run.tool.Kind(p.run.cfg) == tool.Events && p.run.flags.interval != p.interval {
			return nil
		}
		return p.head.End(row.End{Time: at, Output: true, Losses: m.Losses, Tool: s.Tool})
	}
	return nil
}

// Idle shows the rows that have come so far.
func (p *past) Idle() error {
	err := p.head.End(row.End{Time: time.Now()})
	if err == nil && p.idle != nil {
		err = p.idle()
	}
	return err
}

// missed is how many rows were not recorded or were refused by --by.
func (p *past) missed(pipe *row.Pipe) (n uint64) {
	for _, lost := range p.losses {
		n += lost
	}
	return n + p.lost + pipe.Refused()
}

// summary prints how many rows there were, and what the recording lacks.
func (p *past) summary(pipe *row.Pipe) {
	p.run.say("%s, %s lost", words.Count(pipe.Rows(), "row", "rows"), words.Thousands(p.missed(pipe)))
	for _, line := range p.lacks(pipe) {
		p.run.say("%s", line)
	}
}

// lacks returns what is missing in the recording and in the output.
func (p *past) lacks(pipe *row.Pipe) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, kind := range slices.Sorted(maps.Keys(p.losses)) {
		add("while it was recorded: %s: %s", kind, words.Thousands(p.losses[kind]))
	}
	if p.lost > 0 {
		add("%s not be recorded: the disk was full", words.Count(p.lost, "row could", "rows could"))
	}
	if pipe.Held() > 0 {
		add("%s not shown because of --rate %d, the limit for a second", words.Count(pipe.Held(), "row was", "rows were"), p.run.flags.rate)
	}
	if pipe.Refused() > 0 {
		add("%s refused by --by, because there were too many groups: use fewer columns or a filter", words.Count(pipe.Refused(), "row was", "rows were"))
	}
	if d := p.rec.Damage(); d.Bytes > 0 || d.Gaps > 0 {
		add("the recording is damaged: %s could not be read; rows are missing at %s", words.Count(uint64(d.Bytes), "byte", "bytes"), words.Count(uint64(d.Gaps), "place", "places"))
	}
	return out
}

// merged joins several recorded outputs into one.
type merged struct {
	past *past
	fold row.Sink
	next time.Time
}

func (m *merged) Row(r *row.Row) error { return m.fold.Row(r) }

func (m *merged) End(e row.End) error {
	p, every := m.past, m.past.run.flags.interval
	if !e.Output && !e.Last {
		return m.fold.End(e)
	}
	if m.next.IsZero() {
		m.next = time.Unix(0, p.begin).Add(every - p.interval)
	}
	// Ticks come a little late.
	if every == 0 || e.Time.Add(p.interval/2).Before(m.next) {
		if !e.Last {
			return nil
		}
	}
	for every > 0 && !m.next.After(e.Time.Add(p.interval/2)) {
		m.next = m.next.Add(every)
	}
	p.now = e.Time
	return m.fold.End(e)
}

// stamped sets the time of rows to the end of their joined output.
type stamped struct {
	past *past
	next row.Sink
}

func (s *stamped) Row(r *row.Row) error {
	if c := r.Get("time"); c != nil {
		*c = row.Cell{Kind: row.Time, N: uint64(s.past.now.UnixNano())}
	}
	return s.next.Row(r)
}
func (s *stamped) End(e row.End) error { return s.next.End(e) }
