// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

func TestGuard(t *testing.T) {
	g := &Guard{Most: 0.02, Steps: 3}
	now, used := time.Unix(1_700_000_000, 0), time.Duration(0)
	var changes []int // seconds at which it did less (positive) or more
	second := 0
	run := func(seconds int, share float64) {
		for range seconds {
			second++
			now = now.Add(time.Second)
			used += time.Duration(share * float64(time.Second))
			if by := g.Tell(now, used); by != 0 {
				changes = append(changes, by*second)
			}
		}
	}
	run(5, 1) // the start
	run(95, 0.01)
	if changes != nil {
		t.Fatalf("it does less at %v though it takes half of what it may", changes)
	}
	run(20, 0.5)
	if len(changes) != 1 || changes[0] < 101 || changes[0] > 120 || g.Level() != 1 {
		t.Fatalf("changes at %v, want one within 20 s of 100", changes)
	}
	run(300, 0.5)
	if g.Level() != 3 || len(changes) != 3 {
		t.Fatalf("changes at %v, want three", changes)
	}
	for i := 1; i < len(changes); i++ {
		if changes[i]-changes[i-1] < 60 {
			t.Errorf("changes at %v: two in a minute", changes)
		}
	}
	run(300, 0.015) // more than half: it stays as it is
	if len(changes) != 3 {
		t.Errorf("changes at %v: it does more though it takes more than half", changes)
	}
	was := second
	run(500, 0.005)
	if g.Level() != 0 || len(changes) != 6 || -changes[3] < was+60 || -changes[3] > was+90 {
		t.Errorf("changes at %v, level %d: want all back, the first one 60 to 90 s after %d", changes, g.Level(), was)
	}
	off := &Guard{Steps: 3}
	for i := range 3 {
		if off.Tell(now.Add(time.Duration(20*i)*time.Second), time.Duration(i)*time.Hour) != 0 {
			t.Error("without a limit it does less")
		}
	}
}

// TestGuardWithin: the guard acts within 20 s of an overload, whether it begins with the agent or
// later, in its processes or in its BPF programs, whenever these are timed. It does not act on a
// burst that the limit allows over ten seconds.
func TestGuardWithin(t *testing.T) {
	const most, much = 0.02, 0.021
	// run returns the seconds from the start of the overload until the guard acts; 0: it does not.
	run := func(begins, lasts int, share, bpf float64, looked int) int {
		g := &Guard{Most: most, Steps: 1}
		b := &BPFTime{}
		now, used := time.Unix(1_700_000_000, 0), time.Duration(0)
		for second := range 200 {
			now = now.Add(time.Second)
			busy := second >= begins && second < begins+lasts
			if busy {
				used += time.Duration(share * float64(time.Second))
			}
			if second%int(bpfEvery.Seconds()) == looked {
				if busy {
					b.tell(now, bpf)
				} else {
					b.tell(now, 0)
				}
			}
			spent, _ := b.Total(now)
			if g.Tell(now, used+spent) > 0 {
				return second - begins + 1
			}
		}
		return 0
	}
	for _, begins := range []int{0, 1, 60} {
		for looked := range int(bpfEvery.Seconds()) {
			for name, got := range map[string]int{"processes": run(begins, 200, much, 0, looked), "BPF": run(begins, 200, 0, much, looked), "both": run(begins, 200, much/2, much/2, looked)} {
				if got == 0 || got >= 20 {
					t.Errorf("an overload of %s from %d s on, with programs timed %d s after it, is answered after %d s", name, begins, looked, got)
				}
			}
		}
	}
	if got := run(60, 4, 2*most, 0, 0); got != 0 {
		t.Errorf("4 s of twice the limit are answered after %d s", got)
	}
}
