// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/enrich"
	remote "seine/internal/names"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/words"
)

// summary prints on stderr how many rows there were and what was lost.
func (r *run) summary(rep *tool.Report, p *row.Pipe, n *enrich.Names) {
	lost := rep.Lost()
	refused := p.Refused()
	r.say("%s, %s lost, %.1fs", words.Count(p.Rows(), "row", "rows"), words.Thousands(lost+refused), rep.Duration.Seconds())
	for _, w := range rep.Warnings() {
		r.say("%s", w)
	}
	if p.Held() > 0 {
		r.say("%s not shown because of --rate %d, the limit for a second", words.Count(p.Held(), "row was", "rows were"), r.flags.rate)
	}
	if refused > 0 {
		r.say("%s refused by --by, because there were too many groups: use fewer columns or a filter", words.Count(refused, "row was", "rows were"))
	}
	for _, h := range n.Hints() {
		r.say("%s", h)
	}
	if warning := namesLost(r.remote); warning != "" {
		r.say("%s", warning)
	}
	if r.flags.stats {
		r.cost(rep)
	}
}

// namesLost says how many names --names has missed; empty: none.
func namesLost(t *remote.Table) string {
	if t == nil || t.Lost() == 0 {
		return ""
	}
	return words.Count(t.Lost(), "DNS or TLS message was", "DNS or TLS messages were") + " lost: addresses may lack names"
}

// cost prints the cost of the run, for --stats.
func (r *run) cost(rep *tool.Report) {
	w := r.err
	var runs uint64
	var spent time.Duration
	for _, p := range rep.Programs {
		runs += p.Runs
		spent += p.Time
	}
	fmt.Fprintf(w, "seine: %s from the ring; its reader was woken %s\n", words.Count(rep.Events, "event", "events"), words.Count(rep.Wakes, "time", "times"))
	if runs > 0 {
		fmt.Fprintf(w, "seine: BPF ran %s, %.0f ns each, %.3f %% of one CPU\n", words.Count(runs, "time", "times"),
			float64(spent)/float64(runs), 100*float64(spent)/float64(rep.Duration))
	}
	costOfParts(w, rep.Programs, rep.MapUse)
	fmt.Fprintf(w, "seine: maps take %.1f of %.1f MiB (--memory), the ring %.1f MiB (--buffer)\n",
		float64(rep.Memory)/mib, float64(rep.Budget)/mib, float64(rep.Ring)/mib)
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
		fmt.Fprintf(w, "seine: own CPU time %.3fs, resident memory at most %.1f MiB\n", cpu.Seconds(), float64(u.Maxrss)/1024)
	}
}

const mib = 1 << 20

// costOfParts says what each program has cost, the dearest first, and how full each map is.
func costOfParts(w io.Writer, programs []tool.ProgramStats, uses []tool.MapUse) {
	slices.SortFunc(programs, func(a, b tool.ProgramStats) int { return int(b.Time - a.Time) })
	for _, p := range programs {
		fmt.Fprintf(w, "seine:   %-32s %12s runs %8.0f ns\n", p.Name, words.Thousands(p.Runs), float64(p.Time)/float64(max(p.Runs, 1)))
	}
	slices.SortFunc(uses, func(a, b tool.MapUse) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range uses {
		fmt.Fprintf(w, "seine:   map %-28s %12s of %s entries\n", m.Name, words.Thousands(uint64(m.Used)), words.Thousands(uint64(m.Capacity)))
	}
}

// enableStats makes the kernel measure BPF run time until stop is called.
func enableStats() (stop func(), err error) {
	c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, err
	}
	return func() { c.Close() }, nil
}

// explain writes the way of each point, and why a better one was not possible.
func explain(w io.Writer, choices []probe.Choice, took time.Duration, logs bool) {
	for _, c := range choices {
		switch {
		case c.Way == "":
			fmt.Fprintf(w, "seine: point %s: none; not seen: %s\n", c.Point, c.Misses)
		case c.Misses != "":
			fmt.Fprintf(w, "seine: point %s: %s (%s); not seen: %s\n", c.Point, c.Way, strings.Join(c.Programs, ", "), c.Misses)
		default:
			fmt.Fprintf(w, "seine: point %s: %s (%s)\n", c.Point, c.Way, strings.Join(c.Programs, ", "))
		}
		for _, r := range c.Refused {
			fmt.Fprintf(w, "seine:   not %s: %s\n", r.Way, probe.Reason(r.Err))
		}
		if logs {
			verifierLogs(w, c)
		}
	}
	fmt.Fprintf(w, "seine: attached in %s\n", took.Round(time.Millisecond))
}

// verifierLogs writes the full verifier logs of the ways that the verifier
// refused.
func verifierLogs(w io.Writer, c probe.Choice) {
	for _, r := range c.Refused {
		var ve *ebpf.VerifierError
		if errors.As(r.Err, &ve) {
			fmt.Fprintf(w, "seine: verifier on %s, way %s:\n%+v\n", c.Point, r.Way, ve)
		}
	}
}
