// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"
)

// How often BPF programs are timed, and how long: a second a minute in all, in small parts, so
// that the guard hears of an overload within its window.
const (
	bpfEvery = 6 * time.Second
	bpfFor   = 100 * time.Millisecond
)

// A BPFTime estimates how much processor time BPF programs take. Timing a run costs more than a
// short program takes, so the kernel times the programs only now and then. The share that it
// finds is used until the next time.
type BPFTime struct {
	// Enable has the kernel time programs until stop is called.
	Enable func() (stop func(), err error)
	// Spent is how long the programs have run while they were timed, in all.
	Spent func() time.Duration

	mu    sync.Mutex
	share float64       // of one processor, the last time
	total time.Duration // until at
	at    time.Time     // zero: never timed yet
}

// Run estimates until ctx ends. If programs cannot be timed it returns the reason.
func (b *BPFTime) Run(ctx context.Context) error {
	for {
		share, err := b.sample(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		b.tell(time.Now(), share)
		select {
		case <-time.After(bpfEvery - bpfFor):
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *BPFTime) sample(ctx context.Context) (share float64, err error) {
	stop, err := b.Enable()
	if err != nil {
		return 0, err
	}
	defer stop()
	began, before := time.Now(), b.Spent()
	select {
	case <-time.After(bpfFor):
	case <-ctx.Done():
	}
	// A tool that ended meanwhile takes its time with it.
	spent := max(b.Spent()-before, 0)
	return float64(spent) / float64(time.Since(began)), nil
}

// tell notes the share as of now.
func (b *BPFTime) tell(now time.Time, share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.share, b.at = b.until(now), share, now
}

func (b *BPFTime) until(now time.Time) time.Duration {
	if b.at.IsZero() {
		return 0
	}
	return b.total + time.Duration(b.share*float64(now.Sub(b.at)))
}

// Total is the time until now, and whether there is an estimate.
func (b *BPFTime) Total(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until(now), !b.at.IsZero()
}
