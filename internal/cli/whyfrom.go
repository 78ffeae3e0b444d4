// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
)

// past reads a recording: the given time, and the hour before it if --since is given.
func (f *whyFlags) past(ctx context.Context) (now, before *watch.View, err error) {
	rec, err := record.Read(f.from.path)
	if err != nil {
		return nil, nil, tool.Usagef("--from: %v", err)
	}
	all, err := rec.Contents(&record.Query{})
	if err != nil {
		return nil, nil, err
	}
	var last int64
	streams, taken := map[uint64]bool{}, leastFiltered(all)
	model := watch.New(watch.Options{Keep: 24 * time.Hour, Least: 24 * time.Hour, Cells: 1_000_000})
	for _, c := range taken {
		streams[c.Stream] = true
		last = max(last, c.Max)
	}
	missing, err := notRecordedWhy(taken)
	if err != nil {
		return nil, nil, err
	}
	for name, why := range missing {
		model.Asked(name, why)
	}
	q := &record.Query{Streams: streams, Into: schemasOf()}
	if q.Since, q.Until, err = f.from.bounds(time.Unix(0, last)); err != nil {
		return nil, nil, err
	}
	if err := rec.Play(ctx, q, &retold{model}); err != nil && ctx.Err() == nil {
		return nil, nil, err
	}
	if !q.Since.IsZero() {
		if before, err = f.before(ctx, taken, q.Since); err != nil {
			return nil, nil, err
		}
	}
	return model.Window(24 * time.Hour), before, nil
}

// before reads what services did in the hour before a time. It is nil if that is not recorded.
func (f *whyFlags) before(ctx context.Context, taken map[string]*record.Contents, since time.Time) (*watch.View, error) {
	rec, err := record.Read(f.from.path)
	if err != nil {
		return nil, err
	}
	q := &record.Query{Streams: map[uint64]bool{}, Since: since.Add(-time.Hour), Until: since, Into: schemasOf()}
	for _, c := range taken {
		if c.Tool == "flows" && c.Min < since.UnixNano() {
			q.Streams[c.Stream] = true
		}
	}
	if len(q.Streams) == 0 {
		return nil, nil
	}
	model := watch.New(watch.Options{Keep: time.Hour, Least: time.Hour, Cells: 1_000_000})
	if err := rec.Play(ctx, q, &retold{model}); err != nil && ctx.Err() == nil {
		return nil, err
	}
	return model.Window(time.Hour), nil
}

// schemasOf maps a recorded schema to the schema that the tool has now.
func schemasOf() func(*record.Schema) *row.Schema {
	known := map[string][]*row.Schema{}
	return func(s *record.Schema) *row.Schema {
		if known[s.Tool] == nil && s.Tool == watch.Counters {
			known[s.Tool] = []*row.Schema{watch.CounterSchema()}
		}
		if known[s.Tool] == nil {
			t, _ := find(s.Tool)
			if t == nil {
				return nil
			}
			known[s.Tool], _ = t.Schemas(t.Views(t.NewConfig()))
		}
		for _, mine := range known[s.Tool] {
			if mine.View == s.View {
				return mine
			}
		}
		return nil
	}
}

// retold feeds a model from a recording.
type retold struct{ *watch.Model }

func (r *retold) Mark(s *record.Schema, m *record.Mark) error {
	if m.Kind == record.Dropped {
		r.Dropped(s.Tool, m.Rows)
	}
	return r.Lost(s.Tool, m.Losses)
}

func (r *retold) Idle() error { return nil }

// sortedKeys returns the sorted keys of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
