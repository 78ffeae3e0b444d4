// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/test/duckdb"
)

// agentPatience is the time limit for an answer of the agent, whose tools are
// attached first.
const agentPatience = 90 * time.Second

// A runningAgent is a real one.
type runningAgent struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log *bytes.Buffer
	out string // file with its standard output

	lines chan string // of its log that are not in log yet
}

// startAgent starts an agent at a free port.
func startAgent(t *testing.T, args ...string) *runningAgent {
	t.Helper()
	return startAgentBy(t, exec.Command, args...)
}

// startAgentBy does so by a function like [exec.Command].
func startAgentBy(t *testing.T, command func(string, ...string) *exec.Cmd, args ...string) *runningAgent {
	t.Helper()
	l := listenLow(t)
	address := l.Addr().String()
	l.Close()
	a := &runningAgent{t: t, url: "http://" + address, log: &bytes.Buffer{}}
	a.cmd = command(seine, append([]string{"agent", "--listen", address}, args...)...)
	a.out = filepath.Join(t.TempDir(), "out")
	out, err := os.Create(a.out)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a.cmd.Stdout = out
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10_000)
	a.lines = lines
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		a.cmd.Process.Kill()
		for line := range lines {
			fmt.Fprintln(a.log, line)
		}
		a.cmd.Wait()
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.log)
		}
	})
	timeout := time.After(agentPatience)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the agent ended:\n%s", a.log)
			}
			fmt.Fprintln(a.log, line)
			if line != "seine: ready" {
				continue
			}
		case <-timeout:
			t.Fatalf("the agent is not ready:\n%s", a.log)
		}
		break
	}
	a.await("/readyz", "ready")
	return a
}

// logged waits until the log has a line with a text.
func (a *runningAgent) logged(text string) {
	a.t.Helper()
	for timeout := time.After(agentPatience); ; {
		select {
		case line, ok := <-a.lines:
			if !ok {
				a.t.Fatalf("the agent ended before it logged %q", text)
			}
			fmt.Fprintln(a.log, line)
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			a.t.Fatalf("the agent does not log %q", text)
		}
	}
}

func (a *runningAgent) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// await waits until an answer matches a pattern, and returns it.
func (a *runningAgent) await(path, pattern string) string {
	a.t.Helper()
	got, err := a.within(agentPatience, path, pattern)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

// within waits until an answer matches a pattern, up to a limit.
func (a *runningAgent) within(patience time.Duration, path, pattern string) (string, error) {
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		got, err := a.get(path)
		if err == nil && re.MatchString(got) {
			return got, nil
		}
		if time.Now().After(end) {
			near := regexp.MustCompile(`(?m)^(# HELP|# TYPE|\S+_bucket).*\n`).ReplaceAllString(got, "")
			return "", fmt.Errorf("%s never is %s: %v\n%.20000s", path, pattern, err, near)
		}
	}
}

// An agentWorld is a network namespace that an agent looks at. Traffic of the rest of the
// machine is not in it: neither in the counts, nor among the series, nor in the buffers.
type agentWorld struct{ *lab.World }

func newAgentWorld(t *testing.T) agentWorld {
	t.Helper()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return agentWorld{w}
}

// start starts an agent that looks only at the world, without a limit of CPU
// time.
func (w agentWorld) start(t *testing.T, args ...string) *runningAgent {
	t.Helper()
	return startAgent(t, append([]string{fmt.Sprintf("--netns=%d", w.Netns("")), "--max-cpu=1000%"}, args...)...)
}

// counted makes n connections in the world and waits until metrics have them. Patterns have a
// %d for the port.
func (w agentWorld) counted(a *runningAgent, n int, patterns ...string) (port int) {
	a.t.Helper()
	err := lab.Undisturbed(func() (differ []error, err error) {
		if err := w.Do("", func() (err error) { port, err = briefly(n); return err }); err != nil {
			return nil, err
		}
		patience := agentPatience / 3
		for _, p := range patterns {
			if _, err := a.within(patience, "/metrics", fmt.Sprintf(p, port)); err != nil {
				differ = append(differ, err)
				patience = 0 // they have all had their time
			}
		}
		return differ, nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return port
}

// front is the process id of the second process.
func (a *runningAgent) front() int {
	a.t.Helper()
	for end := time.Now().Add(agentPatience); ; time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", a.cmd.Process.Pid))
		if err != nil {
			a.t.Fatal(err)
		}
		all := strings.Fields(string(b))
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
		for _, f := range tasks { // whichever thread has started it
			b, _ := os.ReadFile(f)
			all = append(all, strings.Fields(string(b))...)
		}
		if len(all) > 0 {
			pid, err := strconv.Atoi(all[0])
			if err != nil {
				a.t.Fatal(err)
			}
			return pid
		}
		if time.Now().After(end) {
			a.t.Fatal("the agent has no second process")
		}
	}
}

// TestAgent: known traffic is counted to the last turn and connection; the front has no
// capability and is confined by Landlock, the holder has no network socket; a front that is killed comes back, and nothing that
// happened meanwhile is missing.
func TestAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	w := newAgentWorld(t)
	collector := listenLow(t) // closed at once: nobody is there
	collector.Close()
	a := w.start(t, "--dir", dir, "--budget", "50M", "--otlp", "http://"+collector.Addr().String())
	name := ownComm(t)
	const n = 211
	in, out := name+" :%d", name+" → 127.0.0.1:%d"
	sessions := fmt.Sprintf(`seine_tcp_sessions_total\{end="orderly",service="%s",side="in"\} %d\n`, in, n)
	port := w.counted(a, n,
		fmt.Sprintf(`seine_tcp_accepts_total\{result="ok",service="%s",side="in"\} %d\n`, in, n),
		fmt.Sprintf(`seine_tcp_connects_total\{result="ok",service="%s",side="out"\} %d\n`, out, n),
		sessions,
		fmt.Sprintf(`seine_tcp_sessions_total\{end="orderly",service="%s",side="out"\} %d\n`, out, n),
		fmt.Sprintf(`seine_tcp_sent_bytes_total\{service="%s",side="in"\} %d\n`, in, 5*n),
		fmt.Sprintf(`seine_tcp_received_bytes_total\{service="%s",side="out"\} %d\n`, out, 5*n),
	)
	if text := a.await("/metrics", `seine_agent_lost_events_total\{kind="ring_full",tool="flows"\} \d+\n`); strings.Contains(text, `raddr`) {
		t.Error("the address of a client is a label")
	}

	a.exemplar(fmt.Sprintf(out, port), port)

	front := a.front()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", front))
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if !regexp.MustCompile(set + `:\t0000000000000000\n`).Match(status) {
			t.Errorf("the front has capabilities:\n%s", status)
		}
	}
	if !bytes.Contains(status, []byte("NoNewPrivs:\t1\n")) {
		t.Error("the front can get new privileges")
	}
	confined(t, front, dir, collector.Addr().(*net.TCPAddr).Port)
	if all := inetSockets(t, a.cmd.Process.Pid); len(all) != 0 {
		t.Errorf("the holder has network sockets: %q", all)
	}
	if all := inetSockets(t, front); len(all) == 0 {
		t.Error("the front has no network socket: the check is wrong")
	}

	if err := syscall.Kill(front, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := w.counted(a, n, sessions) // it begins while nobody answers
	a.await("/metrics", `seine_agent_front_starts_total 2\n`)
	if again := a.front(); again == front {
		t.Error("the front is the one that was killed")
	}

	// The recording has both, and the API asks it.
	query := fmt.Sprintf("/api/v1/query?tool=flows&where=lport%%3D%%3D%d", port)
	a.await(query, fmt.Sprintf(`"service":"%s :%d \(in\)"`, name, port))
	for _, p := range []int{port, second} {
		query := fmt.Sprintf("/api/v1/query?tool=tcplife&limit=100000&where=lport%%3D%%3D%d", p)
		for end := time.Now().Add(agentPatience); ; time.Sleep(200 * time.Millisecond) {
			rows, err := a.get(query)
			if got := strings.Count(rows, "\n"); err == nil && got == n {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%d rows of port %d are recorded, want %d: %v %.500s", got, p, n, err, rows)
			}
		}
	}
	a.cmd.Process.Signal(os.Interrupt)
	gone := make(chan error, 1)
	go func() { gone <- waitGone(a.front0(front)) }()
	if err := <-gone; err != nil {
		t.Error(err)
	}
}

// exemplar wants an exemplar of connects to a service to have this process and a socket, whose row in
// the recording has the same value.
func (a *runningAgent) exemplar(service string, port int) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+"/metrics", nil)
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	m := regexp.MustCompile(`seine_tcp_connect_seconds_bucket\{service="` + service + `",side="out",le="[^"]+"\} \d+ # \{pid="(\d+)",sock="(\d+)"\} (\S+) `).FindSubmatch(text)
	if m == nil {
		a.t.Fatalf("%s has no exemplar", service)
	}
	if string(m[1]) != fmt.Sprint(os.Getpid()) {
		a.t.Errorf("the exemplar is of process %s, want %d", m[1], os.Getpid())
	}
	var row struct {
		Rport   int
		Latency float64 `json:"latency_us"`
	}
	if err := json.Unmarshal([]byte(a.await("/api/v1/query?tool=soconnect&where=sock%3D%3D"+string(m[2]), `^[^\n]+\n$`)), &row); err != nil {
		a.t.Fatal(err)
	}
	if value, err := strconv.ParseFloat(string(m[3]), 64); err != nil || row.Rport != port || math.Abs(row.Latency/1e6-value) > 1e-9 {
		a.t.Errorf("the exemplar has %s s, its row in the recording %+v", m[3], row)
	}
}

// front0 is the processes of the agent that must have ended in the end.
func (a *runningAgent) front0(pids ...int) []int { return append(pids, a.cmd.Process.Pid) }

// waitGone waits until processes have ended, or are zombies.
func waitGone(pids []int) error {
	for end := time.Now().Add(agentPatience); ; time.Sleep(50 * time.Millisecond) {
		left := 0
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !bytes.Contains(b, []byte(") Z ")) {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the agent does not end")
		}
	}
}

// inetSockets is the local addresses of the IP sockets of a process, as /proc/net has them.
func inetSockets(t *testing.T, pid int) (out []string) {
	t.Helper()
	inodes := map[string]string{}
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		b, err := os.ReadFile("/proc/net/" + file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 {
				inodes["socket:["+f[9]+"]"] = f[1]
			}
		}
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("the descriptors of %d: %v", pid, err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && inodes[to] != "" {
			out = append(out, inodes[to])
		}
	}
	return out
}

// ownMetrics is a config with metrics of rows and of histograms, in the network namespace %[1]d.
const ownMetrics = `metrics:
- {name: my_sessions_total, help: Sessions., type: counter, tool: tcplife --netns=%[1]d, labels: {port: lport, process: comm}}
- {name: my_queue_seconds, help: Time in queues., type: histogram, tool: qdisclat -i 1 --netns=%[1]d, labels: {dev: dev, kind: kind}, value: latency_us}
`

// TestAgentReload: metrics of the config file count rows of any tool. An invalid config changes nothing.
// A valid one is applied, and counts stay.
func TestAgentReload(t *testing.T) {
	w := newAgentWorld(t)
	config := filepath.Join(t.TempDir(), "agent.yaml")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(fmt.Sprintf(ownMetrics, w.Netns(""))+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("host: first.example\n")
	a := w.start(t, "--config", config)
	asked := func(name string) int {
		req, err := http.NewRequest(http.MethodGet, a.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = name
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := asked("first.example"); got != http.StatusOK {
		t.Errorf("first.example: %d", got)
	}
	const n = 101
	line := `seine_tcp_accepts_total\{result="ok",service="\S+ :%d",side="in"\} ` + fmt.Sprint(n) + `\n`
	own := fmt.Sprintf(`my_sessions_total\{port="%%d",process="%s"\} %d\n`, ownComm(t), n)
	port := w.counted(a, n, line, own)
	line, own = fmt.Sprintf(line, port), fmt.Sprintf(own, port)
	w.queued(a)
	front := a.front()

	write("hots: second.example\n")
	a.cmd.Process.Signal(syscall.SIGHUP)
	a.logged("the config is not valid") // before the file changes again: else it may be read while it is empty
	write("host: second.example\n")
	a.cmd.Process.Signal(syscall.SIGHUP)
	for end := time.Now().Add(agentPatience); asked("second.example") != http.StatusOK; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new config is not taken")
		}
	}
	if got := asked("first.example"); got != http.StatusMisdirectedRequest {
		t.Errorf("first.example: %d, want 421", got)
	}
	if a.front() == front {
		t.Error("the front is the old one")
	}
	a.await("/metrics", line)
	a.await("/metrics", own)
	var status struct{ Ready bool }
	if err := json.Unmarshal([]byte(a.await("/api/v1/status", "ready")), &status); err != nil || !status.Ready {
		t.Errorf("%+v, %v", status, err)
	}
}

// TestAgentDiskFull: if the disk is full, the agent says so in its log and goes on.
func TestAgentDiskFull(t *testing.T) {
	w := newAgentWorld(t)
	disk := t.TempDir()
	if err := unix.Mount("seine-test", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	a := w.start(t, "--dir", filepath.Join(disk, "rec"))
	os.WriteFile(filepath.Join(disk, "fill"), make([]byte, 64<<10), 0o600) // as far as there is room
	const n = 11
	w.counted(a, n, `seine_tcp_accepts_total\{result="ok",service="\S+ :%d",side="in"\} `+fmt.Sprint(n)+`\n`)
	a.logged("rows were not recorded: the disk is full")
	a.await("/metrics", `seine_recorder_lost_rows_total [1-9]`)
}

// queued sends packets into a queue with a rate. The agent must count each, with at least the time that
// the rate makes them wait.
func (w agentWorld) queued(a *runningAgent) {
	a.t.Helper()
	// Where the kernel exempts a process from BPF (qdisclat's README), a packet that a timer sends on top of
	// it is not seen. Their share is the process's share of a processor.
	const n, bytes, rate, burst = 41, 1000, 1_000_000, 5
	tap, err := w.OpenTap("", "tap0")
	if err != nil {
		a.t.Fatal(err)
	}
	defer tap.Close()
	if err := w.SetQdisc("", "tap0", lab.Qdisc{Kind: "tbf", Rate: rate, Burst: burst * bytes, Limit: 1 << 20}); err != nil {
		a.t.Fatal(err)
	}
	begun := time.Now()
	if _, err := w.SendFrames("", "tap0", n, bytes); err != nil {
		a.t.Fatal(err)
	}
	sending := time.Since(begun).Seconds()
	of := `my_queue_seconds_%s\{dev="tap0",kind="tbf"\} `
	text := a.await("/metrics", fmt.Sprintf(of, "count")+`(3[5-9]|4[01])\n`)
	number := func(of string) float64 {
		f, err := strconv.ParseFloat(regexp.MustCompile(of + `(\S+)`).FindStringSubmatch(text)[1], 64)
		if err != nil {
			a.t.Fatal(err)
		}
		return f
	}
	sum, seen, least := number(fmt.Sprintf(of, "sum")), number(fmt.Sprintf(of, "count")), 0.0
	for i := range int(seen) - burst {
		least += max(0, float64(i)*bytes/rate-sending)
	}
	if sum < least {
		a.t.Errorf("%g packets waited for %g s in all, want at least %g", seen, sum, least)
	}
}

// TestAgentDemo: the address of the page is printed, the fault of the demo is found, nothing but
// loopback is opened, and the demo's processes end with the agent.
func TestAgentDemo(t *testing.T) {
	a := startAgent(t, "--demo")
	a.await("/api/v1/findings", `"class":"app-slow","severity":"(warn|bad)","object":"demo-shop :\d+"`)
	a.await("/api/v1/findings", `"class":"connect-refused","severity":"(warn|bad)","object":"demo-visitor → 127.0.0.1:\d+"`)
	a.await("/api/v1/map", `"label":"demo-shop"`)
	var all []int
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(b), "demo-") {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			all = append(all, pid)
		}
	}
	if len(all) < 2 {
		t.Errorf("the processes of the demo are %v", all)
	}
	if out, err := os.ReadFile(a.out); err != nil || string(out) != a.url+"/\n" {
		t.Errorf("it prints %q, want the address of the page, %s/ (%v)", out, a.url, err)
	}
	loopback := regexp.MustCompile(`^(.{6}7F|0{24}01000000|0{16}FFFF0000.{6}7F):`) // 127.0.0.0/8 and ::1, in the kernel's form
	for _, pid := range append([]int{a.front()}, all...) {
		sockets := inetSockets(t, pid)
		if i := slices.IndexFunc(sockets, func(s string) bool { return !loopback.MatchString(s) }); i >= 0 || len(sockets) == 0 && pid == a.front() {
			t.Errorf("process %d has the sockets %q, want some on loopback alone", pid, sockets)
		}
	}
	a.cmd.Process.Signal(os.Interrupt)
	if err := waitGone(a.front0(all...)); err != nil {
		t.Error(err)
	}
	out, err := exec.Command(seine, "agent", "--demo", "--listen", "0.0.0.0:7346").CombinedOutput()
	if exitCode(err) != 2 || !strings.Contains(string(out), "not on loopback") {
		t.Errorf("exit %d, %s", exitCode(err), out)
	}
}

var recovers = flag.Bool("recovers", false, "wait until an agent that did less does all again, which it does after a minute")

// The agent measures its BPF programs every 6 s, and keeps each value until the next: it
// is compared after bpfHeard, for bpfTimed.
const (
	bpfHeard = 7 * time.Second
	bpfTimed = 20 * time.Second
)

// TestAgentSheds: an agent above its CPU limit stops some work, first rows of
// connections, one step a minute. It reports that, continues with the rest, and with
// -recovers starts the work again when the load is lower. Its figures of BPF time agree
// with the kernel's.
func TestAgentSheds(t *testing.T) {
	t.Parallel()
	w := newAgentWorld(t)
	limit := "--max-cpu=5%"
	if *recovers {
		limit = "--max-cpu=15%" // it must take less than half of it while metrics are read
	}
	a := startAgent(t, fmt.Sprintf("--netns=%d", w.Netns("")), limit)
	load := watchLoad(a.cmd.Process.Pid, a.front())
	busy := make(chan error, 1)
	enough := make(chan struct{})
	go func() {
		busy <- w.Do("", func() error {
			l, err := lab.ListenLow() // one service: series are not what there is too much of
			if err != nil {
				return err
			}
			defer l.Close()
			go answer(l)
			for i := 0; ; i++ {
				if i%50 == 0 {
					select {
					case <-enough:
						return nil
					case <-time.After(10 * time.Millisecond):
					}
				}
				if err := ask(l.Addr()); err != nil {
					return err
				}
			}
		})
	}()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(bpfHeard)
	began := time.Now()
	said, ran := a.value("seine_agent_bpf_seconds_total"), programTime(t, a.cmd.Process.Pid)
	text := a.await("/metrics", `seine_agent_shed\{tool="flows: rows of connections"\} 1\n`)
	t.Logf("ended after %v", bpfHeard+time.Since(began))
	if at := load.end(); at.above(limit) {
		t.Errorf("its processes alone took more than %s in each second of the last %v: %v", limit, shedWithin, at)
	}
	if n := strings.Count(text, "\nseine_agent_shed{"); n != 1 {
		t.Errorf("%d tools are ended at once", n)
	}

	time.Sleep(time.Until(began.Add(bpfTimed)))
	said, ran = a.value("seine_agent_bpf_seconds_total")-said, programTime(t, a.cmd.Process.Pid)-ran
	stats.Close()
	t.Logf("BPF programs ran for %.3f s, and the agent says %.3f s", ran, said)
	if ran == 0 || said < ran/4 || said > ran*4 {
		t.Errorf("BPF programs ran for %g s, and the agent says %g s", ran, said)
	}

	close(enough)
	if err := <-busy; err != nil {
		t.Fatal(err)
	}
	const n = 53
	w.counted(a, n, `seine_tcp_sessions_total\{end="orderly",service="\S+ :%d",side="in"\} `+fmt.Sprint(n)+`\n`)

	if !*recovers {
		return
	}
	// No step is before a minute of less than half. There may have been a second one before.
	quiet := time.Now()
	for end := quiet.Add(3 * agentPatience); ; time.Sleep(5 * time.Second) { // answering takes time too
		text, err := a.get("/metrics")
		if err == nil && !strings.Contains(text, `seine_agent_shed{tool="flows`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("what was ended does not begin again: %v", regexp.MustCompile(`seine_agent_(shed|cpu|bpf).*`).FindAllString(text, -1))
		}
	}
	t.Logf("begun again after %v", time.Since(quiet))
	// It really runs: an active connection is among the rows.
	var port int
	err = w.Do("", func() error {
		l, err := lab.ListenLow()
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		port = l.Addr().(*net.TCPAddr).Port
		go func() {
			for {
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a.await("/api/v1/connections", fmt.Sprintf(`"rport":%d\b`, port))
}

// shedWithin is how soon an overloaded agent does less.
const shedWithin = 20 * time.Second

// A load is the seconds of processor time that processes had taken in all, told every two seconds.
type load []float64

// A loadWatch tells the load of processes until it is ended.
type loadWatch struct {
	stop chan struct{}
	load chan load
}

func watchLoad(pids ...int) *loadWatch {
	w := &loadWatch{make(chan struct{}), make(chan load, 1)}
	go func() {
		tick := time.NewTicker(loadEvery)
		defer tick.Stop()
		var all load
		for {
			sum := 0.0
			for _, pid := range pids {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the state on
				if len(f) > 12 {
					user, _ := strconv.Atoi(f[11])
					system, _ := strconv.Atoi(f[12])
					sum += float64(user+system) / 100
				}
			}
			all = append(all, sum)
			select {
			case <-tick.C:
			case <-w.stop:
				w.load <- all
				return
			}
		}
	}()
	return w
}

const loadEvery = 2 * time.Second

func (w *loadWatch) end() load {
	close(w.stop)
	return <-w.load
}

// above reports whether the load was above a limit, such as --max-cpu=5%, each time in shedWithin
// until its end.
func (l load) above(limit string) bool {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(limit, "--max-cpu="), "%"), 64)
	n := int(shedWithin / loadEvery)
	if err != nil || len(l) <= n {
		return false
	}
	l = l[len(l)-n-1:]
	for i := range n {
		if l[i+1]-l[i] <= percent/100*loadEvery.Seconds() {
			return false
		}
	}
	return true
}

// value is a metric without labels.
func (a *runningAgent) value(name string) float64 {
	a.t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(a.await("/metrics", `(?m)^`+name+` `))
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return v
}

// programTimes are the run times of the BPF programs that a process holds, in seconds, while the
// kernel measured them.
func programTimes(t *testing.T, pid int) map[ebpf.ProgramID]float64 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[ebpf.ProgramID]float64{}
	id, ran := regexp.MustCompile(`(?m)^prog_id:\s*(\d+)$`), regexp.MustCompile(`(?m)^run_time_ns:\s*(\d+)$`)
	for _, f := range files {
		b, _ := os.ReadFile(f)
		i, r := id.FindSubmatch(b), ran.FindSubmatch(b)
		if i == nil || r == nil {
			continue
		}
		n, err := strconv.ParseUint(string(i[1]), 10, 32)
		ns, err2 := strconv.ParseFloat(string(r[1]), 64)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		all[ebpf.ProgramID(n)] = ns / 1e9
	}
	if len(all) == 0 {
		t.Fatal("the agent has no BPF programs")
	}
	return all
}

// programTime is the sum of programTimes.
func programTime(t *testing.T, pid int) (seconds float64) {
	t.Helper()
	for _, s := range programTimes(t, pid) {
		seconds += s
	}
	return seconds
}

// TestAgentRefuses: errors are reported before anything is attached, with the
// next step.
func TestAgentRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--check-config"}, 0, "the config is valid: 9 tools, 0 metrics of its own"},
		{[]string{"--check-config", "--config", file("")}, 0, "the config is valid"},
		{[]string{"--check-config", "--listen", "7346"}, 2, "want an address and a port"},
		{[]string{"--check-config", "--otlp", "localhost"}, 2, "http://127.0.0.1:4318"},
		{[]string{"--check-config", "--parquet", dir}, 2, "--parquet needs --dir"},
		{[]string{"--check-config", "--series", "10"}, 2, "at least"},
		{[]string{"--check-config", "--max-cpu", "2"}, 2, "write 2%"},
		{[]string{"--check-config", "--log", "xml"}, 2, "text or json"},
		{[]string{"--check-config", "--web-config", "/nosuch"}, 2, "/nosuch"},
		{[]string{"--check-config", "--config", "/nosuch"}, 2, "/nosuch"},
	} {
		out, err := exec.Command(seine, append([]string{"agent"}, c.args...)...).CombinedOutput()
		if exitCode(err) != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: exit %d, %s; want %d, %q", c.args, exitCode(err), out, c.code, c.want)
		}
	}
	for text, want := range map[string]string{
		"lisen: x\n":           "did you mean listen?",
		"budget: lots\n":       "line 1: budget",
		"tools: [nosuch]\n":    `there is no tool "nosuch"`,
		"tools: [tcplife, 3,]": `there is no tool "3"`,
		"metrics: [{name: a_total, help: h, type: counter, tool: tcplife, labels: {a: nosuch}}]\n": "nosuch",
		"metrics: [{name: a_total, help: h, type: counter, tool: 'tcplife --nosuch'}]\n":           "nosuch",
	} {
		out, err := exec.Command(seine, "agent", "--check-config", "--config", file(text)).CombinedOutput()
		if exitCode(err) != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: exit %d, %s; want 2, %q", text, exitCode(err), out, want)
		}
	}
	out, err := exec.Command(seine, "agent-front").CombinedOutput()
	if exitCode(err) != 2 || !strings.Contains(string(out), "is started by 'seine agent'") {
		t.Errorf("exit %d, %s", exitCode(err), out)
	}
}

// talk opens a connection in the world. A byte goes there and back every 100 ms until the test ends.
// It returns the client's port.
func (w agentWorld) talk(t *testing.T) (port int) {
	t.Helper()
	var client, server net.Conn
	err := w.Do("", func() error {
		l, err := lab.ListenLow()
		if err != nil {
			return err
		}
		defer l.Close()
		if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
			return err
		}
		server, err = l.Accept()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	go io.Copy(server, server)
	go func() {
		b := make([]byte, 1)
		for {
			_, err := client.Write(b)
			if err == nil {
				_, err = io.ReadFull(client, b)
			}
			if err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return client.LocalAddr().(*net.TCPAddr).Port
}

// A heldConn is a connection as the API shows it.
type heldConn struct {
	PID   int
	Comm  string
	Lport int
	Role  string
	Older bool
}

// conn waits until the API has the connection with a local port.
func (a *runningAgent) conn(lport int) (c heldConn) {
	a.t.Helper()
	var all struct{ Connections []heldConn }
	if err := json.Unmarshal([]byte(a.await("/api/v1/connections", fmt.Sprintf(`"lport":%d,`, lport))), &all); err != nil {
		a.t.Fatal(err)
	}
	return all.Connections[slices.IndexFunc(all.Connections, func(c heldConn) bool { return c.Lport == lport })]
}

// TestAgentKilled: nothing of an agent that is killed stays: not its front, no BPF program. The
// recording survives, and the next agent goes on with it. It finds the connections that are open,
// and marks them as older than itself.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	w := newAgentWorld(t)
	dir, parquet := t.TempDir(), t.TempDir()
	flags := []string{fmt.Sprintf("--netns=%d", w.Netns("")), "--dir", dir, "--parquet", parquet}
	began := time.Now()
	const n, sessions = 17, `seine_tcp_sessions_total\{end="orderly",service="\S+ :%d",side="in"\} 17\n`
	recorded := func(a *runningAgent, port int) {
		t.Helper()
		a.await(fmt.Sprintf("/api/v1/query?tool=tcplife&limit=100000&where=lport%%3D%%3D%d", port), fmt.Sprintf(`^([^\n]+\n){%d}$`, n))
	}
	held := func(a *runningAgent, lport int, older bool) {
		t.Helper()
		if got, want := a.conn(lport), (heldConn{os.Getpid(), ownComm(t), lport, "client", older}); got != want {
			t.Errorf("the connection is %+v, want %+v", got, want)
		}
	}
	first := w.talk(t)
	a := startAgent(t, flags...)
	second := w.talk(t)
	held(a, first, true)
	held(a, second, false)
	before := w.counted(a, n, sessions)
	recorded(a, before)
	front, programs := a.front(), slices.Collect(maps.Keys(programTimes(t, a.cmd.Process.Pid)))
	killed := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := waitGone(a.front0(front)); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(agentPatience); ; time.Sleep(50 * time.Millisecond) { // the kernel frees them after a grace period
		left := slices.DeleteFunc(slices.Clone(programs), func(id ebpf.ProgramID) bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d BPF programs stay", len(left), len(programs))
		}
	}
	a = startAgent(t, flags...)
	third := w.talk(t)
	held(a, first, true)
	held(a, second, true)
	held(a, third, false)
	after := w.counted(a, n, sessions)
	recorded(a, before)
	recorded(a, after)
	oldest := regexp.MustCompile(`(?m)^seine_recorder_oldest_timestamp_seconds\{tool="tcplife"\} (\S+)$`)
	text := a.await("/metrics", oldest.String())
	if s, err := strconv.ParseFloat(oldest.FindStringSubmatch(text)[1], 64); err != nil || s < float64(began.Unix()) || s > float64(killed.Unix()+1) {
		t.Errorf("the recording begins at %f, want from %d to %d (%v)", s, began.Unix(), killed.Unix(), err)
	}

	// Its segments are Parquet files too, also the one of the agent that was killed.
	front = a.front()
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := waitGone(a.front0(front)); err != nil {
		t.Fatal(err)
	}
	sql := fmt.Sprintf("select cast(count(*) filter (where lport = %d) as integer) a, cast(count(*) filter (where lport = %d) as integer) b from read_parquet('%s/tool=tcplife/date=*/*.parquet')", before, after, parquet)
	if got, want := duckdb.Query(t, sql), fmt.Sprintf(`[{"a":%d,"b":%[1]d}]`, n); got != want {
		t.Errorf("DuckDB: %s, want %s", got, want)
	}
	sql = fmt.Sprintf("select cast(sum(turn_us.count) as integer) turns from read_parquet('%s/tool=flows/date=*/*services*.parquet') where side = 'in' and lport in (%d, %d)", parquet, before, after)
	if got, want := duckdb.Query(t, sql), fmt.Sprintf(`[{"turns":%d}]`, 2*n); got != want {
		t.Errorf("DuckDB: %s, want %s", got, want)
	}
}

// TestAgentIdle: an agent without traffic takes little processor time. The promise is 1 % of a processor
// where nothing else runs. Beside other tests the same work takes more: 1.4 % was seen.
func TestAgentIdle(t *testing.T) {
	t.Parallel()
	const most, over = 0.03, 10 * time.Second
	w := newAgentWorld(t)
	a := w.start(t)
	wantIdle(t, "agent", most, over, a.cmd.Process.Pid, a.front())
}

// wantIdle checks that processes which have just begun take little processor time.
func wantIdle(t *testing.T, what string, most float64, over time.Duration, pids ...int) {
	t.Helper()
	time.Sleep(3 * time.Second) // the start counts apart
	used := func() (sum time.Duration) {
		for _, pid := range pids {
			var at unix.Timespec
			if err := unix.ClockGettime(^int32(pid)<<3|2, &at); err != nil { // CLOCK_PROCESS_CPUTIME_ID of that process
				t.Fatal(err)
			}
			sum += time.Duration(at.Nano())
		}
		return sum
	}
	before, began := used(), time.Now()
	time.Sleep(over)
	share := float64(used()-before) / float64(time.Since(began))
	t.Logf("an idle %s takes %.2f %% of a processor", what, 100*share)
	if share > most {
		t.Errorf("an idle %s takes %.2f %% of a processor, want at most %.0f", what, 100*share, 100*most)
	}
}

// TestAgentDryRun: --dry-run says how many series there would be, with those of traffic meanwhile,
// and opens no port.
func TestAgentDryRun(t *testing.T) {
	t.Parallel()
	l := listenLow(t) // an agent would need its port
	defer l.Close()
	out, err := exec.Command(seine, "agent", "--dry-run", "--series", "700", "--listen", l.Addr().String()).CombinedOutput()
	said := regexp.MustCompile(`(?m)^([\d,]+) series of 700, in ([\d,]+) label sets$`).FindSubmatch(out)
	if err != nil || said == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if series, err := strconv.Atoi(strings.ReplaceAll(string(said[1]), ",", "")); err != nil || series == 0 || series > 700 {
		t.Errorf("%d series (%v)", series, err)
	}
}
