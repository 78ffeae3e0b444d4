// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// taken is the size of a directory by du: the larger of sizes and blocks. A file that is
// renamed meanwhile may count twice, under two names. The budget bounds the files that
// exist at the same time, so the largest value that two looks agree on counts.
func taken(dir string) int64 {
	look := func() (sizes, blocks int64) {
		filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				sizes += info.Size()
				blocks += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		return sizes, blocks
	}
	for {
		s1, b1 := look()
		if s2, b2 := look(); s1 == s2 && b1 == b2 {
			return max(s1, b1)
		}
	}
}

// TestRecordBudget watches the directory of a recorder from another process, every 10
// ms, while one tool writes many times the budget. The directory never exceeds the
// budget, and a tool that writes little keeps all of its rows.
func TestRecordBudget(t *testing.T) {
	const budget, quiet = 1 << 20, 31
	dir := filepath.Join(t.TempDir(), "rec")
	l := echoServer(t)
	port := l.Addr().(*net.TCPAddr).Port
	p := start(t, nil, "record", fmt.Sprint("tcplife --rport ", port, " ", hereOnly(t)), fmt.Sprint("tcpsnoop --buffer 16M --port ", port), "--dir", dir, "--budget", fmt.Sprint(budget))

	var most int64
	looks, done, ended := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; looks++ {
			most = max(most, taken(dir))
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	loud, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer loud.Close()
	var began time.Time // the second of the quiet sessions
	buf := make([]byte, 1400)
	for i := range quiet {
		if i == 1 {
			began = time.Now()
		}
		echo(t, l.Addr().String(), i+1)
		for range 12000 { // each makes two packets or more, each of which has two rows
			some := buf[:1+rand.IntN(len(buf))] // so that rows do not compress to nothing
			if _, err := loud.Write(some); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(loud, some); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	close(done)
	<-ended
	if most = max(most, taken(dir)); most > budget || most < budget/2 {
		t.Errorf("%d bytes at most, of a budget of %d", most, budget)
	}
	if looks < 50 {
		t.Errorf("looked %d times", looks)
	}
	sent := map[int]int{}
	for _, s := range sessionsIn(t, "tcplife", "--from", dir, "--rport", fmt.Sprint(port)) {
		sent[s.TX]++
	}
	for i := range quiet {
		if sent[i+1] != 1 {
			t.Errorf("the session of %d bytes has %d rows", i+1, sent[i+1])
		}
	}
	for line := range strings.Lines(run(t, "record", "--list", dir, "-o", "json")) {
		var stream struct {
			Time   time.Time
			Stream string
			Rows   int
		}
		decode(t, line, &stream)
		if strings.HasPrefix(stream.Stream, "tcpsnoop") && !stream.Time.After(began) {
			t.Errorf("no row was deleted, so this tests nothing: %s", line)
		}
		t.Logf("%s: %d rows", stream.Stream, stream.Rows)
	}
	t.Logf("%d looks, at most %d of %d bytes", looks, most, budget)
}
