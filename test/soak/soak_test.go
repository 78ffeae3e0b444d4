// SPDX-License-Identifier: Apache-2.0

// Package soak tests tools under heavy load: as many sockets as a busy server
// has, and sessions without a pause. make soak takes 100,000 sockets and ten
// minutes; make test a shorter form.
package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/lab"
)

var (
	sockets = flag.Int("sockets", 20000, "how many TCP sockets are open at once")
	lasting = flag.Duration("for", 10*time.Second, "how long sessions are made without a pause")
)

// seine is the binary under test.
var seine string

func TestMain(m *testing.M) {
	lab.Main()
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "seine-soak")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	seine = filepath.Join(dir, "seine")
	build := exec.Command("go", "build", "-o", seine, "seine/cmd/seine")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building seine: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// row is the columns of a session that every tool here has.
type row struct {
	PID   int    `json:"pid"`
	Time  string `json:"time"`
	Conns int    `json:"conns"` // of a service
	Tool  string `json:"tool"`
}

// tool is a run of seine.
type tool struct {
	cmd  *exec.Cmd
	up   time.Duration // from exec to attached
	err  strings.Builder
	done chan error

	out     *bufio.Reader  // of the file that the rows are written to
	part    []byte         // of a row that has not been written to its end
	rows    map[int]int    // by process
	outputs map[string]int // connections of all services by the time of the output
}

var (
	ready   = regexp.MustCompile(`(?m)^seine: ready$`)
	summary = regexp.MustCompile(`(?m)^seine: [\d,]+ rows, ([\d,]+) lost.*$`)
	skipped = regexp.MustCompile(`(?m)^seine: (?:lost so far: )?([\d,]+) runs? of (?:a )?BPF programs? (?:was|were) skipped by the kernel: another tracer may be at the same hooks$`)
)

func start(t *testing.T, args ...string) *tool {
	t.Helper()
	x := &tool{cmd: exec.Command(seine, append(args, "-o", "json")...), rows: map[int]int{}, outputs: map[string]int{}, done: make(chan error, 1)}
	// To read the rows takes more processor time than to make them. So they go to a file, and are read
	// when the tool has ended.
	out, err := os.Create(filepath.Join(t.TempDir(), "rows"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	x.cmd.Stdout = out
	in, err := os.Open(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	x.out = bufio.NewReaderSize(in, 1<<20)
	said, err := x.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.cmd.Process.Kill() })
	up := make(chan time.Duration, 1)
	ended := make(chan bool, 1)
	go func() {
		for s := bufio.NewScanner(said); s.Scan(); {
			x.err.WriteString(s.Text() + "\n")
			if ready.MatchString(s.Text()) {
				up <- time.Since(began)
			}
		}
		ended <- true
	}()
	go func() {
		<-ended
		x.done <- x.cmd.Wait()
	}()
	select {
	case x.up = <-up:
	case <-time.After(time.Minute):
		t.Fatalf("not ready: %s", x.err.String())
	}
	return x
}

// resident is the memory of the process, in bytes.
func (x *tool) resident(t *testing.T) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	kb, _ := strconv.Atoi(string(m[1]))
	return kb << 10
}

// cpu is the processor time that the process has taken.
func (x *tool) cpu(t *testing.T) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the state on
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// maps is the memory that the kernel says the maps of the process take, in bytes.
func (x *tool) maps(t *testing.T) (sum int) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", x.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, _ := os.ReadFile(f) // it may have been closed
		if m := regexp.MustCompile(`(?s)map_type:.*memlock:\s+(\d+)`).FindSubmatch(b); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			sum += n
		}
	}
	return sum
}

// read reads the rows that have been written since the last time.
func (x *tool) read(t *testing.T) {
	t.Helper()
	of := x.cmd.Args[1]
	if of == "with" {
		of = x.cmd.Args[2] // the first of its tools
	}
	for {
		line, err := x.out.ReadBytes('\n')
		x.part = append(x.part, line...)
		if err == io.EOF {
			return
		}
		var r row
		if err == nil {
			err = json.Unmarshal(x.part, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		x.part = x.part[:0]
		if r.Tool == of {
			x.rows[r.PID]++
		}
		x.outputs[r.Time] += r.Conns
	}
}

// shown is how many outputs have come.
func (x *tool) shown(t *testing.T) int {
	x.read(t)
	return len(x.outputs)
}

// end interrupts the tool, which must have lost nothing. The kernel may have skipped runs of its
// programs because of tests beside this one: then the rows tell whether something is missing.
func (x *tool) end(t *testing.T) {
	t.Helper()
	x.cmd.Process.Signal(syscall.SIGINT)
	select {
	case err := <-x.done:
		if err != nil {
			t.Fatalf("%v: %s", err, x.err.String())
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("does not end: %s", x.err.String())
	}
	x.read(t)
	lost := "0"
	if all := skipped.FindAllStringSubmatch(x.err.String(), -1); all != nil {
		lost = all[len(all)-1][1]
	}
	if m := summary.FindStringSubmatch(x.err.String()); m == nil || m[1] != lost || strings.Contains(x.err.String(), "refused") {
		t.Errorf("want 0 lost and no map full: %s", x.err.String())
	}
}

// most is the number of sessions of a pair of processes: a process may have
// 20,000 files if the limit is not raised.
const most = 15000

// open makes n sessions that are open and wait, by as many processes as it takes.
func open(t *testing.T, w *lab.World, n int) (all []*lab.TCP) {
	t.Helper()
	for ; n > 0; n -= most {
		// An address of its own, which has ports enough.
		addr := netip.AddrFrom4([4]byte{127, 0, 1, byte(len(all) + 1)})
		s, err := lab.StartTCP(w, lab.Sessions{Count: min(n, most), Send: 100, Recv: 50, Hold: true, Brief: true, Addrs: []netip.Addr{addr}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestMany: tools start beside many open sockets, know the owner of each, and
// show each session at its end. The end may be in a softirq on top of process 1.
func TestMany(t *testing.T) {
	if err := lab.Undisturbed(func() ([]error, error) { return many(t) }); err != nil {
		t.Error(err)
	}
}

// many is one round of TestMany.
func many(t *testing.T) (differ []error, err error) {
	n := *sockets / 2
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	all := open(t, w, n)
	netns := fmt.Sprintf("--netns=%d", w.Netns(""))
	differ = snapshot(t, all, "sockets", netns, "--where", "rport > 0")
	var tools []*tool
	for _, args := range [][]string{
		{"tcplife", netns},
		{"tcptop", netns, "-i", "1h", "--top", strconv.Itoa(4 * n)},
		{"solife", netns, "--proto", "tcp", "--where", "rport > 0"}, // not the listeners
		{"with", "tcplife", "tcpretrans", "tcpdrop", "skbdrop", "soconnect", "gethostlatency", "tcpsynbl", "tcpstates", "udplife", "tcpaccept", netns, "--buffer", "64M"},
	} {
		x := start(t, args...)
		t.Logf("beside %d sockets %s attached after %v", 2*n, args[0], x.up)
		t.Attr(args[0]+"-attached-ms", fmt.Sprint(x.up.Milliseconds()))
		if *sockets >= 100000 && x.up > time.Second {
			t.Errorf("%s: want a second at most", args[0])
		}
		tools = append(tools, x)
	}
	for _, s := range all {
		if _, err := s.Run(); err != nil {
			return nil, err
		}
	}
	if err := w.Quiet(); err != nil {
		return nil, err
	}
	for _, x := range tools {
		name := x.cmd.Args[1]
		t.Logf("at the end %s has %d MB", name, x.resident(t)>>20)
		x.end(t)
		differ = append(differ, x.compare(all)...)
	}
	return differ, nil
}

// compare wants a row of each end of each session.
func (x *tool) compare(all []*lab.TCP) (differ []error) {
	for _, s := range all {
		for _, p := range []*lab.Proc{s.Client, s.Server} {
			if want := s.Sessions.Count; x.rows[p.PID] != want {
				differ = append(differ, fmt.Errorf("%d rows of %s for %s, want %d", x.rows[p.PID], x.cmd.Args[1], p.Comm, want))
			}
		}
	}
	return differ
}

// snapshot: a tool that lists sockets has a row of each within a second of processor
// time.
func snapshot(t *testing.T, all []*lab.TCP, args ...string) []error {
	x := start(t, args...)
	if err := <-x.done; err != nil {
		t.Fatalf("%v: %s", err, x.err.String())
	}
	x.read(t)
	u := x.cmd.ProcessState
	took := u.UserTime() + u.SystemTime()
	t.Logf("beside %d sockets %s took %v of processor time", *sockets, args[0], took)
	if *sockets >= 100000 && took > time.Second {
		t.Errorf("%s: want at most a second", args[0])
	}
	return x.compare(all)
}

// TestFlows: flows walks over many open sockets at each output. A pass over 100,000 takes a second of
// CPU time at most, and finds them all.
func TestFlows(t *testing.T) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n := *sockets / 2
	x := start(t, "flows", fmt.Sprintf("--netns=%d", w.Netns("")), "--all", "-i", "1", "--memory", "256M")
	open(t, w, n)
	// From now on nothing happens on the connections.
	time.Sleep(1500 * time.Millisecond)
	began, from := x.cpu(t), x.shown(t)
	const passes = 2
	for late := time.Now().Add(time.Minute); x.shown(t) < from+passes && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond)
	}
	took, rss, maps := x.cpu(t)-began, x.resident(t), x.maps(t)
	x.end(t)
	each := took / passes
	t.Attr("connections", fmt.Sprint(2*n))
	t.Attr("pass-ms", fmt.Sprint(each.Milliseconds()))
	t.Attr("resident-MB", fmt.Sprint(rss>>20))
	t.Attr("maps-MB", fmt.Sprint(maps>>20))
	t.Logf("a pass over %d connections takes %v of CPU time; %d MB resident, %d MB of maps", 2*n, each, rss>>20, maps>>20)
	// The cost of an output does not shrink to nothing where there are few.
	if most := time.Second*time.Duration(2*n)/100_000 + 100*time.Millisecond; each > most {
		t.Errorf("a pass takes %v of CPU time, want %v at most", each, most)
	}
	whole := 0
	for _, conns := range x.outputs {
		if conns > 2*n {
			t.Errorf("an output with %d connections, want %d", conns, 2*n)
		} else if conns == 2*n {
			whole++
		}
	}
	if whole < passes {
		t.Errorf("%d outputs have all %d connections, want %d: %v", whole, 2*n, passes, x.outputs)
	}
}

// TestLasting: sessions without a pause. None is lost, and each has the right process.
// Sessions end in softirqs, which may be on top of process 1.
func TestLasting(t *testing.T) {
	if err := lab.Undisturbed(func() ([]error, error) { return lasts(t), nil }); err != nil {
		t.Error(err)
	}
}

// lasts is one round of TestLasting.
func lasts(t *testing.T) (differ []error) {
	// Other tests may delay the reader. Connections of other processes may have an
	// unknown owner, but they do not use this address.
	own := netip.AddrFrom4([4]byte{127, 83, 69, 73})
	life := start(t, "tcplife", "--buffer", "64M", "--addr", own.String())
	want, total := map[int]int{}, 0
	for began := time.Now(); time.Since(began) < *lasting; {
		w, err := lab.NewWorld(lab.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := lab.StartTCP(w, lab.Sessions{Count: 10000, Send: 100, Recv: 50, Parallel: 2, Brief: true, Addrs: []netip.Addr{own}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(); err != nil {
			t.Fatal(err)
		}
		want[s.Client.PID] += 10000
		want[s.Server.PID] += 10000
		total += 20000
		if err := w.Quiet(); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	rss := life.resident(t)
	life.end(t)
	for pid, n := range want {
		if life.rows[pid] != n {
			differ = append(differ, fmt.Errorf("%d rows of process %d, want %d, and %d rows of nobody", life.rows[pid], pid, n, life.rows[0]))
		}
	}
	u := life.cmd.ProcessState
	t.Attr("rows", fmt.Sprint(total))
	t.Attr("resident-MB", fmt.Sprint(rss>>20))
	t.Logf("%d rows in %v; tcplife took %v of CPU time and %d MB", total, *lasting, u.UserTime()+u.SystemTime(), rss>>20)
	return differ
}
