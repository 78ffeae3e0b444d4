// SPDX-License-Identifier: Apache-2.0

// Command run is make test: it installs what the tests need, runs the four
// rings, prints a table tool × kernel × way, and ends with the one line
// "N passed, N failed" (", N skipped" where some were). FULL=1 takes every way
// on every kernel; COVERAGE names a file to write docs/COVERAGE.md's text to, and
// runs the tools of others too. With THEIRS=1 it runs nothing but those, and with
// OURS=1 none of them; the file keeps what it says of the rest.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"seine/test/programs"
)

// guest is a kernel of ring 4. Every way is tried on two of them; the rest makes
// do with the best one, unless FULL is set.
type guest struct {
	name  string
	every bool
}

// lanes are guests that run one after the other. Two lanes run side by side:
// an emulated machine spends half its time waiting.
var lanes = [][]guest{{{"5.10", true}, {"new", false}}, {{"6.12", true}, {"6.1", false}}}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "seine-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
	defer os.RemoveAll(dir)
	s := &suite{ctx: ctx, dir: dir, start: time.Now()}
	s.run()
	if path := os.Getenv("COVERAGE"); path != "" {
		s.step("coverage", func(context.Context) error {
			old, err := os.ReadFile(path)
			if err != nil && (onlyTheirs() || onlyOurs()) {
				return err
			}
			var b bytes.Buffer
			oldOurs, oldTheirs := parts(old)
			if b.Write(oldOurs); !onlyTheirs() {
				b.Reset()
				s.results.coverage(&b)
			}
			if onlyOurs() {
				b.Write(oldTheirs)
			} else {
				s.results.theirs(&b)
			}
			return os.WriteFile(path, b.Bytes(), 0o644)
		})
	}
	s.results.print(os.Stdout)
	if s.results.failed() > 0 {
		os.Exit(1)
	}
}

// suite is one run of all rings.
type suite struct {
	ctx     context.Context
	dir     string
	start   time.Time
	results results
}

// onlyTheirs tells whether nothing but the tools of others is asked for.
func onlyTheirs() bool { return os.Getenv("THEIRS") != "" }

// onlyOurs tells whether the tools of others are to be left out of COVERAGE.
func onlyOurs() bool { return os.Getenv("OURS") != "" }

func (s *suite) run() {
	if !s.step("packages", install) {
		return
	}
	if onlyTheirs() {
		s.runTheirs()
		return
	}
	s.step("check", func(ctx context.Context) error {
		return stream(ctx, nil, "./test/check")
	})
	s.goTest()
	live, bt, runner := filepath.Join(s.dir, "live.test"), filepath.Join(s.dir, "bt.test"), filepath.Join(s.dir, "vm")
	var files []string
	built := s.step("build", func(ctx context.Context) (err error) {
		if files, err = programs.GuestFiles(s.dir); err != nil {
			return err
		}
		if err := stream(ctx, nil, "go", "test", "-c", "-o", live, "./test/live"); err != nil {
			return err
		}
		if err := stream(ctx, nil, "go", "test", "-c", symbols, "-o", bt, "./internal/bt"); err != nil {
			return err
		}
		return stream(ctx, nil, "go", "build", "-o", runner, "./test/vm")
	})
	if !built {
		return
	}
	s.live(native, true, live)
	// internal/bt has run natively with the other packages.
	if !s.step("kernels", func(ctx context.Context) error { return stream(ctx, nil, runner, "fetch") }) {
		return
	}
	var wg sync.WaitGroup
	for i, lane := range lanes {
		wg.Go(func() {
			for _, g := range lane {
				every := g.every || os.Getenv("FULL") != ""
				command := []string{runner, "run", "-kernels", g.name, "-cpus", "1", "-timeout", "40m", "-nic", "-modules", modules}
				s.live(g.name, every, append(append(command, files...), "--", live)...)
				s.language(g.name, runner, bt)
			}
			if i == len(lanes)-1 { // it is done first: the newest kernel takes longest
				s.peers(runner, live)
				s.arm64(runner)
			}
		})
	}
	wg.Wait()
	if os.Getenv("COVERAGE") != "" && !onlyOurs() {
		s.theirs(runner, live)
	}
}

// runTheirs is the part of a run that is about the tools of others.
func (s *suite) runTheirs() {
	live, runner := filepath.Join(s.dir, "live.test"), filepath.Join(s.dir, "vm")
	built := s.step("build", func(ctx context.Context) error {
		if err := stream(ctx, nil, "go", "test", "-c", "-o", live, "./test/live"); err != nil {
			return err
		}
		return stream(ctx, nil, "go", "build", "-o", runner, "./test/vm")
	})
	if built {
		s.theirs(runner, live)
	}
}

// step runs one part that is either well or not.
func (s *suite) step(name string, do func(context.Context) error) bool {
	s.say("%s", name)
	err := do(s.ctx)
	if err != nil {
		fmt.Println(err)
	}
	s.results.add("make test", name, err == nil)
	return err == nil
}

func (s *suite) say(format string, args ...any) {
	fmt.Printf("\n== %4.0fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// goTest runs rings 1 and 2: everything but the live tests.
func (s *suite) goTest() {
	s.say("go test")
	pkgs, err := output(s.ctx, "go", "list", "./...")
	if err != nil {
		s.results.add("make test", "go list", false)
		return
	}
	// One package at a time: many of them make traffic and look at it.
	args := []string{"test", "-v", "-p", "1", symbols, "-timeout", "15m"}
	for _, p := range strings.Fields(pkgs) {
		if !strings.HasSuffix(p, "/test/live") {
			args = append(args, p)
		}
	}
	var first results
	p := &parser{results: &first, where: "go test"}
	p.end(stream(s.ctx, p, "go", args...))
	s.results.take(&first, s.goTestAgain(&first))
}

// goTestAgain has tests that failed tried once more, alone: many look at a machine
// that others use too. What passes then is said.
func (s *suite) goTestAgain(first *results) *results {
	second := &results{}
	for pkg, tests := range first.failedIn() {
		if pkg == "" { // it did not build, or did not run to its end
			continue
		}
		s.say("go test %s, once more: %s", pkg, strings.Join(tests, " "))
		p := &parser{results: second, where: "go test"}
		p.end(stream(s.ctx, p, "go", "test", "-v", symbols, "-timeout", "15m", "-run", anyOf(tests), pkg))
	}
	return second
}

// symbols are what go test leaves out: some tests put probes on themselves.
const symbols = "-ldflags=-s=false -w=false"

// modules are what live tests use, besides those that every guest has.
const modules = "sch_netem,mac80211_hwsim,tcp_bbr"

// drivers are modules that one-liners of the book are about, besides those that
// every guest has.
const drivers = "mac80211,virtio_net"

// native is this machine, of which nobody knows what its kernel offers.
const native = "native"

// debianOffers are the ways that Debian's kernels have.
const debianOffers = "btf,fentry,kprobe,raw,tp"

// live runs rings 3 and 4: the live tests here or in a guest.
func (s *suite) live(where string, every bool, command ...string) {
	s.say("live: %s", where)
	command = append(command, "-test.v", "-test.timeout=38m", "-test.skip=^Test(Peers|Theirs)$")
	if where != native {
		command = append(command, "-offers="+debianOffers)
	}
	if !every {
		command = append(command, "-best")
	}
	s.tests(where, command)
}

// peers runs tools of libbpf-tools beside ours, in a guest with a Debian root, and
// what needs one of its programs.
func (s *suite) peers(runner, live string) {
	s.say("peers: 6.12")
	s.tests("peers", []string{
		runner, "run", "-kernels", "6.12", "-cpus", "1", "-timeout", "10m", "-root", "-tracefs", "-modules", modules, "--",
		live, "-test.v", "-best", "-test.run=^TestPeers$|^TestLive$/^ieee80211scan$/^best$/^hostapd$",
	})
}

// theirs sees which tools of others work: here, and in guests with a Debian root.
// BCC compiles each of its tools for a minute there, which two guests do at a time.
func (s *suite) theirs(runner, live string) {
	s.say("theirs")
	if !s.step("root with the tools of others", func(ctx context.Context) error { return stream(ctx, nil, runner, "rootfs", "-peers") }) {
		return
	}
	test := []string{live, "-test.v", "-test.timeout=88m", "-test.run=^TestTheirs$"}
	s.tests("theirs native", test)
	var wg sync.WaitGroup
	for _, lane := range lanes {
		wg.Go(func() {
			for _, g := range lane {
				guest := []string{runner, "run", "-kernels", g.name, "-cpus", "1", "-timeout", "90m", "-peers", "-tracefs", "--"}
				s.tests("theirs "+g.name, append(guest, test...))
			}
		})
	}
	wg.Wait()
}

// arm64 has a guest of that architecture verify every program of every tool, and
// runs live tests of those that most depend on it: system calls with and without
// their own tracepoints, functions of programs in user space; and those of the language.
func (s *suite) arm64(runner string) {
	const kernel = "6.12-arm64"
	dir := filepath.Join(s.dir, "arm64")
	live, bt := filepath.Join(dir, "live.test"), filepath.Join(dir, "bt.test")
	command := []string{runner, "run", "-kernels", kernel, "-cpus", "1", "-timeout", "15m", "-modules", modules}
	built := s.step("build for arm64", func(ctx context.Context) error {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		libs, err := output(ctx, runner, "libs")
		if err != nil {
			return err
		}
		files, err := programs.ForeignFiles(dir, "arm64", strings.TrimSpace(libs))
		if err != nil {
			return err
		}
		command = append(append(command, files...), "--", live)
		if err := stream(ctx, nil, "env", "GOARCH=arm64", "go", "test", "-c", symbols, "-o", bt, "./internal/bt"); err != nil {
			return err
		}
		return stream(ctx, nil, "env", "GOARCH=arm64", "go", "test", "-c", "-o", live, "./test/live")
	})
	if !built {
		return
	}
	s.say("live: %s", kernel)
	run := "-test.run=^TestOffers$|^TestLoad$|^TestLive$"
	if os.Getenv("FULL") == "" {
		run += "/^(tcplife|soconnect|socketio|gethostlatency)$"
	}
	s.tests(kernel, append(command, "-best", "-offers="+debianOffers, "-test.v", "-test.timeout=14m", run))
	s.language(kernel, runner, bt)
}

// language runs the tests of the language in a guest: its functions and its
// verifier are other ones there.
func (s *suite) language(where, runner, bt string) {
	s.say("language: %s", where)
	command := []string{runner, "run", "-kernels", where, "-cpus", "1", "-timeout", "10m", "-modules", drivers, "--", bt, "-test.v", "-test.timeout=9m", "-test.skip=^Fuzz"}
	var first, second results
	p := &parser{results: &first, where: where}
	p.end(stream(s.ctx, p, command[0], command[1:]...))
	if again := first.failedIn()[""]; len(again) > 0 && !p.torn {
		s.say("language: %s, once more: %s", where, strings.Join(again, " "))
		p := &parser{results: &second, where: where}
		p.end(stream(s.ctx, p, command[0], append(command[1:], "-test.run="+anyOf(again))...))
	}
	s.results.take(&first, &second)
}

// anyOf is what -run takes for these tests.
func anyOf(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

func (s *suite) tests(where string, command []string) {
	p := &parser{results: &s.results, where: where}
	err := stream(s.ctx, p, command[0], command[1:]...)
	p.end(err)
}
