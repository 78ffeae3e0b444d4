// SPDX-License-Identifier: Apache-2.0

// Command run is make test: it installs what the tests need, runs the four
// rings, prints a table tool × kernel × way, and ends with the one line
// "N passed, N failed" (", N skipped" where some were). -only takes some of its
// steps, -quick a few minutes of them. FULL=1 takes every way on every kernel, writes
// a proof for each, and from the proofs what docs/COVERAGE.md says of our tools. THEIRS=1
// runs nothing but the tools of others, and writes what it says of them.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

var (
	only  = flag.String("only", "", "run these `steps` alone, separated by commas: "+strings.Join(stepNames(), " "))
	quick = flag.Bool("quick", false, "no guest, the packages that make no traffic, a few tools by their best way")
)

func main() {
	flag.Parse()
	for name := range strings.SplitSeq(*only, ",") {
		if name != "" && !slices.Contains(stepNames(), name) {
			fmt.Fprintf(os.Stderr, "test: no step %s; there are %s\n", name, strings.Join(stepNames(), " "))
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "seine-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
	s := &suite{ctx: ctx, dir: dir, start: time.Now()}
	s.run()
	if everyWay() || onlyTheirs() {
		s.must("coverage", time.Minute, func(context.Context) error { return s.coverage("docs/COVERAGE.md") })
	}
	os.RemoveAll(dir)
	s.results.overBudget()
	if *only == "" && !*quick {
		s.results.nowhere()
	}
	s.results.print(os.Stdout)
	if s.results.failed() > 0 {
		os.Exit(1)
	}
}

// coverage writes docs/COVERAGE.md. What this run did not see stays as it was.
func (s *suite) coverage(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	ours, theirs := parts(old)
	if onlyTheirs() {
		b.Write(ours)
		s.results.theirs(&b)
		return os.WriteFile(path, b.Bytes(), 0o644)
	}
	missing, err := oursCoverage(&b, ".")
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		fmt.Printf("%s stays as it was: make test-full only=%s is missing, or failed\n", path, strings.Join(missing, ","))
		return nil
	}
	b.Write(theirs)
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// suite is one run.
type suite struct {
	ctx     context.Context
	dir     string
	start   time.Time
	results results
}

// onlyTheirs reports whether only the tools of others are to run.
func onlyTheirs() bool { return os.Getenv("THEIRS") != "" }

// everyWay reports whether every way is tested on every kernel.
func everyWay() bool { return os.Getenv("FULL") != "" }

// asked reports whether a step is to run.
func asked(step string) bool {
	return *only == "" && !*quick || slices.Contains(strings.Split(*only, ","), step)
}

// must runs a step that either succeeds or fails as a whole.
func (s *suite) must(name string, limit time.Duration, do func(context.Context) error) bool {
	err := s.step(name, limit, do)
	if err != nil {
		fmt.Println(err)
	}
	s.results.add("make test", name, err == nil)
	return err == nil
}

// step runs a part of the run within its time limit, and prints how long it took.
// A part that comes near its limit on a quiet machine exceeds it on a busy one.
func (s *suite) step(name string, limit time.Duration, do func(context.Context) error) error {
	fmt.Printf("\n== %4.0fs  %s\n", time.Since(s.start).Seconds(), name)
	return s.timed(s.ctx, name, limit, do)
}

// timed is a step that does not print its beginning.
func (s *suite) timed(ctx context.Context, name string, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begun := time.Now()
	err := do(ctx)
	t := timing{name, time.Since(begun), limit}
	s.results.time(t)
	fmt.Printf("\n== %s\n", t)
	if t.near() {
		fmt.Printf("warning: %s took more than %d %% of its limit\n", name, nearly)
	}
	return err
}

// timing is how long a step took.
type timing struct {
	name        string
	took, limit time.Duration
}

// nearly is the share of its limit, in percent, that a step may take.
const nearly = 60

func (t timing) near() bool { return t.took*100 > t.limit*nearly }

func (t timing) String() string {
	return fmt.Sprintf("%s: %.0f s of %.0f s", t.name, t.took.Seconds(), t.limit.Seconds())
}
