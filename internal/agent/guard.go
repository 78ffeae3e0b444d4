// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// A Guard keeps the agent within its limit of processor time. If the agent used more over ten
// seconds, the guard tells it to do one step less, and again a minute later. If the agent has used
// less than half of the limit for a minute, the guard tells it to do one step more. The start does
// not count.
type Guard struct {
	Most  float64 // share of one processor: 0.02 is 2 %
	Steps int     // number of steps that the agent can do less

	level   int       // number of steps that are taken
	began   time.Time // time of the first Tell
	changed time.Time
	below   time.Time // start of the time below half of the limit; zero: not below
	samples []sample
}

type sample struct {
	at   time.Time
	used time.Duration
}

// Windows of a Guard. Tell is called every second. The guard notices an overload from the start
// after guardBegins and guardWindow. It notices an overload of BPF programs guardWindow after they
// were timed, which happens every bpfEvery. Both take less than 20 s.
const (
	guardBegins = 5 * time.Second
	guardWindow = 10 * time.Second
	guardPause  = time.Minute // between two changes
)

// Tell takes the total processor time so far. It returns 1 to do one step less, -1 to do one more,
// else 0.
func (g *Guard) Tell(now time.Time, used time.Duration) int {
	if g.began.IsZero() {
		g.began = now
	}
	if now.Sub(g.began) < guardBegins {
		return 0
	}
	g.samples = append(g.samples, sample{now, used})
	for len(g.samples) > 1 && now.Sub(g.samples[1].at) >= guardWindow {
		g.samples = g.samples[1:]
	}
	first := g.samples[0]
	over := now.Sub(first.at)
	if g.Most == 0 || over < guardWindow {
		return 0
	}
	share := (used - first.used).Seconds() / over.Seconds()
	if share >= g.Most/2 {
		g.below = time.Time{}
	} else if g.below.IsZero() {
		g.below = now
	}
	if !g.changed.IsZero() && now.Sub(g.changed) < guardPause {
		return 0
	}
	switch {
	case share > g.Most && g.level < g.Steps:
		return g.change(now, 1)
	case g.level > 0 && !g.below.IsZero() && now.Sub(g.below) >= guardPause:
		return g.change(now, -1)
	}
	return 0
}

func (g *Guard) change(now time.Time, by int) int {
	g.level += by
	g.changed, g.below, g.samples = now, time.Time{}, nil // old samples are not of the new level
	return by
}

// Level is the number of steps that are taken.
func (g *Guard) Level() int { return g.level }

// Used is the processor time of this process and of another one.
func Used(pid int) time.Duration { return ownTime() + processorTime(pid) }
