// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"seine/internal/lab"
	"seine/internal/row"
)

// Missing is the error of N missing events. Only this error can be explained by program
// runs that the kernel skipped. A wrong value is never a Missing, but see Whole.
type Missing struct {
	N    int
	Text string
}

func (m *Missing) Error() string { return m.Text }

// Fewer compares two numbers and returns nil if they are equal. Its error is a
// Missing if there are fewer than wanted. If there are more, it is a plain one.
func Fewer(got, want int, format string, args ...any) error {
	switch {
	case got == want:
		return nil
	case got < want:
		return &Missing{want - got, fmt.Sprintf(format, args...)}
	}
	return fmt.Errorf(format, args...)
}

// RowCount is Fewer for rows.
func RowCount(got, want int) error { return Fewer(got, want, "%d rows, want %d", got, want) }

// Fail records an error and goes on. It does nothing if err is nil.
func (x *Trial) Fail(err error) {
	if err != nil {
		x.failed = append(x.failed, err)
	}
}

// WantSum records an error if a column of r, which adds up events of size each, is
// not want. A smaller sum is a Missing of as many events.
func (x *Trial) WantSum(r *row.Row, id string, want, each int) {
	got := int(r.Get(id).N)
	text := fmt.Sprintf("%s is %d, want %d, in %s", id, got, want, Dump(r))
	switch {
	case got < want:
		x.Fail(&Missing{(want - got + each - 1) / each, text})
	case got > want:
		x.Fail(errors.New(text))
	}
}

// NoneLost records an error if the run lost something, or if a loss of these other kinds
// happened. Runs that the kernel skipped add nothing to the number that is missing: the missing
// rows are counted already.
func (x *Trial) NoneLost(also ...int) {
	lost, other := x.Report.Lost(), uint64(0)
	for _, kind := range also {
		other += x.Report.Losses[kind]
	}
	if lost+other == 0 {
		return
	}
	text := fmt.Sprintf("%d lost, want none: %+v, and %d runs skipped", lost+other, x.Report.Losses, x.Report.Missed)
	if lost+other == x.Report.Missed {
		x.Fail(&Missing{0, text})
		return
	}
	x.Fail(errors.New(text))
}

// Whole runs the checks of one row that many events make up, as one of a connection. If
// the kernel skipped runs, all that is wrong with the row is a Missing of one event.
func (x *Trial) Whole(check func()) {
	n := len(x.failed)
	check()
	if wrong := x.failed[n:]; len(wrong) > 0 && x.Report.Missed > 0 {
		x.failed = append(x.failed[:n], &Missing{1, errors.Join(wrong...).Error()})
	}
}

// Undisturbed is lab.Undisturbed for a case: errors that the case records count as differences,
// and so do missing rows.
func (x *Trial) Undisturbed(run func(*Trial) error) error {
	return lab.Undisturbed(func() ([]error, error) {
		n := len(x.failed)
		err := run(x)
		differ := slices.Clone(x.failed[n:])
		x.failed = x.failed[:n]
		if _, late, only := Lacks(err); only && !late {
			differ, err = append(differ, err), nil
		}
		return differ, err
	})
}

// Undisturbed is a case that runs so.
func Undisturbed(run func(*Trial) error) func(*Trial) error {
	return func(x *Trial) error { return x.Undisturbed(run) }
}

// Timed is Undisturbed for a round of a case whose events come from timers: on top of
// process 1 some may be missing. A round in which nothing is missing, but something else
// is wrong, is never made again.
func (x *Trial) Timed(fn func() error) error {
	return lab.Undisturbed(func() ([]error, error) {
		n := len(x.failed)
		err := fn()
		if x.running != nil {
			_, e := x.Detach()
			err = errors.Join(err, e)
		}
		err = verdict(slices.Clone(x.failed[n:]), err)
		x.failed = x.failed[:n]
		if missing, _, _ := Lacks(err); missing > 0 {
			return []error{err}, nil
		}
		return nil, err
	})
}

// Lacks analyses the error of a case. It returns the number of missing events,
// whether a part of it is a timeout, and whether err says nothing else.
func Lacks(err error) (n int, late, only bool) {
	if err == nil {
		return 0, false, false
	}
	if m, ok := err.(*Missing); ok {
		return m.N, false, true
	}
	for _, e := range []error{lab.ErrLate, context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		if err == e {
			return 0, true, true
		}
	}
	var parts []error
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		parts = e.Unwrap()
	case interface{ Unwrap() error }:
		parts = []error{e.Unwrap()}
	}
	only = len(parts) > 0
	for _, part := range parts {
		m, l, o := Lacks(part)
		n, late, only = n+m, late || l, only && o
	}
	return n, late, only
}

// verdict joins the errors that a case recorded with the one that it returned.
// A case that has failed and then skips has still failed.
func verdict(failed []error, err error) error {
	if len(failed) > 0 && errors.Is(err, ErrSkip) {
		err = fmt.Errorf("after that: %v", err)
	}
	return errors.Join(append(failed, err)...)
}
