// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"testing"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

// varies are tools whose demo does not give the same number of rows each time.
var varies = map[string]string{
	"tcpretrans": "how often TCP sends again depends on its timers",
	"tcpsnoop":   "how many ACKs there are depends on how busy the machine is",
	"tcpwin":     "how many ACKs there are depends on how busy the machine is",
}

// TestAccounts runs each tool that shows events over its demo: first with room for
// all of them, then several times with a ring of one page and a reader that stands
// still, and then with maps of a few entries. Rows and losses must add up to the
// events. The reader is not woken again and again while the ring is full.
func TestAccounts(t *testing.T) {
	if lab.Emulated() {
		t.Skip("what is counted does not depend on the kernel, and this takes minutes where it is emulated")
	}
	for _, tl := range tools.All {
		if tl.Kind(tl.NewConfig()) != tool.Events || varies[tl.Name] != "" {
			continue
		}
		t.Run(tl.Name, func(t *testing.T) {
			if tools.Demos[tl.Name].Run == nil {
				t.Skip(tools.Demos[tl.Name].Why)
			}
			if err := lab.Undisturbed(func() ([]error, error) { return account(t, tl), nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// account returns the differences in the counts of a tool.
func account(t *testing.T, tl *tool.Tool) (differ []error) {
	t.Helper()
	wrong := func(format string, args ...any) { differ = append(differ, fmt.Errorf(format, args...)) }
	all, x := demo(t, tl, false, 1, "--buffer=16M")
	if lost := missing(x.Report); lost != 0 || len(all) == 0 {
		wrong("%d shown and %d lost with a ring of 16 MiB", len(all), lost)
		return differ
	}
	times := min(50/len(all)+1, 10) // a page holds about 20 events
	if tl.Name == "gethostlatency" || tl.Name == "dns" || tl.Name == "sofdsnoop" {
		times = 1 // the servers of their demos run until the world ends
	}
	some, x := demo(t, tl, true, times, "--buffer=4k")
	lost := int(missing(x.Report))
	if len(some)+lost != len(all)*times {
		wrong("a ring of a page: %d shown and %d lost of %d times %d", len(some), lost, times, len(all))
	}
	if x.Report.Wakes > 4 {
		wrong("a reader that stands still was woken %d times for %d events", x.Report.Wakes, len(some))
	}
	p, err := tool.Prepare(tl, tl.NewConfig(), tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	some, x = demo(t, tl, false, 1, "--buffer=16M", fmt.Sprint("--memory=", p.Least()+4096)) // and a filter
	lost = int(missing(x.Report))
	// A refused entry may be a part of a row, such as its name.
	if len(some) > len(all) || len(some)+lost < len(all) {
		wrong("maps of a few entries: %d shown and %d lost of %d", len(some), lost, len(all))
	}
	return differ
}

// missing is the number of rows that a run has lost.
func missing(r *tool.Report) uint64 {
	return r.Losses[tool.LossRing] + r.Losses[tool.LossMap] + r.Losses[tool.LossSpan] + r.Undecodable + r.Missed
}

// demo is the rows of a tool over its demo, which runs n times.
func demo(t *testing.T, tl *tool.Tool, stalled bool, times int, flags ...string) (rows []*row.Row, x *trial.Trial) {
	t.Helper()
	x, err := trial.RunCase(t.Context(), tl, trial.Case{Hosts: tools.Demos[tl.Name].Hosts, Run: func(x *trial.Trial) (err error) {
		x.Stalled = stalled
		rows, err = x.Rows(func() error {
			for range times {
				if err := tools.Demos[tl.Name].Run(x.World); err != nil {
					return err
				}
			}
			return x.World.Quiet()
		}, flags...)
		return err
	}}, "")
	if errors.Is(err, probe.ErrNotSupported) || errors.Is(err, trial.ErrSkip) || errors.Is(err, lab.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows, x
}
