// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// served is the environment variable that makes the test binary serve at an
// address until it is killed.
const served = "SEINE_TEST_SERVE"

// serveAt echoes.
func serveAt(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	fmt.Println("listening")
	for {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}
}

// server starts one, and waits until it listens.
func server(t *testing.T, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), served+"="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestIncident is the example of docs/RECORDING.md: a server is down for a while, and
// three commands show afterwards what happened, with exact counts.
func TestIncident(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	dir := filepath.Join(t.TempDir(), "inc")
	first := server(t, addr)
	rec := start(t, nil, "record", "tcplife", "soconnect --where 'errno != nil'", "tcpretrans", "skbdrop", "--dir", dir, "--budget", "50M")
	for range 7 {
		echo(t, addr, 19)
	}
	first.Process.Kill()
	first.Wait()
	away := time.Now()
	for range 13 {
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens, and connect says %v", err)
		}
	}
	back := time.Now()
	second := server(t, addr)
	for range 5 {
		echo(t, addr, 19)
	}
	rec.signal(syscall.SIGINT)
	rec.wantEnd(0)

	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	served := func(args ...string) map[int]int {
		out := map[int]int{}
		for _, s := range sessionsIn(t, append([]string{"tcplife", "--from", dir, hereOnly(t), "--lport", port}, args...)...) {
			out[s.PID]++
		}
		return out
	}
	failed := strings.TrimSpace(run(t, "soconnect", "--from", dir, hereOnly(t), "--port", port, "--by", "errno", "--columns", "errno,count", "-o", "csv"))
	if want := "errno,count\nECONNREFUSED,13"; failed != want {
		t.Errorf("connects that failed: %q, want %q", failed, want)
	}
	if got := served("--until", at(away)); len(got) != 1 || got[first.Process.Pid] != 7 {
		t.Errorf("before %v processes served %v, want 7 by %d", away, got, first.Process.Pid)
	}
	if got := served("--since", at(back)); len(got) != 1 || got[second.Process.Pid] != 5 {
		t.Errorf("after %v processes served %v, want 5 by %d", back, got, second.Process.Pid)
	}
}
