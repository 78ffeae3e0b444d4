// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"seine/internal/row"
	"seine/internal/words"
)

// recordLate is how late rows of a followed recording may come. They are written once a
// second and read ten times a second.
const recordLate = 3 * time.Second

// open finds the rows of each tool in the recording.
func (w *with) open() (err error) {
	var oldest int64
	for _, m := range w.members {
		m.quiet = true
		m.flags.duration = w.flags.duration
		if m.past, err = m.openPast(); err != nil {
			return err
		}
		if at := m.past.stream.Min; at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	for _, m := range w.members {
		m.past.origin = oldest
	}
	return nil
}

// began is the time that relative times count from.
func (w *with) began() (at time.Time) {
	for i, m := range w.members {
		if t := m.past.began(); i == 0 || t.Before(at) {
			at = t
		}
	}
	return at
}

// netns returns the name that a namespace had when it was recorded.
func (w *with) netns(inode uint64) string {
	for _, m := range w.members {
		if name := m.past.rec.Names().Netns[inode]; name != "" {
			return name
		}
	}
	return ""
}

// play runs over a recording.
func (w *with) play(ctx context.Context, stop func()) error {
	for _, m := range w.members {
		m.past.wire(m.pipe)
		m.past.idle = m.source.Idle
		m.source.Play = func() error { return m.past.read(ctx) }
		for _, n := range m.past.notes() {
			w.say("%s: %s", m.tool.Name, n)
		}
	}
	stopWhenClosed(ctx, w.out, stop)
	if err := w.count.End(row.End{}); err != nil { // prints the head of the table
		return err
	}
	if w.flags.from.follow {
		w.say("ready")
	}
	err := w.replay.Run()
	var lost uint64
	for _, m := range w.members {
		lost += m.past.missed(m.pipe)
	}
	w.say("%s, %s lost", words.Count(w.count.Rows, "row", "rows"), words.Thousands(lost))
	for _, m := range w.members {
		for _, line := range m.past.lacks(m.pipe) {
			w.say("%s: %s", m.tool.Name, line)
		}
	}
	return err
}
