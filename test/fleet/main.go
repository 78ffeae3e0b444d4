// SPDX-License-Identifier: Apache-2.0

// Command fleet runs the agents of many hosts with real engines: Prometheus, VictoriaMetrics and
// the OpenTelemetry Collector. It builds the engines from their Go modules and uses the files of
// deploy/. It causes a fault on one host, kills programs, and reports what the engines see. Run it
// as root from the project's root, by make fleet.
//
// A host is a network namespace with its own traffic, its own host name, and an agent that observes
// this namespace only. Each agent listens on its own loopback address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/test/duckdb"
)

// Bounds of the run.
const (
	buildTime = 40 * time.Minute // the first time
	runTime   = 20 * time.Minute
)

var (
	hostCount = flag.Int("hosts", 20, "how many agents; 15 at least")
	program   = flag.String("seine", "./seine", "the `program` under test")
	output    = flag.String("o", "", "write a report into this `file`")
	buildOnly = flag.Bool("build", false, "only build the engines")
	quick     = flag.Bool("quick", false, "leave out the Collector that is down or slow, and the alert about a killed agent: four minutes")
	keep      = flag.Bool("keep", false, "keep the directory with logs and data")
)

func main() {
	lab.Main()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if *hostCount < 15 || *hostCount > 250 {
		return fmt.Errorf("-hosts %d: want 15 to 250", *hostCount)
	}
	f := &fleet{began: time.Now()}
	building, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	if err := f.install(building); err != nil || *buildOnly {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, runTime)
	defer cancel()
	defer f.close()
	err := f.prove(ctx)
	if err == nil && len(f.failed) > 0 {
		err = fmt.Errorf("%d checks failed:\n  %s", len(f.failed), strings.Join(f.failed, "\n  "))
	}
	if err != nil {
		*keep = true
		fmt.Println("logs and data are kept in", f.dir)
		return err
	}
	f.say("%d checks passed", f.passed)
	if *output != "" {
		return os.WriteFile(*output, []byte(f.report()), 0o644)
	}
	return nil
}

// A fleet is a run: its programs, hosts and results.
type fleet struct {
	began      time.Time
	dir        string // folder of logs and data
	engines    map[string]string
	prometheus *process
	victoria   *process
	collector  *process
	prom, vm   server
	empty      float64 // memory of an empty Prometheus, in bytes
	hosts      []*member
	lines      []string // printed lines
	passed     int
	failed     []string
	figures    []figure
}

// A figure is a measured value for the proof and the report.
type figure struct {
	name, text string
	value      float64
}

// say prints a line with the time since the start.
func (f *fleet) say(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs  %s", time.Since(f.began).Seconds(), fmt.Sprintf(format, args...))
	fmt.Println(line)
	f.lines = append(f.lines, line)
}

// check prints whether a condition is true. If it is false, the run goes on and fails at the end.
func (f *fleet) check(ok bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !ok {
		f.failed = append(f.failed, text)
		f.say("FAILED  %s", text)
		return
	}
	f.passed++
	f.say("ok      %s", text)
}

// holds is check for a condition that is true if err is nil.
func (f *fleet) holds(err error, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if err != nil {
		text += ": " + strings.ReplaceAll(err.Error(), "\n", ": ")
	}
	f.check(err == nil, "%s", text)
}

// figure stores a number and prints it as a test attribute, which test/proof/write reads.
func (f *fleet) figure(name string, value float64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.figures = append(f.figures, figure{name, text, value})
	fmt.Printf("=== ATTR  fleet %s %s\n", name, text)
}

// value returns a figure by its name.
func (f *fleet) value(name string) float64 {
	for _, x := range f.figures {
		if x.name == name {
			return x.value
		}
	}
	panic("fleet: no figure " + name)
}

// install builds the engines and DuckDB, unless the cache has them.
func (f *fleet) install(ctx context.Context) error {
	f.engines = map[string]string{}
	for _, e := range engines {
		path, err := e.install(ctx, f.say)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		f.engines[e.name] = path
	}
	return duckdb.Install(ctx)
}

// close ends all processes and removes the data.
func (f *fleet) close() {
	for _, m := range f.hosts {
		m.close()
	}
	for _, p := range []*process{f.collector, f.prometheus, f.victoria} {
		p.stop()
	}
	if !*keep {
		os.RemoveAll(f.dir)
	}
}

// await calls so until it returns nil. After patience it returns the last error.
func await(ctx context.Context, patience time.Duration, so func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not within %v", patience), err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// path returns the path of a file in the directory of the run.
func (f *fleet) path(name ...string) string {
	return filepath.Join(append([]string{f.dir}, name...)...)
}
