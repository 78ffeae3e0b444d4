// SPDX-License-Identifier: Apache-2.0

// Package live is ring 3: every tool over its known workloads, by every way
// that the running kernel offers. The same binary runs in the guests of ring 4.
package live

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/test/cases"
	"seine/test/flaky"
	"seine/test/programs"
	"seine/tools"
)

// then are more commands to run in the same boot.
var then []string

func init() {
	flag.BoolVar(&trial.Together, "together", false, "no process of its own for the first case of each tool, where the machine is emulated")
	flag.Func("then", "a `command` to run when these tests are over, split at blanks; may be given several times", func(command string) error {
		then = append(then, command)
		return nil
	})
}

var (
	best   = flag.Bool("best", false, "only the best way of each tool, not every one")
	first  = flag.Int("first", math.MaxInt, "so many cases of each tool by its best way")
	spared = flag.String("spared", "^$", "not the cases whose names match this `expression`: those after them take their place")
	also   = flag.String("also", "^$", "and those after that whose names match this `expression`")
	others = flag.Int("others", math.MaxInt, "so many cases of each tool by its other ways")
	forced = flag.String("ways", "", "of the other ways only those whose names match this `expression`")
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("SEINE_TEST_OBJECTS"); folder != "" {
		object.Use(os.DirFS(folder)) // make mutants sets it; children inherit it
	}
	lab.Main()
	if os.Getenv(asSeine) != "" {
		os.Unsetenv(asSeine)
		os.Exit(cli.Main(append([]string{"seine"}, os.Args[1:]...), os.Stdout, os.Stderr))
	}
	cli.TrialMain()
	lab.Programs = programs.Path
	if os.Getenv(askPID) != "" {
		fmt.Print(tool.OwnPID())
		return
	}
	flag.Parse()
	if os.Geteuid() != 0 {
		println("live tests need root")
		os.Exit(1)
	}
	object.Keep()
	os.Exit(max(m.Run(), more()))
}

// more runs these commands.
func more() (code int) {
	for _, command := range then {
		line := strings.Fields(command)
		c := exec.Command(line[0], line[1:]...)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			fmt.Fprintln(os.Stderr, line[0], err)
			code = 1
		}
	}
	return code
}

// TestLive has a subtest for each tool, way and case.
func TestLive(t *testing.T) {
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			for _, way := range ways(t, tl) {
				name := way
				if way == "" {
					name = "best"
				}
				t.Run(name, func(t *testing.T) {
					list := casesBy(tl, way)
					if len(list) == 0 {
						t.Error("no case is left")
					}
					for _, c := range list {
						t.Run(c.Name, func(t *testing.T) { one(t, tl, c, way) })
					}
				})
			}
		})
	}
}

// casesBy is the cases that run by a way: all but those of -spared by the best way, or those of
// -first and -also, and by other ways those of -others. Slow cases do not depend on the way, and
// are left out on an emulated machine.
func casesBy(tl *tool.Tool, way string) []trial.Case {
	all := slices.DeleteFunc(slices.Clone(cases.All[tl.Name]), func(c trial.Case) bool {
		return c.Slow && (way != "" || lab.Emulated()) || match(*spared, tl.Name+"/"+c.Name)
	})
	if way == "" {
		n := min(*first, len(all))
		return slices.Concat(all[:n], slices.DeleteFunc(slices.Clone(all[n:]), func(c trial.Case) bool { return !match(*also, tl.Name+"/"+c.Name) }))
	}
	return all[:min(*others, len(all))]
}

// match reports whether a name matches the expression of a flag.
func match(expression, name string) bool {
	return regexp.MustCompile(expression).MatchString(name)
}

func one(t *testing.T, tl *tool.Tool, c trial.Case, way string) { within(t, 4*time.Minute, tl, c, way) }

func within(t *testing.T, limit time.Duration, tl *tool.Tool, c trial.Case, way string) {
	until(t, func() (*trial.Trial, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return trial.RunCase(ctx, tl, c, way)
	})
}

// until runs a case, again if that is allowed, and returns the result.
func until(t *testing.T, try func() (*trial.Trial, error)) {
	t.Helper()
	x, err := try()
	for range tries() - 1 {
		if !mayRetry(t.Name(), err) && !unseen(err, missed(x)) {
			break
		}
		t.Attr("flaky", strings.ReplaceAll(withLosses(err, x), "\n", "; "))
		x, err = try()
	}
	switch {
	case err == nil:
	case errors.Is(err, trial.ErrSkip):
		t.Skip(err)
	case explained(err, missed(x)):
		t.Skipf("this kernel skipped %d runs of a program, which the tool counts as lost: %v", missed(x), err)
	default:
		t.Error(withLosses(err, x))
	}
}

// missed is the number of program runs that the kernel skipped in a trial.
func missed(x *trial.Trial) uint64 {
	if x == nil || x.Report == nil {
		return 0
	}
	return x.Report.Missed
}

// withLosses is an error with what the trial lost, which may explain it.
func withLosses(err error, x *trial.Trial) string {
	if x == nil || x.Report == nil {
		return err.Error()
	}
	return fmt.Sprintf("%v (losses %v, %d runs skipped by the kernel)", err, x.Report.Losses, missed(x))
}

// explained reports whether skipped runs explain a failure: only rows are missing,
// and not more than were skipped. Kernels that preempt tasks inside of tracepoints
// skip a program which another task of that processor is in the middle of, and
// count how often they do.
func explained(err error, missed uint64) bool {
	n, late, only := trial.Lacks(err)
	return only && !late && missed > 0 && uint64(n) <= missed
}

// unseen reports whether a case proves nothing: something is wrong, and the kernel
// reports that it skipped program runs. Then sums and times may be wrong, and rows may be
// missing.
func unseen(err error, missed uint64) bool {
	if err == nil || missed == 0 || errors.Is(err, trial.ErrSkip) {
		return false
	}
	_, late, only := trial.Lacks(err)
	return !only || late // explained judges rows that are missing
}

// tries is how often a case may run at most.
func tries() int {
	if lab.Emulated() {
		return 3
	}
	return 2
}

// mayRetry reports whether a test may run again: it is on the list for this
// kernel, and the only errors are missing rows or a timeout.
func mayRetry(name string, err error) bool {
	kernel := flaky.Native
	if lab.Emulated() {
		kernel = host.KernelVersion()
	}
	_, _, only := trial.Lacks(err)
	_, listed := flaky.Of(kernel, name)
	return only && listed
}

// ways is the best way, and each way that can be forced here and changes
// something. BTF decides what the kernel lacks; nothing is tried.
func ways(t *testing.T, tl *tool.Tool) []string {
	out := []string{""}
	if *best {
		return out
	}
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := object.Spec(tl.Name)
	if err != nil {
		t.Fatal(err)
	}
	points := tl.AllPoints(spec, tl.NewConfig())
	seen := []string{chosen(probe.Predict(k, spec, points, probe.Force{}))}
	for _, p := range points {
		for _, w := range p.WaysIn(spec) {
			c := probe.Predict(k, spec, points, probe.Force{All: w.Name})
			if len(probe.Missing(points, c)) > 0 || slices.Contains(seen, chosen(c)) || !match(*forced, w.Name) {
				continue
			}
			seen = append(seen, chosen(c))
			out = append(out, w.Name)
		}
	}
	return out
}

// chosen is choices as a string, for comparison.
func chosen(choices []probe.Choice) (s string) {
	for _, c := range choices {
		s += fmt.Sprintln(c.Point, c.Way, c.Programs)
	}
	return s
}
