// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/test/programs"
	"seine/test/proof"
)

// guest is a kernel of ring 4, and what runs there unless FULL is set.
type guest struct {
	name     string
	flags    []string // of the live tests
	run      string   // the live tests; "": all
	skip     []string // of which these are left to other guests
	language string   // the tests of the language; "": all
	faults   string   // those of seine why; "": none
	limit    time.Duration
}

// guests are the kernels, the longest run first: both workers end at about the same time. An
// emulated machine is twenty times slower, so this is what make test leaves to make test-full:
//
//   - Every case runs natively by the best way, and the first of each tool by every other way.
//   - 6.12 has kprobes, fentry, every module and every queueing discipline. It runs the first
//     case of each tool, also by fentry and fexit, and all cases that the machine's own kernel
//     cannot run: those have no other place.
//   - 5.10, the oldest, runs the first case of each tool, also by tp, sys, kprobe and uprobe.
//     fentry and fexit run on 6.12, kprobe here. raw differs from the best way in how it reads
//     arguments alone.
//   - The newest one preempts programs, which older ones do not. It runs the first case of
//     each tool, and those with several tasks at once.
//   - 6.1 has nothing that neither 5.10 nor 6.12 has. It runs the first case of each tool.
//   - 5.10 and 6.12 run the first case of each tool in a process that gives up its privileges.
//     6.1 and the newest do without that process. All but 6.12 run another case for a dear one.
//   - 5.10 and 6.12 verify every program by every way. The others verify the programs of the
//     best way, which are those that a tool takes there.
//   - TestAgree runs natively, and on 6.12 with the scripts that need it. TestThreads runs
//     natively. What tells how the engine works runs natively; TestRests, which depends on how
//     the kernel wakes a reader, on 6.12 too, TestRelay, whose programs call others, everywhere,
//     and TestTop on 5.10. TestOwnersShared runs all cases natively, and in guests the first of
//     those tools that use all of it.
//   - Tests of the language run natively, and on 5.10 without those that ask a kernel nothing.
//     6.12 runs those of which the machine's own kernel skips something. The others verify all
//     its scripts. The newest runs those too, and what has to do with preemption; arm64 what
//     reads registers, stacks and the memory of processes.
//   - Faults of seine why are made natively. Its rules are the same everywhere, but its tools
//     are not: the oldest kernel makes two pairs of faults, and make test-full has all make them.
var guests = []guest{
	{"6.12", []string{"-first=1", "-others=1", "-ways=^(fentry|fexit)$", "-also=" + notHere + "|/(uring|mptcp)", "-agree=" + functions, "-shared=" + sharers}, "", append(engine, "Threads", "Top"), traced, "", 35 * time.Minute},
	{"5.10", []string{"-first=1", "-others=1", "-ways=^(tp|sys|kprobe|uprobe)$", "-also=" + failing, "-spared=" + dear, "-shared=" + sharers}, "", append(engine, "Agree", "Rests", "Threads"), "", toldFaults, 35 * time.Minute},
	{"new", []string{"-best", "-load-best", "-first=1", "-also=" + crowded, "-spared=" + dear, "-together", "-shared=" + sharers}, "", append(engine, "Agree", "Rests", "Threads", "Top"), "^Test(Corpus|CorpusRuns|Functions|Preempted|PreemptedScratch|Truth|Ways)$", "", 40 * time.Minute},
	{"6.1", []string{"-best", "-load-best", "-first=1", "-spared=" + dear, "-together"}, "^Test(Offers|Load|Live|Relay)$", nil, "^TestCorpus$", "", 25 * time.Minute},
}

// engine is tests of code that is the same on all kernels.
var engine = slices.Clip([]string{"AddRemove", "Apart", "IdleKeys", "LastOutput", "LossesTold", "OwnPID", "RelayCases", "SameName", "Turns"})

// asksNothing is tests of the language that do not depend on the kernel, or test the same
// as others. Only the newest kernel preempts programs, and gives them a per-CPU stack.
const asksNothing = "^Fuzz|^Test(AllFiles|Config|Errors|Getopt|Import|Includes|IntervalHeads|IntervalRoom|Intervals|JSON|Limits|List|ListStripped" +
	"|Listing|LongKeys|MacroGrowth|Points|Places|Settles|SettingErrors|SeveralErrors|Small|SpecErrors|Trees|Preempted|UprobeStack)$"

// traced is tests of the language that trace functions, or need a module: the machine's own kernel
// skips some of what they do. make test fails if one is missing.
const traced = "^Test(BPFPrograms|Corpus|CorpusRuns|Driver|Functions|Iter|MixedOrder|Order|Override|PerCPU|Pinned|ToolScripts|Truth|Twins|Ways|WriteUser)$"

const (
	// notHere is the cases for features that the machine's own kernel may lack:
	// Wi-Fi, queueing disciplines, function tracing, a card. A case that is missing
	// here fails because it runs nowhere.
	notHere = "^ieee80211scan/|^(capture/vlan-device|ipecn/qdisc[46]|nettxlat/virtio|qdisclat/(tcp-cake|card|children)|sormem/send|tcplife/paced" +
		"|tcpnagle/xmit|tcpretrans/fast-netem|tcpsynbl/ack|udpconnect/sendto-(fentry|kprobe))$"
	// failing is the cases of calls that fail: 5.10 does not tell the arguments of a call at its exit.
	failing = "^(soconnect/errors-socket|soaccept/errors)$"

	// toldFaults is pairs of faults: flows and soconnect show one, tcpsynbl and dns the other.
	toldFaults = "^TestPairs$/^(a_server_that_thinks,_nobody_listens|a_server_that_does_not_accept,_a_name_server_that_fails)$"
	// functions is the scripts of TestAgree that need such features.
	functions = "^(soprotocol|sormem_recvmsg|tcpconnect|tcpaccept|tcpwin|tcpsynbl|tcpnagle|udpconnect|qdisclat_functions|ieee80211scan|ipecn)$"
	// crowded is cases with several concurrent tasks.
	crowded = "/(parallel|preempted|inflight|threads|many)"
	// dear is cases that take a minute where the machine is emulated: they carry megabytes.
	// They run natively and on 6.12.
	dear = "^flows/closed"
	// sharers is tools that together need all that the table of owners can have.
	// TestOwnersShared fails if something is missing.
	sharers = "^(sormem|tcpcong|tcpsynbl)$"
)

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
	live, language, why, runner string
	files                       []string // flags of the runner: what tests in guests need besides
}

// run fetches what guests need in the background, from when packages are installed: a fetch
// uses apt and programs of those packages.
func (s *suite) run() {
	if *quick {
		if s.must("packages", 10*time.Minute, install) {
			s.quick()
		}
		return
	}
	b, q := newBinaries(s.dir), newGuestQueue(nil)
	if !onlyTheirs() {
		q = newGuestQueue(s.inGuests(b))
	}
	ctx, stop := context.WithCancel(s.ctx)
	var fetching sync.WaitGroup
	defer fetching.Wait()
	defer stop()
	if !s.prepare(b, func() { fetching.Go(func() { s.fetch(ctx, q, b.get) }) }) {
		return
	}
	if onlyTheirs() {
		s.theirs(b)
		return
	}
	var compiling sync.WaitGroup
	compiling.Go(s.beside)
	work(func() { s.here(b) }, q)
	compiling.Wait()
	if len(q.order) > 0 {
		s.results.fetching = q.String()
	}
}

// work has two workers, as many as the machine has processors, because tests measure time.
// One runs the steps of this machine, one after the other: they use the same tree and the
// same network. The other one runs guests, which have one processor each. A worker that has
// finished takes the next guest whose kernel is fetched.
func work(here func(), q *guestQueue) {
	guests := func() {
		for run := q.take(); run != nil; run = q.take() {
			run()
		}
	}
	var wg sync.WaitGroup
	wg.Go(guests)
	wg.Go(func() {
		here()
		guests()
	})
	wg.Wait()
}

// quick is a short run for development.
func (s *suite) quick() {
	s.must("check", 4*time.Minute, func(ctx context.Context) error { return stream(ctx, nil, "env", "QUICK=1", "./test/check") })
	s.step("unit", 5*time.Minute, func(ctx context.Context) error {
		calm, _, err := s.packages(ctx)
		if err != nil {
			return err
		}
		return s.goTest(ctx, units, append([]string{"-p", "2", vetted}, calm...)...)
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

func newBinaries(dir string) *binaries {
	return &binaries{live: filepath.Join(dir, "live.test"), language: filepath.Join(dir, "bt.test"), why: filepath.Join(dir, "why.test"), runner: filepath.Join(dir, "vm")}
}

// prepare installs packages, which mostly waits for the network, and builds meanwhile.
// It calls fetch when packages and runner are there.
func (s *suite) prepare(b *binaries, fetch func()) bool {
	var installed, built bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if installed = s.must("packages", 10*time.Minute, b.install); installed {
			fetch()
		}
	})
	wg.Go(func() { built = s.must("build", 15*time.Minute, b.build) })
	wg.Wait()
	if !installed || !built {
		return false
	}
	return s.must("programs", 2*time.Minute, func(context.Context) (err error) {
		b.files, err = programs.GuestFiles(s.dir)
		return err
	})
}

// install installs packages, and builds the runner, which fetches kernels.
func (b *binaries) install(ctx context.Context) error {
	if err := install(ctx); err != nil {
		return err
	}
	return stream(ctx, nil, "go", "build", "-o", b.runner, "./test/vm")
}

// build makes the binaries before anything else runs, because make check rewrites
// the objects in them.
func (b *binaries) build(ctx context.Context) error {
	for _, c := range [][]string{
		{"go", "test", "-c", "-o", b.live, "./test/live"},
		{"go", "test", "-c", symbols, "-o", b.language, "./internal/bt"},
		{"go", "test", "-c", "-o", b.why, "./test/why"},
	} {
		if err := stream(ctx, nil, c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// beside compiles and checks, beside the workers. It takes only processor time that they do not want:
// tests on this machine wait for a third of their time, and guests must not run slower.
func (s *suite) beside() {
	idle := []string{"chrt", "--idle", "0"}
	if asked(race) {
		s.step("compile for "+race, 40*time.Minute, func(ctx context.Context) error {
			nothing := slices.Concat(raceTest, []string{"-run", "^$", "./test/live"}, racePackages)
			return stream(ctx, io.Discard, idle[0], append(idle[1:], nothing...)...) // the step race shows what is wrong
		})
	}
	if asked(checks) {
		s.must(checks, time.Hour, func(ctx context.Context) error {
			return stream(ctx, nil, idle[0], append(idle[1:], "./test/check")...)
		})
	}
}

// here runs what runs on this machine. The race detector comes last, when the tests for it are compiled.
func (s *suite) here(b *binaries) {
	if asked(checks) {
		s.must("proofs", time.Minute, s.proofs)
	}
	if asked(units) {
		s.step(units, 25*time.Minute, s.unit)
	}
	if asked(native) {
		limit, test := 40*time.Minute, []string{b.live, "-test.v=test2json", notOthers}
		if everyWay() {
			limit *= 2
		} else {
			test = append(test, "-others=1")
		}
		test = append(test, fmt.Sprint("-test.timeout=", limit-time.Minute))
		s.step(native, limit, s.proved(native, func(ctx context.Context) error { return s.tests(ctx, native, test) }))
	}
	if asked(race) {
		s.step(race, 10*time.Minute, s.races)
	}
}

// The race detector needs cgo.
var (
	raceTest     = []string{"env", "CGO_ENABLED=1", "go", "test", "-race", vetted, "-timeout", "9m"}
	racePackages = []string{"./internal/tool", "./internal/row", "./internal/probe", "./internal/kern"}
)

// races runs what several goroutines share under the race detector: the engine's parts,
// and tools that come and go in it.
func (s *suite) races(ctx context.Context) error {
	return errors.Join(
		s.watch(ctx, race, nil, slices.Concat(raceTest, []string{"-json"}, racePackages)),
		s.watch(ctx, race, nil, slices.Concat(raceTest, []string{"-json", "-run", "^TestAddRemove$", "./test/live"})),
	)
}

// proofs reports how stale the proofs of the long tests are.
func (s *suite) proofs(context.Context) error {
	all, err := proof.Check(".")
	errs := []error{err}
	for _, v := range all {
		if everyWay() && strings.HasPrefix(v.Name, proof.Full) {
			continue // this run writes them
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
	s.goTest(ctx, units, append([]string{"-p", "2", vetted, "-timeout", "10m"}, calm...)...)
	return s.goTest(ctx, units, append([]string{"-p", "1", vetted, symbols, "-timeout", "10m"}, lively...)...)
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

// symbols keeps the symbol table, which go test leaves out: some tests attach
// probes to themselves.
const symbols = "-ldflags=-s=false -w=false"

// vetted switches off go vet in go test, because make check has run it.
const vetted = "-vet=off"

// modules are what live tests use, besides those that every guest has. Some
// one-liners of the book are about them too.
const modules = "sch_netem,mac80211_hwsim,tcp_bbr,sch_cake,sch_ingress,cls_bpf"

// debianOffers are the ways that Debian's kernels have.
const debianOffers = "-offers=btf,fentry,kprobe,raw,tp"

// notOthers leaves out tests that have a step of their own.
const notOthers = "-test.skip=^Test(Peers|PeersBCC|Theirs)$"

// inGuests is the steps of ring 4.
func (s *suite) inGuests(b *binaries) (steps []guestStep) {
	add := func(name string, limit time.Duration, do func(context.Context) error, needs ...string) {
		if asked(name) {
			steps = append(steps, s.inGuest(name, limit, do, needs...))
		}
	}
	for _, g := range guests {
		flags := append(g.flags, "-test.run="+g.run, "-test.skip=^Test("+strings.Join(append(g.skip, "Peers", "PeersBCC", "Theirs"), "|")+")$")
		language := []string{"-test.run=" + g.language, "-test.skip=^Fuzz"}
		if g.language == "" {
			language[1] = "-test.skip=" + asksNothing
		}
		if everyWay() {
			flags, language, g.faults, g.limit = []string{"-others=2", notOthers}, []string{"-test.skip=^Fuzz"}, toldFaults, 4*g.limit
		}
		add(g.name, g.limit, func(ctx context.Context) error { return s.boot(ctx, g.name, b, g.limit, flags, language, g.faults) }, g.name)
	}
	// An arm64 guest verifies the programs of every tool, and runs the live tests of
	// those that most depend on it: system calls with and without their own
	// tracepoints, functions of programs in user space; and those of the language that
	// read registers, stacks and the memory of processes.
	limit := 25 * time.Minute
	if everyWay() {
		limit *= 2
	}
	add(arm64, limit, func(ctx context.Context) error {
		foreign, err := s.buildArm64(ctx, b)
		if s.results.add("make test", "build for arm64", err == nil); err != nil {
			return err
		}
		flags, language := []string{"-best", "-test.run=^TestOffers$|^TestLoad$|^TestLive$"}, []string{"-test.skip=^Fuzz"}
		if !everyWay() {
			flags = []string{"-best", "-load-best", "-first=2", flags[1] + "/^(tcplife|soconnect|socketio|gethostlatency)$"}
			language = []string{"-test.run=^Test(Corpus|CorpusRuns|UserFunctions|UserMemory|UserAddress|StackPlaces|Samples|Arithmetic)$"}
		}
		return s.boot(ctx, "6.12-arm64", foreign, limit-2*time.Minute, flags, language, "") // it was built in the first of them
	}, "6.12-arm64")
	// Tools of libbpf-tools beside ours, in a guest with a Debian root, and what needs
	// one of its programs. BCC's need a root with a compiler, and a minute each.
	root, others, most := "-root", "TestPeers", 15*time.Minute
	if everyWay() {
		root, others, most = "-peers", "TestPeers|TestPeersBCC", 2*most
	}
	add(peers, most, func(ctx context.Context) error {
		return s.tests(ctx, peers, []string{b.runner, "run", "-kernels", "6.12", "-cpus", "1", "-timeout", fmt.Sprint(most - time.Minute), root, "-tracefs", "-modules", modules, "--",
			b.live, "-test.v=test2json", "-best", "-test.run=^(" + others + ")$|^TestLive$/^ieee80211scan$/^best$/^hostapd$"})
	}, "6.12", debianRoot)
	return steps
}

// inGuest is a step that fails if what it needs could not be fetched.
func (s *suite) inGuest(name string, limit time.Duration, do func(context.Context) error, needs ...string) guestStep {
	return guestStep{needs, func(missing error) {
		s.step(name, limit, s.proved(name, func(ctx context.Context) error {
			if missing != nil {
				s.results.put(result{where: name, name: "what it needs is fetched", outcome: "FAIL", log: missing.Error()})
				return missing
			}
			return do(ctx)
		}))
	}}
}

// boot runs the live tests, those of the language and the faults of seine why in one boot of a
// guest. Its own limits are less than that of the step, so that what it has seen gets out.
func (s *suite) boot(ctx context.Context, kernel string, b *binaries, limit time.Duration, flags, language []string, faults string) error {
	common := []string{"-test.v=test2json", fmt.Sprint("-test.timeout=", limit-3*time.Minute)}
	then := func(program string, flags ...string) string {
		return "-then=" + strings.Join(slices.Concat([]string{filepath.Base(program)}, common, flags), " ")
	}
	command := []string{b.runner, "run", "-kernels", kernel, "-cpus", "1", "-timeout", fmt.Sprint(limit - time.Minute), "-nic", "-modules", modules, "-file", b.language}
	flags = append(slices.Clone(flags), then(b.language, language...))
	if faults != "" {
		command = append(command, "-file", b.why)
		flags = append(flags, then(b.why, "-test.run="+faults, "-all"))
	}
	command = slices.Concat(command, b.files, []string{"--", b.live}, common, []string{debianOffers}, flags)
	return s.tests(ctx, kernel, command)
}

// buildArm64 makes the binaries for that architecture.
func (s *suite) buildArm64(ctx context.Context, b *binaries) (*binaries, error) {
	dir := filepath.Join(s.dir, "arm64")
	foreign := &binaries{live: filepath.Join(dir, "live.test"), language: filepath.Join(dir, "bt.test"), runner: b.runner}
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

// theirs finds out which tools of others work: here, and in guests with a Debian
// root. There BCC compiles each of its tools for a minute, so two guests run at a
// time.
func (s *suite) theirs(b *binaries) {
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
