// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/test/programs"
	"seine/test/proof"
)

// guest is a kernel of ring 4, and what runs there unless FULL is set. TestLoad has
// each of them verify every program by every way.
type guest struct {
	name  string
	flags []string // of the live tests
	skip  []string // tests that other guests run
	limit time.Duration
}

// guests are the kernels, the longest run first. 6.12 has kprobes, fentry, every module
// and every queueing discipline, so each case runs there; what the machine's own kernel
// cannot run has no other place. The oldest one and 6.12 try every way, by the first case
// of each tool. 6.1 has nothing that neither of them has. The newest one preempts
// programs, which older ones do not: it has the cases with several tasks at once, and
// those of what changes most. What scripts count is compared on 6.12 and natively.
var guests = []guest{
	{"6.12", []string{"-others=1"}, nil, 55 * time.Minute},
	{"new", []string{"-best", "-first=3", "-also=parallel|preempted|inflight|threads|many|uring|mptcp"}, []string{"Agree"}, 50 * time.Minute},
	{"5.10", []string{"-first=3", "-others=1"}, []string{"Agree"}, 45 * time.Minute},
	{"6.1", []string{"-best", "-first=2"}, []string{"Agree", "Turns", "Threads"}, 40 * time.Minute},
}

// The steps that -only knows, besides the guests.
const (
	checks = "check"
	units  = "unit"
	race   = "race"
	native = "native" // nobody knows what its kernel offers
	arm64  = "arm64"
	peers  = "peers"
)

func stepNames() []string {
	names := []string{checks, units, race, native}
	for _, g := range guests {
		names = append(names, g.name)
	}
	return append(names, arm64, peers)
}

// binaries are what the steps run.
type binaries struct {
	live, language, runner string
	files                  []string // flags of the runner: what tests in guests need besides
}

// run has two workers, as many as the machine has processors: tests hold stopwatches. One
// takes what runs on this machine, one thing after the other, the other one takes guests,
// which have one processor each. Whoever is done takes the next guest.
func (s *suite) run() {
	if !s.must("packages", 10*time.Minute, install) {
		return
	}
	if *quick {
		s.quick()
		return
	}
	b, ok := s.build()
	if !ok {
		return
	}
	if onlyTheirs() {
		s.theirs(b)
		return
	}
	jobs := s.inGuests(b)
	fetched := sync.OnceValue(func() bool { return len(jobs) == 0 || s.fetch(b) })
	queue := make(chan func(), len(jobs))
	for _, job := range jobs {
		queue <- job
	}
	close(queue)
	work := func() {
		for job := range queue {
			if fetched() {
				job()
			}
		}
	}
	var wg sync.WaitGroup
	wg.Go(work)
	wg.Go(func() {
		s.here(b)
		work()
	})
	wg.Wait()
	if os.Getenv("COVERAGE") != "" && !onlyOurs() {
		s.theirs(b)
	}
}

// quick is what an inner loop has time for.
func (s *suite) quick() {
	s.must("check", 4*time.Minute, func(ctx context.Context) error { return stream(ctx, nil, "env", "QUICK=1", "./test/check") })
	s.step("unit", 5*time.Minute, func(ctx context.Context) error {
		calm, _, err := s.packages(ctx)
		if err != nil {
			return err
		}
		return s.goTest(ctx, units, append([]string{"-p", "2", symbols}, calm...)...)
	})
	live := filepath.Join(s.dir, "live.test")
	if s.must("build", 4*time.Minute, func(ctx context.Context) error {
		return stream(ctx, nil, "go", "test", "-c", "-o", live, "./test/live")
	}) {
		s.step(native, 4*time.Minute, func(ctx context.Context) error {
			return s.tests(ctx, native, []string{live, "-best", "-test.v=test2json", "-test.timeout=3m",
				"-test.run=^TestVerdict$|^TestFlakyList$|^TestLive$/^(tcplife|soconnect|socketio|udpconnect|tcpdrop)$"})
		})
	}
}

// build makes the binaries before anything else runs: make check writes the objects
// anew that they hold.
func (s *suite) build() (b binaries, ok bool) {
	b = binaries{live: filepath.Join(s.dir, "live.test"), language: filepath.Join(s.dir, "bt.test"), runner: filepath.Join(s.dir, "vm")}
	return b, s.must("build", 10*time.Minute, func(ctx context.Context) (err error) {
		if b.files, err = programs.GuestFiles(s.dir); err != nil {
			return err
		}
		for _, c := range [][]string{
			{"go", "test", "-c", "-o", b.live, "./test/live"},
			{"go", "test", "-c", symbols, "-o", b.language, "./internal/bt"},
			{"go", "build", "-o", b.runner, "./test/vm"},
		} {
			if err := stream(ctx, nil, c[0], c[1:]...); err != nil {
				return err
			}
		}
		return nil
	})
}

// fetch brings the kernels and the Debian root.
func (s *suite) fetch(b binaries) bool {
	return s.must("kernels", 20*time.Minute, func(ctx context.Context) error {
		if err := stream(ctx, nil, b.runner, "fetch"); err != nil || !asked(peers) {
			return err
		}
		return stream(ctx, nil, b.runner, "rootfs")
	})
}

// here runs what runs on this machine.
func (s *suite) here(b binaries) {
	if asked(checks) {
		s.must("proofs", time.Minute, s.proofs)
		s.must(checks, 15*time.Minute, func(ctx context.Context) error { return stream(ctx, nil, "./test/check") })
	}
	if asked(units) {
		s.step(units, 20*time.Minute, s.unit)
	}
	if asked(race) {
		s.step(race, 10*time.Minute, s.races)
	}
	if asked(native) {
		s.step(native, 45*time.Minute, func(ctx context.Context) error {
			test := []string{b.live, "-test.v=test2json", "-test.timeout=44m", notOthers}
			if !everyWay() {
				test = append(test, "-others=3") // the best way has every case; TestLoad and TestAgree compare the ways
			}
			return s.tests(ctx, native, test)
		})
	}
}

// races runs what several goroutines share under the race detector: the engine's parts,
// and tools that come and go in it. The detector needs cgo.
func (s *suite) races(ctx context.Context) error {
	test := []string{"env", "CGO_ENABLED=1", "go", "test", "-json", "-race", "-timeout", "9m"}
	return errors.Join(
		s.watch(ctx, race, nil, append(slices.Clone(test), "./internal/tool", "./internal/row", "./internal/probe", "./internal/kern")),
		s.watch(ctx, race, nil, append(slices.Clone(test), "-run", "^TestAddRemove$", "./test/live")),
	)
}

// proofs says how stale the proofs are of tests that are too long for this.
func (s *suite) proofs(context.Context) error {
	all, err := proof.Check(".")
	errs := []error{err}
	for _, v := range all {
		if everyWay() && v.Name == "test-full" {
			continue // this run is its proof
		}
		fmt.Printf("proof %s: %s\n", v.Name, v.Text)
		if v.Err != nil {
			errs = append(errs, fmt.Errorf("proof %s: %w", v.Name, v.Err))
		}
	}
	return errors.Join(errs...)
}

// unit runs rings 1 and 2: everything but the live tests.
func (s *suite) unit(ctx context.Context) error {
	calm, lively, err := s.packages(ctx)
	if err != nil {
		s.results.add("make test", "go list", false)
		return err
	}
	s.goTest(ctx, units, append([]string{"-p", "2", symbols, "-timeout", "10m"}, calm...)...)
	return s.goTest(ctx, units, append([]string{"-p", "1", symbols, "-timeout", "10m"}, lively...)...)
}

// traffic are the packages whose tests make traffic and look at it, or measure
// time: one of them at a time.
var traffic = []string{"internal/bt", "internal/cli", "internal/enrich", "internal/host", "internal/lab", "internal/probe", "internal/sym", "internal/tool", "test/cli", "test/soak", "test/why"}

// packages are those with tests that can run beside others, and those of traffic.
func (s *suite) packages(ctx context.Context) (calm, lively []string, err error) {
	all, err := output(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	for p := range strings.FieldsSeq(all) {
		switch short := strings.TrimPrefix(p, "seine/"); {
		case short == "test/live":
		case slices.Contains(traffic, short):
			lively = append(lively, p)
		default:
			calm = append(calm, p)
		}
	}
	return calm, lively, err
}

// symbols are what go test leaves out: some tests put probes on themselves.
const symbols = "-ldflags=-s=false -w=false"

// modules are what live tests use, besides those that every guest has. Some
// one-liners of the book are about them too.
const modules = "sch_netem,mac80211_hwsim,tcp_bbr,sch_cake"

// debianOffers are the ways that Debian's kernels have.
const debianOffers = "-offers=btf,fentry,kprobe,raw,tp"

// notOthers leaves out what has a step of its own.
const notOthers = "-test.skip=^Test(Peers|Theirs)$"

// inGuests is the steps of ring 4, each as a function.
func (s *suite) inGuests(b binaries) (jobs []func()) {
	add := func(name string, limit time.Duration, do func(context.Context) error) {
		if asked(name) {
			jobs = append(jobs, func() { s.step(name, limit, do) })
		}
	}
	for _, g := range guests {
		flags := append(g.flags, "-test.skip=^Test("+strings.Join(append(g.skip, "Peers", "Theirs"), "|")+")$")
		if everyWay() {
			flags, g.limit = []string{"-others=2", notOthers}, 2*g.limit
		}
		add(g.name, g.limit, func(ctx context.Context) error { return s.boot(ctx, g.name, b, g.limit, flags...) })
	}
	// An arm64 guest verifies the programs of every tool, and runs the live tests of
	// those that most depend on it: system calls with and without their own
	// tracepoints, functions of programs in user space; and those of the language.
	add(arm64, 45*time.Minute, func(ctx context.Context) error {
		foreign, err := s.buildArm64(ctx, b)
		if s.results.add("make test", "build for arm64", err == nil); err != nil {
			return err
		}
		flags := []string{"-best", "-test.run=^TestOffers$|^TestLoad$|^TestLive$"}
		if !everyWay() {
			flags = []string{"-best", "-load-best", "-first=3", flags[1] + "/^(tcplife|soconnect|socketio|gethostlatency)$"}
		}
		return s.boot(ctx, "6.12-arm64", foreign, 43*time.Minute, flags...)
	})
	// Tools of libbpf-tools beside ours, in a guest with a Debian root, and what needs
	// one of its programs.
	add(peers, 15*time.Minute, func(ctx context.Context) error {
		return s.tests(ctx, peers, []string{b.runner, "run", "-kernels", "6.12", "-cpus", "1", "-timeout", "14m", "-root", "-tracefs", "-modules", modules, "--",
			b.live, "-test.v=test2json", "-best", "-test.run=^TestPeers$|^TestLive$/^ieee80211scan$/^best$/^hostapd$"})
	})
	return jobs
}

// boot runs the live tests and those of the language in one boot of a guest. Its own
// limits are less than that of the step, so that what it has seen gets out.
func (s *suite) boot(ctx context.Context, kernel string, b binaries, limit time.Duration, flags ...string) error {
	inside := limit - 3*time.Minute
	command := []string{b.runner, "run", "-kernels", kernel, "-cpus", "1", "-timeout", fmt.Sprint(limit - time.Minute), "-nic", "-modules", modules, "-file", b.language}
	command = append(append(command, b.files...), "--", b.live, "-test.v=test2json", fmt.Sprint("-test.timeout=", inside), debianOffers)
	command = append(append(command, flags...), "-then="+filepath.Base(b.language), "--", "-test.v=test2json", fmt.Sprint("-test.timeout=", inside), "-test.skip=^Fuzz")
	return s.tests(ctx, kernel, command)
}

// buildArm64 makes the binaries for that architecture.
func (s *suite) buildArm64(ctx context.Context, b binaries) (binaries, error) {
	dir := filepath.Join(s.dir, "arm64")
	foreign := binaries{live: filepath.Join(dir, "live.test"), language: filepath.Join(dir, "bt.test"), runner: b.runner}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return foreign, err
	}
	libs, err := output(ctx, b.runner, "libs")
	if err != nil {
		return foreign, err
	}
	if foreign.files, err = programs.ForeignFiles(dir, "arm64", strings.TrimSpace(libs)); err != nil {
		return foreign, err
	}
	if err := stream(ctx, nil, "env", "GOARCH=arm64", "go", "test", "-c", symbols, "-o", foreign.language, "./internal/bt"); err != nil {
		return foreign, err
	}
	return foreign, stream(ctx, nil, "env", "GOARCH=arm64", "go", "test", "-c", "-o", foreign.live, "./test/live")
}

// theirs sees which tools of others work: here, and in guests with a Debian root.
// BCC compiles each of its tools for a minute there, which two guests do at a time.
func (s *suite) theirs(b binaries) {
	if !s.must("root with the tools of others", 30*time.Minute, func(ctx context.Context) error { return stream(ctx, nil, b.runner, "rootfs", "-peers") }) {
		return
	}
	test := []string{b.live, "-test.v=test2json", "-test.timeout=88m", "-test.run=^TestTheirs$"}
	one := func(where string, command []string) {
		s.step(where, 100*time.Minute, func(ctx context.Context) error { return s.tests(ctx, where, command) })
	}
	one("theirs native", test)
	queue := make(chan guest, len(guests))
	for _, g := range guests {
		queue <- g
	}
	close(queue)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for g := range queue {
				one("theirs "+g.name, append([]string{b.runner, "run", "-kernels", g.name, "-cpus", "1", "-timeout", "90m", "-peers", "-tracefs", "--"}, test...))
			}
		})
	}
	wg.Wait()
}
