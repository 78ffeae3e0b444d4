// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// seine itself runs bench: and test: probes, with --bench and --test. Without these flags they
// are ignored.

// A Mode is the purpose of a run.
type Mode uint8

// The modes.
const (
	ToTrace Mode = iota
	ToBench
	ToTest
)

// wanted says whether a target belongs to the mode of the run, and to the probes
// that its filter lets through.
func (p *Program) wanted(t *Target) bool {
	switch {
	case t.Kind == Begin || t.Kind == End:
		return true
	case p.opts.Filter != nil && !p.opts.Filter.MatchString(t.Probe):
		return false
	case p.opts.Mode == ToBench:
		return t.Kind == Bench
	case p.opts.Mode == ToTest:
		return t.Kind == Test
	}
	return t.Kind != Bench && t.Kind != Test
}

// unwanted says why a script has no probe that is wanted.
func (p *Program) unwanted() string {
	switch {
	case p.opts.Filter != nil:
		return "no probe of the script matches the filter " + p.opts.Filter.String()
	case p.opts.Mode == ToBench:
		return "the script has no bench probes"
	case p.opts.Mode == ToTest:
		return "the script has no test probes"
	}
	return "the script has only bench and test probes, which --bench and --test run"
}

func (x *expander) own(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	if len(parts) != 2 || parts[1] == "" {
		return nil, x.src.errorf(ap.pos, ap.end, "write it as %s:NAME", t.Kind)
	}
	t.Name, t.Func, t.Probe = parts[1], parts[1], t.Kind.String()+":"+parts[1]
	return []*Target{&t}, nil
}

// ownRuns runs the programs that the mode is for.
func (r *Run) ownRuns() error {
	if r.p.opts.Mode == ToBench {
		return r.bench()
	}
	failed := 0
	for _, it := range r.a.runs {
		var printed bytes.Buffer
		back := r.redirect(&printed)
		r.exit, r.Code, r.errors = false, 0, 0
		code, err := it.Run(&ebpf.RunOptions{})
		if err == nil {
			r.drain()
			err = r.out.Flush()
		}
		back()
		if err != nil {
			return fmt.Errorf("%s: %w", it.target.Probe, err)
		}
		passed := code == 0 && r.Code == 0 && r.errors == 0
		if r.rows() {
			r.emit("test", time.Now(), field{"test", it.target.Name}, field{"passed", passed})
		}
		if passed {
			r.say("ok     %s\n", it.target.Name)
			continue
		}
		failed++
		why := fmt.Sprintf("it returned %d", int32(code))
		switch {
		case r.Code != 0:
			why = fmt.Sprintf("exit(%d)", r.Code)
		case r.errors > 0:
			why = plural(r.errors, "error")
		}
		r.say("FAILED %s: %s\n%s", it.target.Name, why, printed.Bytes())
	}
	r.say("%d of %s passed\n", len(r.a.runs)-failed, plural(len(r.a.runs), "test"))
	if r.Code = 0; failed > 0 {
		r.Code = 1
	}
	return nil
}

// benchTurns is how often a program is run to measure it.
const benchTurns = 20_000

// bench prints how long one run of each program takes by the kernel's own count, less the time of
// an empty program.
func (r *Run) bench() error {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return fmt.Errorf("the kernel's count of time: %w", err)
	}
	defer stats.Close()
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return err
	}
	defer empty.Close()
	nothing, err := r.runTime(empty)
	if err != nil {
		return err
	}
	rows := [][2]string{{"BENCHMARK", "NANOSECONDS"}}
	for _, it := range r.a.runs {
		ns, err := r.runTime(it.Program)
		if err != nil {
			return fmt.Errorf("%s: %w", it.target.Probe, err)
		}
		rows = append(rows, [2]string{it.target.Name, fmt.Sprint(max(0, ns-nothing))})
		if r.rows() {
			r.emit("bench", time.Now(), field{"benchmark", it.target.Name}, field{"run_ns", max(0, ns-nothing)})
		}
	}
	var width [2]int
	for _, row := range rows {
		width[0], width[1] = max(width[0], len(row[0])), max(width[1], len(row[1]))
	}
	rule := "+" + strings.Repeat("-", width[0]+2) + "+" + strings.Repeat("-", width[1]+2) + "+\n"
	for i, row := range rows {
		if i < 2 {
			r.say("%s", rule)
		}
		r.say("| %-*s | %-*s |\n", width[0], row[0], width[1], row[1])
	}
	r.say("%s", rule)
	return nil
}

// say prints, where text is wanted.
func (r *Run) say(format string, args ...any) {
	if r.out != nil {
		fmt.Fprintf(r.out, format, args...)
	}
}

// redirect sends the output of the programs elsewhere until it is undone.
func (r *Run) redirect(w io.Writer) (back func()) {
	out, rows := r.out, r.p.opts.Rows
	r.out, r.p.opts.Rows = bufio.NewWriter(w), nil
	return func() { r.out, r.p.opts.Rows = out, rows }
}

// runTime is the nanoseconds of one run, on average.
func (r *Run) runTime(prog *ebpf.Program) (int64, error) {
	defer r.redirect(io.Discard)()
	for i := range benchTurns {
		if _, err := prog.Run(&ebpf.RunOptions{}); err != nil {
			return 0, err
		}
		if i%64 == 0 {
			r.drain()
		}
	}
	r.drain()
	r.exit = false
	st, err := prog.Stats()
	if err != nil || st.RunCount == 0 {
		return 0, errors.Join(err, errors.New("the kernel did not count the runs"))
	}
	return st.Runtime.Nanoseconds() / int64(st.RunCount), nil
}
