// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"time"

	"seine/internal/record"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/top"
	"seine/internal/watch"
)

// A pastSource looks at a recording. It makes the model of a time from the minutes before it,
// so that the model equals a live one at that time.
type pastSource struct {
	path        string
	host        string
	streams     map[uint64]bool
	missing     map[string]string // tools that were not recorded, and why
	first, last time.Time         // the times that can be shown

	at    time.Time // of the current model
	model *watch.Model
}

// past shows a recording.
func (f *topFlags) past(ctx context.Context, state *top.State, full bool) error {
	s, err := f.openPast()
	if err != nil {
		return err
	}
	switch {
	case full:
		held := top.Hold(f.out.(*os.File))
		return top.Run(ctx, top.Options{Source: s, State: state, Look: f.look(), In: os.Stdin, Out: f.out.(*os.File), Terminal: held})
	case f.output == "json":
		return f.streamPast(ctx, s)
	}
	snap, err := s.Look(ctx, state.At, state.WantsEvents(), nil)
	if err != nil {
		return err
	}
	return top.Plain(f.out, state, snap)
}

func (f *topFlags) openPast() (*pastSource, error) {
	rec, err := record.Read(f.from.path)
	if err != nil {
		return nil, tool.Usagef("--from: %v", err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil {
		return nil, err
	}
	s := &pastSource{path: f.from.path, streams: map[uint64]bool{}}
	taken := leastFiltered(all)
	if s.missing, err = notRecordedWhy(taken); err != nil {
		return nil, err
	}
	var first, last int64
	for _, c := range taken {
		s.streams[c.Stream] = true
		s.host = c.Machine.Host
		if first == 0 || c.Min < first {
			first = c.Min
		}
		last = max(last, c.Max)
	}
	if last == 0 {
		return nil, tool.Usagef("--from %s: nothing is recorded there", f.from.path)
	}
	since, until, err := f.from.bounds(time.Unix(0, last))
	if err != nil {
		return nil, err
	}
	if s.first = since; since.IsZero() {
		s.first = time.Unix(0, first)
	}
	if s.last = until; until.IsZero() {
		s.last = time.Unix(0, last)
	}
	if !s.first.Before(s.last) {
		const clock = "2006-01-02 15:04:05"
		return nil, tool.Usagef("--from %s: nothing is recorded in that range: the recording has %s to %s",
			f.from.path, time.Unix(0, first).Format(clock), time.Unix(0, last).Format(clock))
	}
	return s, nil
}

// leastFiltered chooses one stream for each view of a tool: the one with the fewest filters, then
// one of --errors, which has sockets that could not be made too, then the larger one. For flows it chooses the intervals, because rows of whole connections
// would count the same time twice.
func leastFiltered(all []*record.Contents) map[string]*record.Contents {
	taken := map[string]*record.Contents{}
	for _, c := range all {
		for _, s := range c.Schemas {
			name := c.Tool + "/" + s.View
			if was := taken[name]; was != nil && !better(c, was) {
				continue
			}
			taken[name] = c
		}
	}
	return taken
}

// better reports whether a holds more than b.
func better(a, b *record.Contents) bool {
	if whole := a.Config["closed"] == "true"; whole != (b.Config["closed"] == "true") {
		return !whole
	}
	if n := len(b.Filters) - len(a.Filters); n != 0 {
		return n > 0
	}
	if errors := a.Config["errors"] == "true"; errors != (b.Config["errors"] == "true") {
		return errors
	}
	return a.Rows > b.Rows
}

// has reports whether a tool is among the streams.
func has(taken map[string]*record.Contents, tool string) bool {
	for _, c := range taken {
		if c.Tool == tool {
			return true
		}
	}
	return false
}

// notRecordedWhy says for each source of a model why its rows are missing, "" if they were recorded.
func notRecordedWhy(taken map[string]*record.Contents) (map[string]string, error) {
	out := map[string]string{}
	names := []string{watch.Counters}
	for _, line := range whyTools {
		t, err := parseTaped(line)
		if err != nil {
			return nil, err
		}
		names = append(names, t.run.tool.Name)
	}
	for _, name := range names {
		if out[name] = ""; !has(taken, name) {
			out[name] = "it was not recorded: 'seine record " + name + " --dir DIR' would have recorded it"
		}
	}
	return out, nil
}

// Look plays the minutes before at.
func (s *pastSource) Look(ctx context.Context, at time.Time, events bool, follow []watch.ConnKey) (*top.Snapshot, error) {
	if at.IsZero() || at.After(s.last) {
		at = s.last
	}
	if at.Before(s.first.Add(time.Second)) {
		at = s.first.Add(time.Second)
	}
	if s.model == nil || !at.Equal(s.at) || len(follow) == 1 { // a connection that was opened needs its past
		m, err := s.play(ctx, at, follow)
		if err != nil {
			return nil, err
		}
		s.model, s.at = m, at
	}
	snap := top.Take(s.model, time.Time{}, events)
	snap.Host, snap.From, snap.At = s.host, s.path, at.Truncate(time.Second)
	snap.Behind = s.last.Sub(at).Truncate(time.Second)
	return snap, nil
}

// play makes the model of a time.
func (s *pastSource) play(ctx context.Context, at time.Time, follow []watch.ConnKey) (*watch.Model, error) {
	rec, err := record.Read(s.path)
	if err != nil {
		return nil, err
	}
	m := watch.New(watch.Options{})
	m.Follow(follow...)
	for name, why := range s.missing {
		m.Asked(name, why)
	}
	since := at.Add(-top.Long)
	if since.Before(s.first) {
		since = s.first
	}
	q := &record.Query{Streams: s.streams, Since: since, Until: at.Add(1), Into: schemasOf()}
	if err := rec.Play(ctx, q, &retold{m}); err != nil && ctx.Err() == nil {
		return nil, err
	}
	return m, nil
}

// streamPast writes the rows of each second of a recording.
func (f *topFlags) streamPast(ctx context.Context, s *pastSource) error {
	out, err := sink.New("json", f.out, sink.Options{Schemas: top.Schemas()})
	if err != nil {
		return err
	}
	n := uint64(0)
	for second := s.first.Truncate(time.Second); !second.After(s.last) && ctx.Err() == nil && (f.count == 0 || n < f.count); second = second.Add(time.Second) {
		// A model keeps only the last row of a connection, so each second has its own model.
		m, err := s.play(ctx, second.Add(time.Second-1), nil)
		if err != nil {
			return err
		}
		if err := top.Rows(m, second, out); err != nil {
			return err
		}
		n++
	}
	return nil
}
