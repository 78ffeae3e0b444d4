// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"
)

// BPF programs are timed for bpfFor every bpfEvery. That is a second a minute in all. The parts are
// small, so that the guard sees an overload within its window.
const (
	bpfEvery = 6 * time.Second
	bpfFor   = 100 * time.Millisecond
)

// A BPFTime estimates the processor time of BPF programs. To time a run costs more than a short
// program takes, so the kernel times the programs only for short periods. The measured share is
// used until the next period.
type BPFTime struct {
	// Enable makes the kernel time programs until stop is called.
	Enable func() (stop func(), err error)
	// Spent is the total time that the programs have run while they were timed.
	Spent func() time.Duration

	mu    sync.Mutex
	share float64       // share of one processor in the last period
	total time.Duration // estimated time until at
	at    time.Time     // zero: not timed yet
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
	// The sum lacks a tool that has ended meanwhile.
	spent := max(b.Spent()-before, 0)
	return float64(spent) / float64(time.Since(began)), nil
}

// tell stores the share from now on.
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

// Total returns the estimated time until now, and whether there is an estimate.
func (b *BPFTime) Total(now time.Time) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until(now), !b.at.IsZero()
}
