// SPDX-License-Identifier: Apache-2.0

package row

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestReplay: rows of sources that are read come out by time, whatever each of them has, and
// losses between the rows that they were noticed at.
func TestReplay(t *testing.T) {
	out := &Collect{}
	began := time.Unix(1_800_000_000, 0)
	at := func(n uint64) time.Time { return began.Add(time.Duration(n) * time.Millisecond) }
	m := NewReplay(out, 250*time.Millisecond, time.Second)
	// One has few rows, one has many, one has them a little out of order, one has none.
	for _, numbers := range [][]uint64{{0, 9_001, 30_000}, nil, {3_100, 3_000, 3_050, 20_000, 19_800}, {}} {
		s := m.Source()
		if numbers == nil {
			for n := uint64(5_000); n < 9_000; n++ {
				numbers = append(numbers, n)
			}
		}
		s.Play = func() error {
			s.End(End{}) // the head
			for _, n := range numbers {
				if err := s.Row(mergeRow(at(n), n)); err != nil {
					return err
				}
			}
			s.End(End{Time: at(40_000), Tool: "x", Losses: []Loss{{"ring_full", 1}}})
			return s.End(End{Last: true, Output: true})
		}
	}
	if err := m.Run(); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for i, r := range out.Rows {
		if r.Cells[1].N < last {
			t.Fatalf("row %d is number %d, after %d", i, r.Cells[1].N, last)
		}
		last = r.Cells[1].N
	}
	losses := 0
	for _, e := range out.Ends {
		if e.Losses != nil && e.Tool == "x" && e.Time.Equal(at(40_000)) {
			losses++
		}
	}
	if len(out.Rows) != 3+4_000+5 || losses != 4 || !out.Ends[len(out.Ends)-1].Last || !m.Now().Equal(at(30_000)) {
		t.Errorf("%d rows, %d losses, at %v", len(out.Rows), losses, m.Now())
	}
}

// TestReplayEnds: a sink that wants no more ends all sources, also one that never ends, and the
// error of a source is that of the whole.
func TestReplayEnds(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	for _, broken := range []error{nil, errors.New("damaged")} {
		out := &Collect{}
		m := NewReplay(Limit(out, 10, false), time.Millisecond, time.Second)
		ended := 0
		for range 3 {
			s := m.Source()
			s.Play = func() error {
				for n := uint64(0); ; n++ {
					if broken != nil && n == 2 {
						return broken
					}
					if err := s.Row(mergeRow(began.Add(time.Duration(n)*time.Second), n)); err != nil {
						ended++
						s.Row(mergeRow(began, n)) // what waits in a pipe
						return err
					}
				}
			}
		}
		err := m.Run()
		if broken != nil {
			if !errors.Is(err, broken) || len(out.Rows) != 6 {
				t.Errorf("%v, %d rows, want 6 and that it is damaged", err, len(out.Rows))
			}
			continue
		}
		if err != nil || len(out.Rows) != 10 || ended != 3 {
			t.Errorf("%v, %d rows, %d sources ended, want 10 and 3", err, len(out.Rows), ended)
		}
	}
}

// TestReplayIdle: rows of a source that is being written are shown though another has none, and
// still by time where one comes later.
func TestReplayIdle(t *testing.T) {
	out := &Collect{}
	const late = 50 * time.Millisecond
	m := NewReplay(out, time.Millisecond, late)
	began := time.Unix(1_800_000_000, 0)
	now := began
	m.now = func() time.Time { return now }
	quick, slow := m.Source(), m.Source()
	idle := func(s *ReplaySource) error {
		for len(out.Rows) < 2 {
			if now = now.Add(10 * time.Millisecond); now.Sub(began) > time.Minute {
				return fmt.Errorf("%d rows were shown", len(out.Rows))
			}
			if err := s.Idle(); err != nil {
				return err
			}
		}
		return nil
	}
	quick.Play = func() error {
		if err := quick.Row(mergeRow(began.Add(2), 2)); err != nil {
			return err
		}
		return idle(quick)
	}
	slow.Play = func() error {
		slow.Idle()
		now = began.Add(2 * late) // it was idle long ago
		if err := slow.Row(mergeRow(began.Add(1), 1)); err != nil {
			return err
		}
		return idle(slow)
	}
	if err := m.Run(); err != nil {
		t.Fatal(err)
	}
	if len(out.Rows) != 2 || out.Rows[0].Cells[1].N != 1 {
		t.Errorf("%d rows, the first is not the older one", len(out.Rows))
	}
	if now.Sub(began) < late {
		t.Errorf("rows were shown after %v, when older ones might have come", now.Sub(began))
	}
}
