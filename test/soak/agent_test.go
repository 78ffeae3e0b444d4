// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
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

var services = flag.Int("services", 500, "how many services are there at once beside the agent")

// Promises of the agent, which make soak checks. With a smaller load, most of its memory
// is in maps of fixed size.
const (
	agentMemory = 200_000_000 // of its control group: docs/AGENT.md says what it contains
	agentAtMost = 400_000_000 // in the shorter form: it does not run away
	agentSeries = 5000
	agentFlat   = 0.05 // that the last third may have more than the second one
)

// TestAgent: beside many open connections, and services that come and go, the agent's
// memory is bounded and does not grow, its series are limited, and each session is
// counted or reported as lost.
func TestAgent(t *testing.T) {
	w := world(t)
	a := startAgent(t, fmt.Sprintf("--netns=%d", w.Netns("")), "--max-cpu=10000%")
	open(t, w, *sockets/2)
	cpu, began := a.cpu(t), time.Now()

	stop := make(chan struct{})
	made := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		n := 0
		failed <- w.Do("", func() (err error) { n, err = comeAndGo(stop); return err })
		made <- n
	}()
	const samples = 60
	var memory []float64
	for range samples {
		time.Sleep(*lasting / samples)
		memory = append(memory, float64(a.memory(t)))
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	sessions := <-made
	share := (a.cpu(t) - cpu) / time.Since(began).Seconds()

	// Both ends of a session are in the world. The held ones have not ended.
	var text string
	var counted, lost, ownerless float64
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		text = a.metrics(t)
		counted, lost = sum(t, text, "seine_tcp_sessions_total"), sum(t, text, `seine_agent_lost_events_total{kind="ring_full",tool="tcplife"}`)
		ownerless = sum(t, text, `seine_agent_lost_events_total{kind="owner_full",tool="tcplife"}`)
		if counted+lost+ownerless >= float64(2*sessions) || time.Now().After(end) {
			break
		}
	}
	series := len(regexp.MustCompile(`(?m)^seine_`).FindAllString(text, -1))
	second, last := mean(memory[samples/3:2*samples/3]), mean(memory[2*samples/3:])
	t.Logf("%d sockets, %d sessions of services that come and go, %v: %.1f MB then %.1f MB (%s), %.1f %% of a processor, BPF %.1f s, %d series, %.0f of %d ends counted, %.0f lost, %.0f owners refused",
		*sockets, sessions, *lasting, second/1e6, last/1e6, a.of, 100*share, sum(t, text, "seine_agent_bpf_seconds_total"), series, counted, 2*sessions, lost, ownerless)
	t.Attr("memory-MB", fmt.Sprintf("%.1f", last/1e6))
	t.Attr("cpu-percent", fmt.Sprintf("%.1f", 100*share))
	if counted > float64(2*sessions) {
		t.Errorf("%.0f ends counted of %d", counted, 2*sessions)
	}
	// Kernels of some sandboxes run no program in an interrupt on top of
	// process 1.
	if missing := float64(2*sessions) - counted - lost - ownerless; missing > float64(sessions)/5000 {
		t.Errorf("%.0f ends of %d are neither counted nor said to be lost", missing, 2*sessions)
	}
	// Sessions without room are reported, and an agent for this many
	// sockets has room.
	if ownerless > 0 {
		t.Errorf("%.0f owners of sockets were refused by tcplife", ownerless)
	}
	if series > agentSeries {
		t.Errorf("%d series", series)
	}
	if last > agentAtMost || last > agentMemory && *sockets >= 100_000 {
		t.Errorf("%.1f MB", last/1e6)
	}
	if *lasting >= 5*time.Minute && last > second*(1+agentFlat) {
		t.Errorf("memory grows: %.1f MB in the second third, %.1f MB in the last one", second/1e6, last/1e6)
	}
}

// comeAndGo makes services, each with a port of its own and two sessions, until told. The oldest
// ones go.
func comeAndGo(stop chan struct{}) (sessions int, err error) {
	var there []net.Listener
	defer func() {
		for _, l := range there {
			l.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return sessions, nil
		case <-time.After(2 * time.Millisecond):
		}
		if len(there) == *services {
			there[0].Close()
			there = there[1:]
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return sessions, err
		}
		there = append(there, l)
		for range 2 {
			if err := session(l); err != nil {
				return sessions, err
			}
			sessions++
		}
	}
}

// session is a question and its answer.
func session(l net.Listener) error {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	s, err := l.Accept()
	if err != nil {
		return err
	}
	c.Write([]byte("hello"))
	c.(*net.TCPConn).CloseWrite()
	io.Copy(s, s)
	s.Close()
	io.Copy(io.Discard, c)
	return c.Close()
}

// A soaked is an agent in a control group of its own.
type soaked struct {
	cmd  *exec.Cmd
	url  string
	file string // with the memory of the control group; "": there is none
	of   string // what memory is of
}

func startAgent(t *testing.T, args ...string) *soaked {
	t.Helper()
	l, err := lab.ListenLow()
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	a := &soaked{url: "http://" + address, of: "resident, both processes"}
	said, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	a.cmd = exec.Command(seine, append([]string{"agent", "--listen", address}, args...)...)
	a.cmd.Stderr = said
	a.cmd.SysProcAttr = a.group(t)
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.cmd.Process.Signal(syscall.SIGINT)
		a.cmd.Wait()
		if b, err := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("log of the agent: %s %v", b, err)
		}
	})
	if a.file != "" && a.cmd.SysProcAttr == nil { // version 1
		if err := os.WriteFile(filepath.Join(filepath.Dir(a.file), "cgroup.procs"), []byte(strconv.Itoa(a.cmd.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		resp, err := http.Get(a.url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return a
			}
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(said.Name())
			t.Fatalf("the agent is not ready: %v\n%s", err, b)
		}
	}
}

// group makes a control group with the memory controller, where there is one.
func (a *soaked) group(t *testing.T) *syscall.SysProcAttr {
	name := fmt.Sprintf("seine-soak-%d", os.Getpid())
	for _, where := range []struct{ root, file string }{{"/sys/fs/cgroup", "memory.current"}, {"/sys/fs/cgroup/memory", "memory.usage_in_bytes"}} {
		dir := filepath.Join(where.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if _, err := os.Stat(filepath.Join(dir, where.file)); err != nil {
			os.Remove(dir)
			continue
		}
		a.file, a.of = filepath.Join(dir, where.file), where.file
		if where.file != "memory.current" {
			return nil
		}
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	}
	return nil
}

// memory is what the agent has, in bytes: of its control group, or of its processes.
func (a *soaked) memory(t *testing.T) (bytes uint64) {
	t.Helper()
	if a.file == "" {
		return uint64(sum(t, a.metrics(t), "seine_agent_resident_memory_bytes"))
	}
	b, err := os.ReadFile(a.file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// cpu is the seconds of both processes.
func (a *soaked) cpu(t *testing.T) float64 {
	return sum(t, a.metrics(t), "seine_agent_cpu_seconds_total")
}

func (a *soaked) metrics(t *testing.T) string {
	t.Helper()
	resp, err := http.Get(a.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return string(b)
}

// sum adds up the series whose line begins so.
func sum(t *testing.T, text, prefix string) (all float64) {
	t.Helper()
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, prefix)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all += v
	}
	return all
}

func mean(all []float64) (m float64) {
	for _, v := range all {
		m += v / float64(len(all))
	}
	return m
}

// world is a network namespace for a test.
func world(t *testing.T) *lab.World {
	t.Helper()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}
