// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestBPFTime: the measured share holds until the next period, a tool that ends does not reduce
// the total, and the kernel does not time programs afterwards.
func TestBPFTime(t *testing.T) {
	b := &BPFTime{}
	now := time.Unix(1_700_000_000, 0)
	if _, ok := b.Total(now); ok {
		t.Error("there is an estimate before programs were timed")
	}
	b.tell(now, 0.5)
	b.tell(now.Add(6*time.Second), 0)
	if got, _ := b.Total(now.Add(20 * time.Second)); got != 3*time.Second {
		t.Errorf("%v, want 6 s of half a processor", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	timed := 0
	spent := []time.Duration{time.Hour, time.Hour + time.Minute}
	b = &BPFTime{
		Enable: func() (func(), error) { timed++; return func() { timed-- }, nil },
		Spent: func() time.Duration {
			if timed != 1 {
				t.Errorf("%d times enabled", timed)
			}
			s := spent[0]
			if spent = spent[1:]; len(spent) == 0 {
				spent = []time.Duration{0}
			}
			return s
		},
	}
	// A minute of run time in a tenth of a second or more: the machine may be slow, but not fast.
	share, err := b.sample(ctx)
	if err != nil || share <= 0 || share > 60/bpfFor.Seconds() {
		t.Errorf("share %g, %v", share, err)
	}
	spent = []time.Duration{time.Hour, 0}
	if share, err := b.sample(ctx); err != nil || share != 0 {
		t.Errorf("share %g, %v, want 0 where a tool ended", share, err)
	}
	if timed != 0 {
		t.Error("programs are still timed")
	}
	cancel()
	denied := errors.New("denied")
	b.Enable = func() (func(), error) { return nil, denied }
	if err := b.Run(t.Context()); err != denied {
		t.Errorf("%v, want %v", err, denied)
	}
}
