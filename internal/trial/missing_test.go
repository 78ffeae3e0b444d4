// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"seine/internal/lab"
	"seine/internal/tool"
)

// A case that recorded a failure and then skipped has failed.
func TestSkipMasksNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		run           func(*Trial) error
		skipped, fine bool
	}{
		{"fine", func(*Trial) error { return nil }, false, true},
		{"skipped", func(*Trial) error { return Skip("no such qdisc") }, true, false},
		{"failed", func(x *Trial) error { x.Errorf("pid is 7, want 8"); return nil }, false, false},
		{"failed, then skipped", func(x *Trial) error { x.Errorf("pid is 7, want 8"); return Skip("no such qdisc") }, false, false},
		{"rows missing, then skipped", func(x *Trial) error { x.Fail(RowCount(6, 7)); return Skip("no such qdisc") }, false, false},
	} {
		x := &Trial{}
		err := x.run(Case{Run: c.run})
		if errors.Is(err, ErrSkip) != c.skipped || (err == nil) != c.fine {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// All errors of one row are one missing event if the kernel skipped some, and a wrong
// value otherwise. Earlier failures are not changed.
func TestWhole(t *testing.T) {
	for _, missed := range []uint64{0, 3} {
		x := &Trial{Report: &tool.Report{Missed: missed}}
		x.Fail(RowCount(6, 7))
		x.Whole(func() {})
		x.Whole(func() { x.Errorf("turns is 7, want 8"); x.Errorf("app is 1 s, want 2 s") })
		if n, _, only := Lacks(errors.Join(x.failed...)); only != (missed > 0) || (only && n != 2) {
			t.Errorf("%d runs skipped: %d missing, nothing else %v", missed, n, only)
		}
	}
}

func TestLacks(t *testing.T) {
	wrong := errors.New("pid is 7, want 8")
	for _, c := range []struct {
		err        error
		n          int
		late, only bool
	}{
		{err: nil},
		{err: wrong},
		{err: RowCount(6, 7), n: 1, only: true},
		{err: RowCount(8, 7)}, // too many are a wrong value
		{err: fmt.Errorf("udp: %w", RowCount(3, 7)), n: 4, only: true},
		{err: errors.Join(RowCount(6, 7), RowCount(5, 7)), n: 3, only: true},
		{err: errors.Join(RowCount(6, 7), wrong), n: 1},
		{err: fmt.Errorf("%w: %w", RowCount(6, 7), wrong), n: 1},
		{err: fmt.Errorf("lab: %w", lab.ErrLate), late: true, only: true},
		{err: errors.Join(context.DeadlineExceeded, wrong), late: true},
		{err: verdict([]error{RowCount(6, 7)}, Skip("no")), n: 1},
	} {
		if n, late, only := Lacks(c.err); n != c.n || late != c.late || only != c.only {
			t.Errorf("%v: %d missing, late %v, nothing else %v; want %+v", c.err, n, late, only, c)
		}
	}
}

// A round with a wrong value and nothing missing is not repeated.
func TestTimed(t *testing.T) {
	x := &Trial{}
	x.Errorf("before")
	rounds := 0
	err := x.Timed(func() error {
		rounds++
		x.Errorf("pid is 7, want 8")
		return nil
	})
	if err == nil || rounds != 1 || len(x.failed) != 1 {
		t.Errorf("%v after %d rounds, with %v, want an error after one, and what was there before", err, rounds, x.failed)
	}
	if err := x.Timed(func() error { return Skip("no such qdisc") }); !errors.Is(err, ErrSkip) {
		t.Errorf("%v, want it skipped", err)
	}
}
