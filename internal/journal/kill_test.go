// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// killed is the environment variable that has the test binary write frames until it is
// killed.
const killed = "SEINE_JOURNAL_KILLED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killed); dir != "" {
		writeForEver(dir)
	}
	os.Exit(m.Run())
}

// writeForEver prints the number of each frame once it is written.
func writeForEver(dir string) {
	n := uint64(0)
	if r, err := Open(dir); err == nil {
		r.Frames(&Want{Streams: map[uint64]bool{Stream("a"): true}}, func(f *Frame) error {
			n = max(n, f.Rows)
			return nil
		})
	}
	w, err := OpenWriter(dir, Options{Budget: 4 << 20, Segment: 40_000, Streams: 2, Sync: 50 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	for {
		n++
		if err := put(w, "a", n, 100+int(n*n%3000)); err != nil {
			panic(err)
		}
		if n%30 == 0 {
			if err := put(w, "quiet", n/30, 100); err != nil {
				panic(err)
			}
		}
		fmt.Println(n)
	}
}

// TestKilled kills a writer at random moments, which are often in the middle of a
// rotation, and starts it again in the same directory. SEINE_KILLS says how often.
func TestKilled(t *testing.T) {
	kills := 10
	if n, err := strconv.Atoi(os.Getenv("SEINE_KILLS")); err == nil {
		kills = n
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	most, unwhole := uint64(0), 0
	for range kills {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killed+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		in.ReadString('\n') // it writes
		time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { cmd.Process.Kill() })
		safe := uint64(0)
		for {
			line, err := in.ReadString('\n')
			if err == io.EOF {
				break
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64); err == nil {
				safe = n
			}
		}
		cmd.Wait()
		got, damage := numbers(t, dir, &Want{})
		a := got[Stream("a")]
		if len(a) == 0 || !equal(a, upTo(a[0], a[len(a)-1])) {
			t.Fatalf("frames are missing or twice: %v", a)
		}
		if last := a[len(a)-1]; last < safe {
			t.Fatalf("got frames up to %d, and %d had been written", last, safe)
		}
		if damage.Gaps > 0 {
			t.Errorf("%d gaps", damage.Gaps)
		}
		if damage.Bytes > 0 {
			unwhole++
		}
		if q := got[Stream("quiet")]; safe >= 30 && (len(q) == 0 || q[0] != 1) {
			t.Fatalf("the quiet stream lost its first frames: %d", len(q))
		}
		most = max(most, safe)
	}
	t.Attr("journal-killed", fmt.Sprintf("%d times, %d frames, %d times half a frame at the end", kills, most, unwhole))
}
