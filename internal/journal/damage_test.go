// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strconv"
	"testing"
)

// victim is a recording of one segment with its frames known.
type victim struct {
	name    string
	bytes   []byte
	entries []entry // in the file, index included
}

// victims are a segment that was closed and one whose writer was killed.
func victims(t testing.TB) []victim {
	dir := t.TempDir()
	w, err := OpenWriter(dir, Options{Segment: 1 << 30, Sync: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.Names([]byte("names of no consequence"))
	for n := uint64(1); n <= 200; n++ {
		if err := put(w, []string{"a", "b", "c"}[n%3], n, int(40+n*n%1300)); err != nil {
			t.Fatal(err)
		}
		if n%20 == 0 { // as it is repeated after a megabyte
			clear(w.cur.held)
		}
	}
	path := w.cur.path
	open, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	closed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return []victim{{"closed", closed, entriesOf(t, closed)}, {"killed", open, entriesOf(t, open)}}
}

func entriesOf(t testing.TB, b []byte) (out []entry) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := newScanner(f, 0); ; {
		_, e, err := s.next()
		if err != nil {
			return out
		}
		out = append(out, e)
	}
}

// survives damages a copy of v between from and to, and checks that all frames which
// are not touched come back, and nothing else.
func (v *victim) survives(t *testing.T, dir string, b []byte, from, to int64) {
	t.Helper()
	path := filepath.Join(dir, segmentName(1, epoch))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]bool{}
	schemas := map[uint64]bool{}
	for i := range v.entries {
		e := &v.entries[i]
		if e.off < to && e.off+e.size > from || e.off+e.size > int64(len(b)) {
			continue
		}
		if e.Kind == Rows {
			want[e.Seq] = true
		}
		if e.Kind == Schema {
			schemas[e.Schema] = true
		}
	}
	before := allocated()
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]bool{}
	err = r.Frames(&Want{}, func(f *Frame) error {
		n := binary.LittleEndian.Uint64(f.Data)
		if !slices.Equal(f.Data, payload(n, len(f.Data))) || f.Rows != n || f.Min != int64(n)*second {
			t.Errorf("%s %d-%d: a wrong frame %d", v.name, from, to, f.Seq)
		}
		if got[f.Seq] {
			t.Errorf("%s %d-%d: frame %d twice", v.name, from, to, f.Seq)
		}
		got[f.Seq] = true
		if schemas[f.Schema] && r.Schema(f.Schema) == nil {
			t.Errorf("%s %d-%d: schema lost though there was another copy", v.name, from, to)
		}
		return nil
	})
	used := allocated() - before
	if err != nil {
		t.Errorf("%s %d-%d: %v", v.name, from, to, err)
	}
	if used > uint64(8*len(v.bytes)+4*window) {
		t.Errorf("%s %d-%d: %d bytes were allocated for a file of %d", v.name, from, to, used, len(v.bytes))
	}
	for seq := range want {
		if !got[seq] {
			t.Errorf("%s %d-%d: frame %d was not touched and did not come back", v.name, from, to, seq)
			return
		}
	}
	// A file that ends where a frame does looks as if no more had been written.
	ends := slices.ContainsFunc(v.entries, func(e entry) bool { return e.off == int64(len(b)) })
	if len(want) < 200 && !ends && r.Damage() == (Damage{}) {
		t.Errorf("%s %d-%d: no damage was told of", v.name, from, to)
	}
}

var epoch = timeAt(0)

// allocated is how many bytes were allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// places is at how many random places each file is damaged. SEINE_PLACES says how many.
func places() int {
	if n, err := strconv.Atoi(os.Getenv("SEINE_PLACES")); err == nil {
		return n
	}
	return 300
}

func TestTruncated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	for _, v := range victims(t) {
		for range places() {
			at := r.Int64N(int64(len(v.bytes)))
			v.survives(t, dir, v.bytes[:at], at, int64(len(v.bytes)))
		}
	}
}

func TestFlipped(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	dir := t.TempDir()
	for _, v := range victims(t) {
		var at []int64
		for range places() {
			at = append(at, r.Int64N(int64(len(v.bytes))))
		}
		for i := range v.entries { // each kind of frame, and each part of one
			e := &v.entries[i]
			if i < 5 || e.Kind != Rows {
				for range 10 {
					at = append(at, e.off+r.Int64N(min(e.size, 40)))
				}
			}
		}
		for last := int64(len(v.bytes)) - 8; last < int64(len(v.bytes)); last++ {
			at = append(at, last)
		}
		for _, at := range at {
			b := slices.Clone(v.bytes)
			b[at] ^= 1 << r.IntN(8)
			v.survives(t, dir, b, at, at+1)
		}
	}
}

func TestZeroed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	dir := t.TempDir()
	for _, v := range victims(t) {
		for range 100 {
			from := r.Int64N(int64(len(v.bytes))) / block * block
			to := min(from+block, int64(len(v.bytes)))
			b := slices.Clone(v.bytes)
			clear(b[from:to])
			v.survives(t, dir, b, from, to)
		}
	}
}

// TestSchemaElsewhere checks that rows find their schema in another segment.
func TestSchemaElsewhere(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir, Options{Segment: 2000})
	for n := uint64(1); n <= 50; n++ {
		put(w, "a", n, 100)
	}
	w.Close()
	paths, _ := segments(dir)
	b, _ := os.ReadFile(paths[1])
	for _, e := range entriesOf(t, b) {
		if e.Kind == Schema {
			clear(b[e.off : e.off+e.size])
		}
	}
	os.WriteFile(paths[1], b, 0o600)
	r, _ := Open(dir)
	r.Frames(&Want{}, func(f *Frame) error {
		if string(r.Schema(f.Schema)) != "schema of a" {
			t.Errorf("frame %d: no schema", f.Seq)
		}
		return nil
	})
}

// FuzzRead feeds anything to the reader: it must neither fail nor take much memory.
func FuzzRead(f *testing.F) {
	var c contents
	var b []byte
	for n := uint64(1); n < 4; n++ {
		from := len(b)
		fr := Frame{Kind: Kind(n), Stream: n, Schema: n, Seq: n, Min: 5, Max: 7, Rows: n, Data: payload(n, 20)}
		b = appendFrame(b, &fr)
		fr.Data = nil
		c.add(entry{Frame: fr, off: int64(from), size: int64(len(b) - from)})
	}
	ix := indexFrame(&c)
	got, err := parse(ix)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(append(slices.Clone(b), ix...))
	f.Add(got.Data[:len(got.Data)-trailerBytes]) // which no checksum is in the way of
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		in := bytes.NewReader(b)
		c, _, err := look(in, int64(len(b)), every)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.entries {
			readFrame(in, &c.entries[i], nil)
		}
		if used := allocated() - before; used > uint64(64*len(b)+4*window) {
			t.Errorf("%d bytes were allocated for %d", used, len(b))
		}
		parseIndex(b, 1<<20, every)
	})
}
