// SPDX-License-Identifier: Apache-2.0

// Package soak holds tools to their promises when there is much of everything:
// as many sockets as a busy server has, and sessions without a pause. make soak
// takes 100,000 sockets and ten minutes; make test a shorter form.
package soak

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
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

// row is what every tool here tells of a session.
type row struct {
	PID int `json:"pid"`
}

// tool is a run of seine.
type tool struct {
	cmd  *exec.Cmd
	up   time.Duration // from exec to attached
	err  strings.Builder
	rows map[int]int // by process
	done chan error
}

var (
	ready   = regexp.MustCompile(`(?m)^seine: ready$`)
	summary = regexp.MustCompile(`(?m)^seine: [\d,]+ rows, ([\d,]+) lost.*$`)
)

func start(t *testing.T, args ...string) *tool {
	t.Helper()
	x := &tool{cmd: exec.Command(seine, append(args, "-o", "json")...), rows: map[int]int{}, done: make(chan error, 1)}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
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
		d := json.NewDecoder(bufio.NewReaderSize(out, 1<<20))
		for d.More() {
			var r row
			if err := d.Decode(&r); err != nil {
				x.done <- err
				return
			}
			x.rows[r.PID]++
		}
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

// end interrupts the tool, which must have lost nothing.
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
	if m := summary.FindStringSubmatch(x.err.String()); m == nil || m[1] != "0" || strings.Contains(x.err.String(), "refused") {
		t.Errorf("want 0 lost and no map full: %s", x.err.String())
	}
}

// most is how many sessions a pair of processes holds: a process may have
// 20,000 files where nobody allows more.
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
// show each session when it ends, which may be in a softirq on top of process 1.
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
	var tools []*tool
	for _, args := range [][]string{
		{"tcplife", netns},
		{"tcptop", netns, "-i", "1h", "--top", strconv.Itoa(4 * n)},
		{"solife", netns, "--proto", "tcp", "--where", "rport > 0"}, // not the listeners
	} {
		x := start(t, args...)
		t.Logf("beside %d sockets %s attached after %v", 2*n, args[0], x.up)
		if *sockets >= 100000 && x.up > 2*time.Second {
			t.Errorf("%s: want under 2 s", args[0])
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
		for _, s := range all {
			for _, p := range []*lab.Proc{s.Client, s.Server} {
				if want := s.Sessions.Count; x.rows[p.PID] != want {
					differ = append(differ, fmt.Errorf("%d rows of %s for %s, want %d", x.rows[p.PID], name, p.Comm, want))
				}
			}
		}
	}
	return differ, nil
}

// TestLasting: sessions without a pause; none is lost or somebody else's. Sessions end
// in softirqs, which may be on top of process 1.
func TestLasting(t *testing.T) {
	if err := lab.Undisturbed(func() ([]error, error) { return lasts(t), nil }); err != nil {
		t.Error(err)
	}
}

// lasts is one round of TestLasting.
func lasts(t *testing.T) (differ []error) {
	// Other tests may keep the reader from its turn. Connections of others may have no
	// process that is known: nobody else has this address.
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
