// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/watch"
	"seine/internal/words"
)

// counting records the kernel's counters beside the tools.
type counting struct {
	sampler *watch.Sampler
	stream  *record.Stream
	rows    row.Count
	taken   *watch.CounterRows
}

// newCounting opens the files that it reads, so that it needs no privilege afterwards.
func newCounting(rec *record.Recorder) *counting {
	s := watch.CounterSchema()
	src := record.Source{Name: watch.Counters, Tool: watch.Counters, Interval: recordEvery}
	c := &counting{sampler: watch.NewSampler(), stream: rec.Stream(src, []*row.Schema{s}, nil)}
	c.rows.Next = c.stream
	c.taken = watch.NewCounterRows(s, &c.rows)
	return c
}

func (c *counting) close() { c.sampler.Close() }

// run reads the counters until ctx ends, and once more at the end, so that the last
// seconds are not lost.
func (c *counting) run(ctx context.Context, began time.Time) error {
	c.stream.Start(began)
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	err := c.taken.Sample(c.sampler, began)
	for err == nil && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		err = c.taken.Sample(c.sampler, time.Now())
	}
	if end := c.stream.End(row.End{Time: time.Now(), Output: true, Last: true}); err == nil {
		err = end
	}
	return err
}

func (f *recordFlags) countingSummary(c *counting) {
	f.say("%s: %s", watch.Counters, words.Count(c.rows.Rows, "row", "rows"))
}
