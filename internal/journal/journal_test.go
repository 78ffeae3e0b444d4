// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// payload is the data of frame n: as long as size, and not to be guessed from others.
func payload(n uint64, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	r := rand.New(rand.NewPCG(n, 7))
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b
}

// second of the recordings in these tests.
const second = int64(time.Second)

// put writes frame n of a stream; its rows are n seconds after the epoch.
func put(w *Writer, stream string, n uint64, size int) error {
	id := Stream(stream)
	sch := w.Schema(id, []byte("schema of "+stream))
	return w.Put(&Frame{Kind: Rows, Stream: id, Schema: sch, Min: int64(n) * second, Max: int64(n)*second + 5, Rows: n, Data: payload(n, size)})
}

func open(t *testing.T, dir string, o Options) *Writer {
	t.Helper()
	if o.Sync == 0 {
		o.Sync = -1
	}
	w, err := OpenWriter(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// numbers reads what payload wrote, of each stream, in the order of reading. Data that
// payload did not write is an error.
func numbers(t *testing.T, path string, want *Want) (map[uint64][]uint64, Damage) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64][]uint64{}
	err = r.Frames(want, func(f *Frame) error {
		n := binary.LittleEndian.Uint64(f.Data)
		if !bytes.Equal(f.Data, payload(n, len(f.Data))) || f.Rows != n {
			t.Errorf("frame %d: a wrong one came back as number %d", f.Seq, n)
		}
		got[f.Stream] = append(got[f.Stream], n)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, r.Damage()
}

// upTo is from, from+1, … to.
func upTo(from, to uint64) (out []uint64) {
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return out
}

func equal(a, b []uint64) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestWriteRead(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{Segment: 20_000})
	w.Names([]byte("names"))
	for n := range uint64(300) {
		for _, s := range []string{"a", "b"} {
			if err := put(w, s, n+1, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	during, _ := numbers(t, dir, &Want{}) // while it is being written
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	paths, _ := segments(dir)
	if len(paths) < 4 {
		t.Errorf("there are %d segments, want several", len(paths))
	}
	after, damage := numbers(t, dir, &Want{})
	for _, s := range []string{"a", "b"} {
		if !equal(during[Stream(s)], upTo(1, 300)) || !equal(after[Stream(s)], upTo(1, 300)) {
			t.Errorf("stream %s: got %v while it was written, %v after, want 1 to 300", s, during[Stream(s)], after[Stream(s)])
		}
	}
	if damage != (Damage{}) {
		t.Errorf("damage %+v, want none", damage)
	}
	some, _ := numbers(t, dir, &Want{Streams: map[uint64]bool{Stream("b"): true}, Min: 100 * second, Max: 110 * second})
	if len(some) != 1 || !equal(some[Stream("b")], upTo(100, 110)) {
		t.Errorf("b from 100 to 110: got %v", some)
	}
	r, _ := Open(dir)
	sums, err := r.Summaries()
	if err != nil || sums[Stream("a")].Rows != 300*301/2 || sums[Stream("a")].Min != second || sums[Stream("a")].Max != 300*second+5 {
		t.Errorf("summaries: %+v %v", sums[Stream("a")], err)
	}
	var names string
	r.Frames(&Want{Names: func(b []byte) { names = string(b) }}, func(f *Frame) error {
		if f.Stream == Stream("a") && string(r.Schema(f.Schema)) != "schema of a" {
			t.Errorf("schema %q", r.Schema(f.Schema))
		}
		return nil
	})
	if names != "names" {
		t.Errorf("names %q", names)
	}
	one, _ := numbers(t, paths[1], &Want{})
	if a := one[Stream("a")]; len(a) == 0 || len(a) >= 300 || !equal(a, upTo(a[0], a[len(a)-1])) {
		t.Errorf("one segment alone: %v", a)
	}
}

// TestAgain checks that a writer goes on where another one stopped.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	for run := range uint64(5) {
		w := open(t, dir, Options{})
		for n := range uint64(10) {
			if err := put(w, "a", run*10+n+1, 50); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
	}
	got, damage := numbers(t, dir, &Want{})
	if !equal(got[Stream("a")], upTo(1, 50)) || damage != (Damage{}) {
		t.Errorf("got %v, damage %+v", got, damage)
	}
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{})
	if _, err := OpenWriter(dir, Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("a second writer: %v, want it refused with the first one's PID", err)
	}
	w.Close()
	open(t, dir, Options{}).Close()
}

// TestModes checks who can read recordings: not everyone.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	w := open(t, dir, Options{})
	put(w, "a", 1, 10)
	w.Close()
	paths, _ := segments(dir)
	for path, want := range map[string]os.FileMode{paths[0]: 0o640, dir: 0o750 | os.ModeDir} {
		if st, err := os.Stat(path); err != nil || st.Mode() != want {
			t.Errorf("%s: mode %v, want %v", path, st.Mode(), want)
		}
	}
}

// TestFollow reads with two readers while a writer writes and rotates.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{Segment: 10_000})
	const total = 500
	put(w, "a", 1, 100)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			r, err := Open(dir)
			if err != nil {
				results <- err
				return
			}
			next := uint64(1)
			enough := errors.New("enough")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err = r.Follow(ctx, &Want{}, func(f *Frame) error {
				if n := binary.LittleEndian.Uint64(f.Data); n != next {
					return fmt.Errorf("got %d, want %d", n, next)
				}
				if next++; next > total {
					return enough
				}
				return nil
			}, func() error { return nil })
			if err == enough {
				err = nil
			} else if err == nil {
				err = fmt.Errorf("got as far as %d", next-1)
			}
			results <- err
		}()
	}
	for n := uint64(2); n <= total; n++ {
		if err := put(w, "a", n, 100); err != nil {
			t.Fatal(err)
		}
		if n%50 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	w.Close()
	if paths, _ := segments(dir); len(paths) < 4 {
		t.Errorf("%d segments: it did not rotate", len(paths))
	}
}

// TestKeep checks that what is too old goes.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(0, 0)
	w := open(t, dir, Options{Segment: 2000, Keep: 100 * time.Second, Now: func() time.Time { return now }})
	for n := uint64(1); n <= 500; n++ {
		now = time.Unix(int64(n), 0)
		if err := put(w, "a", n, 100); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	got, _ := numbers(t, dir, &Want{})
	a := got[Stream("a")]
	if len(a) < 100 || len(a) > 130 || !equal(a, upTo(a[0], 500)) {
		t.Errorf("kept %d to %d, %d frames, want about the last 100", a[0], a[len(a)-1], len(a))
	}
}
