// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A Limited is a log handler that suppresses messages that come too often: it writes the first
// lines of each message in a minute, and then one line that says how many were left out.
type Limited struct {
	next   slog.Handler
	shared *limitedState
}

type limitedState struct {
	mu         sync.Mutex
	began      time.Time
	seen       map[string]int
	left       map[string]int
	suppressed atomic.Uint64
	now        func() time.Time
}

const (
	mostLines    = 5 // lines of one message in a minute
	mostMessages = 1000
)

// NewLimited limits the lines that go to next.
func NewLimited(next slog.Handler) *Limited {
	return &Limited{next, &limitedState{seen: map[string]int{}, left: map[string]int{}, now: time.Now}}
}

// Suppressed is the number of lines that were not written.
func (l *Limited) Suppressed() uint64 { return l.shared.suppressed.Load() }

// Enabled asks the next handler.
func (l *Limited) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

// WithAttrs adds attributes.
func (l *Limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Limited{l.next.WithAttrs(attrs), l.shared}
}

// WithGroup opens a group.
func (l *Limited) WithGroup(name string) slog.Handler {
	return &Limited{l.next.WithGroup(name), l.shared}
}

// Handle writes a line, or counts it.
func (l *Limited) Handle(ctx context.Context, r slog.Record) error {
	s := l.shared
	s.mu.Lock()
	now := s.now()
	var left map[string]int
	if now.Sub(s.began) >= time.Minute {
		left = s.left
		s.began, s.seen, s.left = now, map[string]int{}, map[string]int{}
	}
	s.seen[r.Message]++
	write := s.seen[r.Message] <= mostLines && len(s.seen) <= mostMessages
	if !write {
		if len(s.left) < mostMessages {
			s.left[r.Message]++
		}
		s.suppressed.Add(1)
	}
	s.mu.Unlock()
	for message, n := range left {
		more := slog.NewRecord(now, slog.LevelWarn, "lines left out", 0)
		more.AddAttrs(slog.String("line", message), slog.Int("count", n))
		if err := l.next.Handle(ctx, more); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	return l.next.Handle(ctx, r)
}
