// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func timeAt(s int64) time.Time { return time.Unix(s, 0) }

// taken is what du says of a directory: the larger of sizes and blocks. It looks at the
// newest first, so that it never adds up files which were not there at the same time.
func taken(dir string) int64 {
	var sizes, blocks int64
	files, _ := os.ReadDir(dir)
	for _, f := range slices.Backward(files) {
		if st, err := f.Info(); err == nil {
			sizes += st.Size()
			blocks += st.Sys().(*syscall.Stat_t).Blocks * 512
		}
	}
	return max(sizes, blocks)
}

// watch looks at a directory from outside each 10 ms until stop is called, which returns
// the most that it saw.
func watch(dir string) (stop func() (most int64, looks int)) {
	var most atomic.Int64
	looks, done, ended := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most.Store(max(most.Load(), taken(dir)))
			looks++
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() (int64, int) { close(done); <-ended; return max(most.Load(), taken(dir)), looks + 1 }
}

// TestBudget writes many times the budget as fast as it can.
func TestBudget(t *testing.T) {
	dir := t.TempDir()
	const budget = 2 << 20
	stop := watch(dir)
	var last uint64
	for range 3 { // writers come and go
		w := open(t, dir, Options{Budget: budget, Streams: 1})
		for end := last + 6000; last < end; {
			last++
			if err := put(w, "a", last, 1000+int(last%7)*500); err != nil {
				t.Fatal(err)
			}
			if n := taken(dir); n > budget {
				t.Fatalf("frame %d: %d bytes, more than the budget of %d", last, n, budget)
			}
		}
		w.Close()
	}
	most, looks := stop()
	if most > budget {
		t.Errorf("at most %d bytes were seen from outside, more than the budget of %d", most, budget)
	}
	if most < budget*6/10 {
		t.Errorf("at most %d bytes of the budget of %d were used", most, budget)
	}
	got, damage := numbers(t, dir, &Want{})
	a := got[Stream("a")]
	if !equal(a, upTo(a[0], last)) || damage != (Damage{}) {
		t.Errorf("got %d to %d, %d frames, damage %+v", a[0], a[len(a)-1], len(a), damage)
	}
	t.Logf("%d looks, at most %d of %d bytes; frames %d to %d", looks, most, budget, a[0], last)
}

// TestShares has one stream write a hundred times as much as two others: they lose
// nothing as long as they are below their shares.
func TestShares(t *testing.T) {
	dir := t.TempDir()
	const budget = 2 << 20
	stop := watch(dir)
	w := open(t, dir, Options{Budget: budget, Streams: 3})
	var quiet, loud uint64
	for range 200 {
		for _, s := range []string{"q1", "q2"} {
			if err := put(w, s, quiet+1, 1000); err != nil {
				t.Fatal(err)
			}
		}
		quiet++
		for range 40 {
			loud++
			if err := put(w, "loud", loud, 2500); err != nil {
				t.Fatal(err)
			}
		}
		if n := taken(dir); n > budget {
			t.Fatalf("%d bytes, more than the budget of %d", n, budget)
		}
	}
	if most, _ := stop(); most > budget {
		t.Errorf("at most %d bytes were seen from outside, more than the budget of %d", most, budget)
	}
	check := func() {
		t.Helper()
		got, damage := numbers(t, dir, &Want{})
		for _, s := range []string{"q1", "q2"} {
			if q := got[Stream(s)]; !equal(q, upTo(1, quiet)) {
				t.Errorf("stream %s: got %v, want 1 to %d", s, q, quiet)
			}
		}
		if l := got[Stream("loud")]; len(l) < 200 || !equal(l, upTo(l[0], loud)) {
			t.Errorf("loud: %d frames", len(l))
		}
		if damage != (Damage{}) {
			t.Errorf("damage %+v", damage)
		}
		r, _ := Open(dir)
		r.Frames(&Want{}, func(f *Frame) error {
			if r.Schema(f.Schema) == nil {
				t.Errorf("frame %d has no schema", f.Seq)
			}
			return nil
		})
	}
	check()
	if w.Gone() == 0 {
		t.Error("no segment was deleted: nothing was tested")
	}
	// A writer that ended between copying and deleting leaves frames twice.
	_, streams := w.kept(w.closed[0])
	if len(streams) == 0 {
		t.Fatal("the oldest segment has nothing to keep")
	}
	if err := w.copyFrames(w.closed[0], streams); err != nil {
		t.Fatal(err)
	}
	check()
	w.Close()
	check()
}

// TestTooLarge refuses a frame that the budget has no room for, and goes on.
func TestTooLarge(t *testing.T) {
	w := open(t, t.TempDir(), Options{Budget: MinBudget})
	defer w.Close()
	if err := put(w, "a", 1, 2<<20); err != ErrTooLarge {
		t.Errorf("%v, want %v", err, ErrTooLarge)
	}
	if err := put(w, "a", 1, 1000); err != nil {
		t.Error(err)
	}
}

// TestDiskFull fills a small file system, with files of ours and with others'.
func TestDiskFull(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			dir := smallDisk(t, kind)
			w := open(t, filepath.Join(dir, "rec"), Options{Segment: 256 << 10})
			var n, refused uint64
			write := func(frames int) {
				for range frames {
					if n++; put(w, "a", n, 3000) != nil {
						refused++
					}
				}
			}
			write(4000) // 12 MB into 8: what is oldest goes
			if refused > 0 {
				t.Errorf("%d frames were refused though there was something older to delete", refused)
			}
			if w.Gone() == 0 {
				t.Error("nothing was deleted: the disk was not full")
			}
			// Others take the rest, and what we delete too.
			other, err := os.Create(filepath.Join(dir, "other"))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			for range 1000 {
				for {
					if _, err := other.Write(make([]byte, 4<<10)); err != nil {
						break
					}
				}
				if write(10); refused > 20 {
					break
				}
			}
			if refused == 0 {
				t.Error("nothing was refused: the disk was not full")
			}
			other.Close()
			os.Remove(other.Name())
			at := refused
			write(100)
			if refused > at {
				t.Errorf("%d of 100 frames were refused when there was room again", refused-at)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			got, damage := numbers(t, filepath.Join(dir, "rec"), &Want{})
			a := got[Stream("a")]
			for i := range a {
				if i > 0 && a[i] <= a[i-1] {
					t.Errorf("%d after %d", a[i], a[i-1])
				}
			}
			if len(a) < 100 || a[len(a)-1] != n || damage.Bytes != 0 {
				t.Errorf("got %d frames, the last %d, want %d; damage %+v", len(a), a[len(a)-1], n, damage)
			}
			t.Logf("%d written, %d refused, %d segments deleted, %d frames left", n, refused, w.Gone(), len(a))
		})
	}
}
