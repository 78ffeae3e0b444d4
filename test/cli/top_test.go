// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// topPatience is the time limit for a screen, whose tools are attached first.
const topPatience = 90 * time.Second

// A tmuxScreen is a real terminal, in which a shell runs.
type tmuxScreen struct {
	t      *testing.T
	socket string
}

// newTmux starts a terminal of a given size.
func newTmux(t *testing.T, columns, lines int) *tmuxScreen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal(err)
	}
	s := &tmuxScreen{t, filepath.Join(t.TempDir(), "s")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(lines), "env LANG=C.UTF-8 PS1='ready$ ' bash --norc --noprofile -i")
	t.Cleanup(func() { exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	s.await(`ready\$`)
	return s
}

func (s *tmuxScreen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *tmuxScreen) screen() string { s.t.Helper(); return s.tmux("capture-pane", "-p") }

// keys presses keys, by tmux's names.
func (s *tmuxScreen) keys(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

func (s *tmuxScreen) types(text string) { s.t.Helper(); s.tmux("send-keys", "-l", text) }

// await waits until the screen shows a pattern, and returns the screen.
func (s *tmuxScreen) await(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(topPatience); ; time.Sleep(50 * time.Millisecond) {
		now := s.screen()
		if re.MatchString(now) {
			return now
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen does not show %s:\n%s", pattern, now)
		}
	}
}

// state is tmux's state of the terminal: whether the alternate screen is shown,
// and the cursor.
func (s *tmuxScreen) state() string {
	s.t.Helper()
	return strings.TrimSpace(s.tmux("display-message", "-p", "alternate #{alternate_on} cursor #{cursor_flag}"))
}

// wantBack waits for the shell, and checks that the terminal is as before.
func (s *tmuxScreen) wantBack(mark string) {
	s.t.Helper()
	s.await(regexp.QuoteMeta(mark))
	if got := s.state(); got != "alternate 0 cursor 1" {
		s.t.Errorf("afterwards: %s, want alternate 0 cursor 1", got)
	}
	modes := s.await(`(?s)before (\S+).*after (\S+)`)
	m := regexp.MustCompile(`(?s)before (\S+).*after (\S+)`).FindStringSubmatch(strings.ReplaceAll(modes, "\n", " "))
	if m[1] != m[2] {
		s.t.Errorf("the modes of the terminal were %s and are %s", m[1], m[2])
	}
}

// top starts seine top, and prints the modes of the terminal before and after
// it.
func (s *tmuxScreen) top(args string) {
	s.t.Helper()
	s.types(`clear; echo before $(stty -g); ` + seine + ` top ` + args + `; echo "ended $?"; echo after $(stty -g)`)
	s.keys("Enter")
	s.await(`\[1 Services\]`)
}

// pid is the process of seine top.
func (s *tmuxScreen) pid() (pid int) {
	s.t.Helper()
	shell := strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_pid}"))
	out, err := exec.Command("pgrep", "-P", shell, "-f", seine+" top").Output()
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(out)))
	}
	if err != nil {
		s.t.Fatalf("pgrep: %v: %s", err, out)
	}
	return pid
}

// listenLow is [lab.ListenLow] for a test.
func listenLow(t *testing.T) net.Listener {
	t.Helper()
	l, err := lab.ListenLow()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ownComm is the name of this process.
func ownComm(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// brief makes n short connections to a server in this process, one after the
// other.
func brief(t *testing.T, n int) (port int) {
	t.Helper()
	port, err := briefly(n)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// briefly is brief in the network namespace of the calling thread.
func briefly(n int) (port int, err error) {
	l, err := lab.ListenLow()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go answer(l)
	return l.Addr().(*net.TCPAddr).Port, askOften(l.Addr(), n)
}

// askOften makes n short connections, one after the other.
func askOften(to net.Addr, n int) error {
	for range n {
		if err := ask(to); err != nil {
			return err
		}
	}
	return nil
}

// ask makes a short connection.
func ask(to net.Addr) error {
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	c.Write([]byte("hello"))
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
	return c.Close()
}

// answer answers connections until the listener is closed.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.Copy(c, c)
		c.Close()
	}
}

// TestTop: the screens, keys and sizes in a real terminal, over known traffic. Connections that
// lived for less than a refresh are counted to the last one, by both ends. They come in parts for
// which the ring has room, however late top is scheduled.
func TestTop(t *testing.T) {
	s := newTmux(t, 160, 24)
	s.top("")
	s.await(`live, last 10 s`)
	const n, part = 10_000, 2500
	l := listenLow(t)
	defer l.Close()
	go answer(l)
	port, name := l.Addr().(*net.TCPAddr).Port, ownComm(t)

	s.keys("4")
	s.await(`\[4 Events\]`)
	s.keys("/")
	s.await(`(?m)^filter:`)
	s.types(`kind == "closed" && (lpo`)
	s.keys("Tab")
	s.types(fmt.Sprintf(`== %d || rport == %d)`, port, port))
	s.keys("Enter")
	for done := part; done <= n; done += part {
		if err := askOften(l.Addr(), part); err != nil {
			t.Fatal(err)
		}
		for _, side := range []string{":", "→ 127.0.0.1:"} {
			s.await(fmt.Sprintf(`(?m) %d,%03d +closed +%s %s%d`, done/1000, done%1000, regexp.QuoteMeta(name), side, port))
		}
	}

	s.keys("c")
	s.await(`(?m)^seine tcplife `)
	s.keys("Enter")
	s.await(`how often +10,000`)
	s.keys("Escape")
	s.await(`Filter: kind`)
	for i, title := range []string{"Services", "Processes", "Connections", "Events", "Findings"} {
		s.keys(fmt.Sprint(i + 1))
		s.await(fmt.Sprintf(`\[%d %s\]`, i+1, title))
	}
	s.keys("Space")
	s.await(`PAUSED`)
	s.keys("Space")
	s.await(`live, last 10 s`)
	s.keys("?")
	s.await(`Columns of Findings`)
	s.keys("x") // any key; Escape and a key at once would be Alt

	s.keys("1")
	s.tmux("resize-window", "-x", "20", "-y", "5")
	s.await(`Too small`)
	s.tmux("resize-window", "-x", "160", "-y", "40")
	s.await(`WHERE THE TIME OF TURNS GOES`)
	if lines := strings.Split(strings.TrimRight(s.screen(), "\n"), "\n"); len(lines) != 40 {
		t.Errorf("%d lines, want 40", len(lines))
	}
	s.keys("q")
	s.wantBack("ended 0")
}

// TestTopEnds: however top ends, the terminal is as before.
func TestTopEnds(t *testing.T) {
	s := newTmux(t, 100, 30)
	for _, sig := range []string{"TERM", "INT", "HUP"} {
		s.top("")
		if err := exec.Command("kill", "-"+sig, fmt.Sprint(s.pid())).Run(); err != nil {
			t.Fatal(err)
		}
		s.wantBack("ended 0")
	}
}

// TestTopStops: Ctrl-Z suspends top, and fg restores the screen.
func TestTopStops(t *testing.T) {
	s := newTmux(t, 100, 30)
	s.types(`clear; ` + seine + ` top`)
	s.keys("Enter")
	s.await(`\[1 Services\]`)
	for n := range 20 { // one in fifty did not come back
		s.keys("C-z")
		s.await(`Stopped`)
		if got := s.state(); got != "alternate 0 cursor 1" {
			t.Errorf("stopped: %s, want alternate 0 cursor 1", got)
		}
		s.types(fmt.Sprintf(`clear; echo "it $((40+%d))"`, n))
		s.keys("Enter")
		s.await(fmt.Sprint(`it `, 40+n))
		s.types("fg")
		s.keys("Enter")
		s.await(`\[1 Services\]`)
	}
	s.keys("q")
	s.await(`fg\n(?s:.*)\nready\$\s*$`)
	if got := s.state(); got != "alternate 0 cursor 1" {
		t.Errorf("afterwards: %s, want alternate 0 cursor 1", got)
	}
}

// TestTopPlain: without a terminal the screen is printed as lines.
func TestTopPlain(t *testing.T) {
	p := start(t, nil, "top", "--screen", "events", "--plain", "1", "2")
	p.wantEnd(0)
	if out := p.out.String(); strings.Count(out, "TO WHOM") != 2 {
		t.Errorf("want 2 outputs:\n%s", out)
	}
	p = start(t, nil, "top", "--screen", "events", "--plain", "1")
	port := brief(t, 31)
	p.await(&p.out, fmt.Sprintf(`(?m)^\S+ +31 +closed +\S+ :%d\b`, port))
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	if out := p.out.String(); strings.ContainsFunc(out, isControl) {
		t.Errorf("control codes: %q", out)
	}
}

// TestTopJSON: the rows of all seconds add up to the traffic, even if seine is not
// scheduled for longer than it waits for late rows.
func TestTopJSON(t *testing.T) {
	p := start(t, nil, "top", "-o", "json")
	const n = 211
	port := brief(t, n)
	p.signal(syscall.SIGSTOP)
	late := brief(t, n)
	time.Sleep(5 * time.Second)
	p.signal(syscall.SIGCONT)
	for _, port := range []int{port, late} {
		ends := ended(t, p.out.String(), port)
		for late := time.After(patience); ends["server"] < n || ends["client"] < n; ends = ended(t, p.out.String(), port) {
			select {
			case <-p.out.new:
			case <-late:
				p.signal(syscall.SIGINT)
				p.wait()
				t.Fatalf("got %v connections that ended, want %d on each side: stderr %s", ends, n, p.err.String())
			}
		}
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	for _, port := range []int{port, late} {
		if ends := ended(t, p.out.String(), port); ends["server"] != n || ends["client"] != n {
			t.Errorf("got %v connections that ended, want %d on each side", ends, n)
		}
	}
}

// TestTopLost: connections that the ring has no room for are counted. Together with those that are
// shown they are all that there were.
func TestTopLost(t *testing.T) {
	p := start(t, nil, "top", "-o", "json")
	p.signal(syscall.SIGSTOP)
	const n = 10_000
	port := brief(t, n)
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	m := regexp.MustCompile(`seine: tcplife lost ([\d,]+) events`).FindStringSubmatch(p.err.String())
	if m == nil {
		t.Fatalf("want losses of tcplife: %s", p.err.String())
	}
	lost, err := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	ends := ended(t, p.out.String(), port)
	if shown := ends["server"] + ends["client"]; shown == 0 || lost == 0 || shown+lost < 2*n {
		t.Errorf("%v are shown and %d lost of %d connections with two ends each", ends, lost, n)
	}
}

// TestTopIdle: a screen without traffic takes little processor time. The promise is 1 % of a processor
// where nothing else runs. Beside other tests the same work takes more.
func TestTopIdle(t *testing.T) {
	const most, over = 0.03, 5 * time.Second
	s := newTmux(t, 120, 40)
	s.top("")
	wantIdle(t, "top", most, over, s.pid())
	s.keys("q")
	s.wantBack("ended 0")
}

// TestDemoTop: the demo has traffic of its own, and the fault in it is found.
func TestDemoTop(t *testing.T) {
	p := start(t, nil, "demo", "top", "-o", "json")
	for _, want := range []string{
		`"view":"services","service":"web :8080"`,
		`"view":"events"[^\n]*"kind":"closed"[^\n]*"rport":8080,"comm":"browser"`,
		`"view":"findings"[^\n]*"object":"web :8080"[^\n]*"class":"accept-queue"`,
	} {
		p.await(&p.out, want)
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
}

// ended counts the connections of a port that ended, by side, in the rows of top.
func ended(t *testing.T, rows string, port int) map[string]int {
	t.Helper()
	ends := map[string]int{}
	for line := range strings.Lines(rows) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var r struct {
			Tool, View, Kind    string
			Lport, Rport, Count int
			Time                time.Time
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r.Tool != "top" || r.View == "" || r.Time.IsZero() {
			t.Fatalf("a row without tool, view or time: %+v", r)
		}
		if r.Kind == "closed" && r.Lport == port {
			ends["server"] += r.Count
		}
		if r.Kind == "closed" && r.Rport == port {
			ends["client"] += r.Count
		}
	}
	return ends
}

// TestTopNobody: without privileges top names the missing ones, and does not
// change the terminal.
func TestTopNobody(t *testing.T) {
	cmd := exec.Command(seine, "top")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if got := exitCode(err); got != 4 || !strings.Contains(string(out), "CAP_BPF") {
		t.Errorf("exit %d, want 4: %s", got, out)
	}
}

// TestTopPast: a recording shows the past traffic, { goes back to the time before it, and
// missing parts of the recording are reported. The recording starts with other traffic.
func TestTopPast(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	p := start(t, nil, "record", "tcplife", "flows -i 1", "--dir", dir)
	brief(t, 1)
	time.Sleep(3 * time.Second) // more than the second of the recording's first row
	port := brief(t, 53)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)

	s := newTmux(t, 100, 30)
	s.top("--from " + dir)
	s.keys("4", "/")
	s.types(fmt.Sprintf("lport == %d", port))
	s.keys("Enter")
	s.await(fmt.Sprintf(`53 +closed +\S+ :%d`, port))
	s.keys("{")
	s.await(`\d+ s before its end`)
	s.await(`No row matches the filter|No connect failed`)
	s.keys("5")
	s.await(`it was not recorded`)
	s.keys("q")
	s.wantBack("ended 0")
}
