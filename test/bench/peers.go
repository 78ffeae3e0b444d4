// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// A suite is another project's tools, as Debian has them, and our goals beside
// them.
type suite struct {
	name, pkg    string
	command      func(c *contest) []string
	start, event *goal
}

var suites = []suite{
	{name: peerName, pkg: "libbpf-tools", event: &goal{Bound: 0.5, Ratio: true}, command: func(c *contest) []string {
		file := sbin + c.tool + "-libbpf" // Debian's name for it since version 13
		if isMissing(file) {
			file = sbin + c.tool
		}
		return slices.Concat([]string{file}, c.flags, c.theirs)
	}},
	{name: otherName, pkg: "bpftrace", start: &goal{Bound: 0.2, Ratio: true}, command: func(c *contest) []string {
		if c.script != "" {
			return []string{"/usr/bin/bpftrace", "-e", c.script}
		}
		return []string{"/usr/bin/bpftrace", sbin + c.tool + ".bt"}
	}},
	{name: slowest, pkg: "bpfcc-tools", start: &goal{Bound: 0.1, Ratio: true}, command: func(c *contest) []string {
		return slices.Concat([]string{sbin + c.tool + "-bpfcc"}, c.flags, c.theirs)
	}},
}

const sbin = "/usr/sbin/"

// slowest is the suite that compiles for a minute on an emulated machine.
const slowest = "BCC"

// A contest is a tool that others have too, with the load for it.
type contest struct {
	tool   string
	flags  []string // which all of them know
	theirs []string // and those for theirs alone
	script string   // and bpftrace's, where it ships none
	event  string
	// load makes events and returns their number. If it cannot know, runs returns it
	// from the programs' runs.
	load func(*options, *lab.World) (events float64, err error)
	runs float64
	rows float64 // that they show of an event, if that can be counted
	// least does at the same tracepoints what no such tool can leave out.
	least []*empty
}

var contests = []contest{
	{tool: "tcplife", event: "session", load: theSessions, rows: 2},
	{tool: "tcpconnect", event: "session", load: theSessions, rows: 1},
	{tool: "tcpaccept", event: "session", load: theSessions, rows: 1},
	{tool: "tcpstates", event: "session", load: theSessions, rows: 10},
	{tool: "tcptop", theirs: []string{"-C"}, event: "request", load: theRequests},
	{tool: "tcpretrans", event: "segment sent again", load: theLosses},
	{tool: "tcpdrop", event: "segment lost", load: theLosses},
	{tool: "gethostlatency", event: "lookup", load: theLookups, rows: 1},
	{tool: "softirqs", event: "interrupt", load: uncounted(theSessions), runs: 2, least: []*empty{
		{tracepoint: "softirq_entry", clock: true, arrays: 1}, {tracepoint: "softirq_exit", clock: true, arrays: 2}}},
	{tool: "hardirqs", event: "interrupt", load: theReads, runs: 2, least: []*empty{
		{tracepoint: "irq_handler_entry", clock: true, arrays: 1}, {tracepoint: "irq_handler_exit", clock: true, arrays: 1, hashes: 1}}},
	{tool: "profile", flags: []string{"-F", "997"}, event: "sample", load: uncounted(theSessions), runs: 1},
	{tool: "funccount", flags: []string{"tcp_sendmsg"}, script: "kprobe:tcp_sendmsg { @ = count(); }", event: "request", load: theRequests},
}

func theSessions(o *options, w *lab.World) (float64, error) {
	return float64(o.sessions), o.sessionsIn(w)
}

func theRequests(o *options, w *lab.World) (float64, error) {
	return float64(o.requests), requestLoad.run(o, w)
}

// theLosses are sessions over a link that loses packets. Retransmissions stand for
// losses: lost ACKs, and tails that a probe revealed, are not counted.
func theLosses(o *options, w *lab.World) (float64, error) {
	if err := w.Lose("host", "lo", 0.05); err != nil {
		return 0, err
	}
	before, err := w.Counters("host")
	if err != nil {
		return 0, err
	}
	t, err := lab.StartTCP(w, lab.Sessions{Count: o.sessions / 4, Send: 1000, Recv: 777, Parallel: 32, Brief: true})
	if err != nil {
		return 0, err
	}
	if _, err := t.Run(); err != nil {
		return 0, err
	}
	after, err := w.Counters("host")
	return float64(after["TcpRetransSegs"] - before["TcpRetransSegs"]), err
}

// theLookups are questions to the C library that a file answers.
func theLookups(o *options, _ *lab.World) (float64, error) {
	args := []string{"ahosts"}
	for range o.requests / 2 {
		args = append(args, "localhost")
	}
	return float64(len(args) - 1), exec.Command("getent", args...).Run()
}

// theReads make the disk interrupt.
func theReads(*options, *lab.World) (float64, error) {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
		return 0, err
	}
	return 0, exec.Command("sh", "-c", "cat /usr/bin/[a-g]* > /dev/null").Run()
}

func uncounted(load func(*options, *lab.World) (float64, error)) func(*options, *lab.World) (float64, error) {
	return func(o *options, w *lab.World) (float64, error) {
		_, err := load(o, w)
		return 0, err
	}
}

// A taken is the result of one rival in one round.
type taken struct{ start, memory, perEvent, share, events, rate, rows float64 }

// rivals are the programs of a contest: ours and those that are installed.
func (o *options) rivals(c *contest) (own *rival, theirs []*rival) {
	own = &rival{child: child{args: append([]string{o.seine, c.tool}, c.flags...)}, limit: time.Minute}
	for _, s := range suites {
		if args := s.command(c); !slices.ContainsFunc(args, isMissing) {
			theirs = append(theirs, &rival{suite: s, child: child{args: args}, limit: 5 * time.Minute})
		}
	}
	return own, theirs
}

// isMissing reports whether an argument is a file that does not exist.
func isMissing(arg string) bool {
	_, err := os.Stat(arg)
	return filepath.IsAbs(arg) && err != nil
}

// loaded makes the load of a contest, and returns its CPU time, its events, and
// its events a second.
func (o *options) loaded(c *contest) (cpu, events, rate float64, err error) {
	cpu, err = o.cpuOf(&load{run: func(o *options, w *lab.World) (err error) {
		began := time.Now()
		events, err = c.load(o, w)
		rate = events / time.Since(began).Seconds()
		return err
	}})
	return cpu, events, rate, err
}

// take is one round of one rival.
func (o *options) take(c *contest, r *rival) (t taken, err error) {
	err = beside(r, func() error {
		t.start = r.took.Seconds() * 1000
		var cpu, events, rate float64
		m, err := during(r, func() (err error) { cpu, events, rate, err = o.loaded(c); return err })
		if err != nil {
			return err
		}
		sum := total(m)
		if o.each {
			explain(r.args, m, max(1, events))
		}
		if events == 0 {
			events = sum.runs / c.runs
		}
		if sum.runs == 0 || events == 0 {
			return errors.New("nothing of it runs under this load")
		}
		time.Sleep(2 * time.Second) // they read their buffers now and then
		if t.memory, err = r.peak(); err != nil {
			return err
		}
		t.memory /= mega
		t.perEvent, t.share, t.rate = sum.ns/events, 100*sum.ns/cpu, rate
		t.events = events
		return nil
	})
	t.rows = float64(r.rows) / max(1, t.events)
	if err == nil && r.rows == 0 && c.runs == 0 { // the others show all at their end
		err = errors.New("it attaches, and shows nothing of the load")
	}
	return t, err
}

// peers measures our tools beside those of others.
func peers(o *options) ([]figure, error) {
	// Run each once, so that the files that they load are in memory before the
	// first is measured. A program that is not installed is not an error.
	exec.Command(o.seine, "list").Run()
	exec.Command("python3", "-c", "import bcc").Run()
	exec.Command(otherName, "--version").Run()
	out, err := o.sizes()
	if err != nil {
		return nil, err
	}
	for i := range contests {
		c := &contests[i]
		if !o.asked(c.tool) {
			continue
		}
		figures := o.contest(c)
		for _, f := range figures { // it takes long: what is known is said
			fmt.Fprintf(os.Stderr, "| %s |\n", strings.Join(f.cells(), " | "))
		}
		out = append(out, figures...)
	}
	return out, nil
}

// contest takes the rounds of one tool.
func (o *options) contest(c *contest) []figure {
	own, theirs := o.rivals(c)
	results := map[*rival][]taken{}
	failed := map[*rival]error{}
	var alone, least []float64
	for round := range o.rounds {
		if c.rows > 0 {
			_, _, rate, err := o.loaded(c)
			if err != nil {
				return []figure{{What: c.tool, Note: "not measured: " + oneLine(err)}}
			}
			alone = append(alone, rate)
		}
		for _, r := range append([]*rival{own}, theirs...) {
			if failed[r] != nil || r.suite.name == slowest && round >= o.slow {
				continue
			}
			fmt.Fprintf(os.Stderr, "bench: %s\n", strings.Join(r.args, " "))
			t, err := o.take(c, r)
			if err != nil {
				failed[r] = err
				fmt.Fprintf(os.Stderr, "bench: %v\n", err)
				continue
			}
			fmt.Fprintf(os.Stderr, "bench: %+v\n", t)
			results[r] = append(results[r], t)
		}
		if c.least == nil {
			continue
		}
		err := o.onHooks(c.least, func() error { _, _, _, err := o.loaded(c); return err }, func(sum cost) {
			least = append(least, sum.ns/(sum.runs/c.runs))
		})
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		}
	}
	if err := failed[own]; err != nil {
		return []figure{{What: c.tool, Note: "not measured: " + oneLine(err)}}
	}
	return c.figures(own, theirs, results, failed, alone, least)
}

// figures compares the results.
func (c *contest) figures(own *rival, theirs []*rival, results map[*rival][]taken, failed map[*rival]error, alone, least []float64) (out []figure) {
	column := func(r *rival, f func(taken) float64) (v []float64) {
		for _, t := range results[r] {
			v = append(v, f(t))
		}
		return v
	}
	theirs = slices.DeleteFunc(theirs, func(r *rival) bool { return failed[r] == nil && len(results[r]) == 0 }) // -slow 0
	single := !slices.ContainsFunc(theirs, func(r *rival) bool { return failed[r] == nil })
	measure := func(what, unit string, f func(taken) float64, goalOf func(suite) *goal) {
		if single { // then ours alone
			out = append(out, figure{What: c.tool + ": " + what, Unit: unit, Own: column(own, f)})
		}
		for _, r := range theirs {
			if failed[r] != nil {
				continue
			}
			out = append(out, figure{What: c.tool + ": " + what, Unit: unit, Own: column(own, f), Beside: r.suite.name, Other: column(r, f), Goal: goalOf(r.suite)})
		}
	}
	none := func(suite) *goal { return nil }
	measure("start-up", "ms", func(t taken) float64 { return t.start }, func(s suite) *goal { return s.start })
	measure("peak resident memory", "MB", func(t taken) float64 { return t.memory }, none)
	measure("BPF per "+c.event, "ns", func(t taken) float64 { return t.perEvent }, func(s suite) *goal { return s.event })
	if c.least != nil {
		out = append(out, figure{What: c.tool + ": the same per " + c.event, Unit: "ns", Own: column(own, func(t taken) float64 { return t.perEvent }), Beside: "clock, look-ups", Other: least})
	}
	measure("BPF, of the load's CPU", "%", func(t taken) float64 { return t.share }, none)
	if c.rows > 0 {
		out = append(out, figure{What: c.tool + ": " + c.event + "s while it runs", Unit: "/s", Own: column(own, func(t taken) float64 { return t.rate }), Beside: "without", Other: alone})
		measure(c.event+"s while it runs", "/s", func(t taken) float64 { return t.rate }, func(suite) *goal { return &goal{Bound: 1, Least: true, Ratio: true} })
		measure(fmt.Sprintf("rows per %s, of %.0f", c.event, c.rows), "", func(t taken) float64 { return t.rows }, none)
	}
	for _, r := range theirs {
		if err := failed[r]; err != nil {
			out = append(out, figure{What: c.tool, Beside: r.suite.name, Note: "not measured: " + oneLine(err)})
		}
	}
	return out
}

// sizes is the disk space of an installed suite.
func (o *options) sizes() (out []figure, err error) {
	text, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(o.seine)
	if err != nil {
		return nil, err
	}
	all := parseStatus(text)
	for _, s := range suites {
		if all[s.pkg] == nil {
			continue
		}
		f := figure{What: "installed, with what it needs", Unit: "MB", Own: []float64{float64(st.Size()) / mega}, Beside: s.name + " " + all[s.pkg].version, Other: []float64{all.size(s.pkg) / mega}}
		if s.name == slowest {
			n, err := headersSize()
			if err != nil {
				return nil, err
			}
			f.Note = fmt.Sprintf("(and %s MB of headers for each kernel)", number(n/mega))
		}
		out = append(out, f)
	}
	return out, nil
}

// headersSize is the bytes of the running kernel's headers.
func headersSize() (sum float64, err error) {
	var u unix.Utsname
	unix.Uname(&u)
	build := "/lib/modules/" + unix.ByteSliceToString(u.Release[:])
	for _, name := range []string{"build", "source"} {
		dir, err := filepath.EvalSymlinks(filepath.Join(build, name))
		if err != nil {
			return 0, err
		}
		err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && !d.IsDir() {
				sum += float64(info.Size())
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}
