// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRecordKilled kills a recorder, the first time at once and then at random moments,
// while there are sessions one after the other, and starts it again in the same
// directory. Each run has recorded its first sessions, each once, except those of the
// last seconds. SEINE_KILLS is the number of kills.
func TestRecordKilled(t *testing.T) {
	t.Parallel()
	kills := 3
	if n, err := strconv.Atoi(os.Getenv("SEINE_KILLS")); err == nil {
		kills = n
	}
	dir := filepath.Join(t.TempDir(), "rec")
	l := echoServer(t)
	port := l.Addr().(*net.TCPAddr).Port
	sent := 0 // sessions, of which the n-th sends n bytes
	for kill := range kills {
		from := time.Now()
		p := start(t, nil, "record", fmt.Sprint("tcplife --rport ", port, " ", hereOnly(t)), "--dir", dir, "--budget", "1M")
		first := sent + 1
		var ends []time.Time
		for until := time.Now().Add(time.Duration(rand.IntN(1+kill*1500)) * time.Millisecond); time.Now().Before(until) || len(ends) == 0; {
			sent++
			echo(t, l.Addr().String(), sent)
			ends = append(ends, time.Now())
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		killed := time.Now()
		got := 0
		for line := range strings.Lines(run(t, "tcplife", "--from", dir, "--since", from.UTC().Format(time.RFC3339Nano), "--rport", fmt.Sprint(port), "--columns", "tx_bytes,pid,comm,lport,netns", "-o", "csv")) {
			tx, _, _ := strings.Cut(line, ",")
			n, err := strconv.Atoi(tx)
			if err != nil {
				continue // the head
			}
			if n != first+got {
				t.Fatalf("kill %d: session %d came after %d: one is missing, or twice: %s", kill, n, first+got-1, line)
			}
			got++
		}
		// Rows wait at most a second before they are written, and events 50 ms
		// before they become rows. A busy machine adds to that.
		for i, end := range ends[got:] {
			if age := killed.Sub(end); age > 4*time.Second {
				t.Fatalf("kill %d: session %d had ended %v before, and is missing: %d of %d are there", kill, first+got+i, age, got, len(ends))
			}
		}
		t.Logf("kill %d: %d of %d sessions", kill, got, len(ends))
	}
	var list struct{ Runs, Gaps int }
	decode(t, run(t, "record", "--list", dir, "-o", "json"), &list)
	if list.Gaps != 0 {
		t.Errorf("%d gaps", list.Gaps)
	}
}

// hereOnly is the filter by this process's network namespace: a server of another test may have the
// same port in another one.
func hereOnly(t *testing.T) string {
	t.Helper()
	fi, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("--netns=", fi.Sys().(*syscall.Stat_t).Ino)
}

// echoServer answers each connection with what it sends, until the test ends.
func echoServer(t *testing.T) net.Listener {
	t.Helper()
	l := listenLow(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l
}

// echo is a session with so many bytes each way.
func echo(t *testing.T, addr string, bytes int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	if n, err := io.Copy(io.Discard, c); err != nil || n != int64(bytes) {
		t.Fatalf("%d bytes came back of %d: %v", n, bytes, err)
	}
}
