// SPDX-License-Identifier: Apache-2.0

package cpio

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// One file in one directory, byte by byte as the kernel's document has it.
func TestGolden(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	must(t, w.File("/a/b", 0o750, 5, strings.NewReader("hello")))
	must(t, w.Close())

	zero := "00000000"
	want := "070701" + "00000001" + "000041ed" + zero + zero + "00000001" + zero + zero +
		zero + zero + zero + zero + "00000002" + zero + "a\x00" +
		"070701" + "00000002" + "000081e8" + zero + zero + "00000001" + zero + "00000005" +
		zero + zero + zero + zero + "00000004" + zero + "a/b\x00" + "\x00\x00" + "hello\x00\x00\x00" +
		"070701" + zero + zero + zero + zero + "00000001" + zero + zero +
		zero + zero + zero + zero + "0000000b" + zero + trailer + "\x00" + "\x00\x00\x00"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

// Names and bodies of every length modulo four come back from a reader that
// was written from the format, not from the writer.
func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	want := []entry{{"d", 0o40755, ""}}
	must(t, w.Dir("/d"))
	must(t, w.Dir("d/"))
	for n := range 13 {
		e := entry{"d/" + strings.Repeat("n", n+1), 0o100644, strings.Repeat("x", n)}
		must(t, w.File(e.name, 0o644, int64(n), strings.NewReader(e.body)))
		want = append(want, e)
	}
	must(t, w.Symlink("/d/link", "../target"))
	want = append(want, entry{"d/link", 0o120777, "../target"})
	must(t, w.Close())

	if got := read(t, b.Bytes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// GNU cpio, where there is one, must agree with us too.
func TestAgainstCpio(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio here to compare with")
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	must(t, w.File("/etc/hosts", 0o644, 3, strings.NewReader("abc")))
	must(t, w.Symlink("/bin", "usr/bin"))
	must(t, w.Close())
	cmd := exec.Command(tool, "--list", "--quiet")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	if want := "etc\netc/hosts\nbin\n"; err != nil || string(out) != want {
		t.Errorf("cpio says %q (%v), want %q", out, err, want)
	}
}

func TestShortBody(t *testing.T) {
	w := NewWriter(io.Discard)
	if err := w.File("f", 0o644, 4, strings.NewReader("abc")); err == nil {
		t.Error("a body of 3 bytes was taken for a file of 4")
	}
}

func TestTwice(t *testing.T) {
	w := NewWriter(io.Discard)
	must(t, w.File("a/f", 0o644, 0, nil))
	if err := w.File("/a/../a/f", 0o644, 0, nil); err == nil {
		t.Error("the same name was taken twice")
	}
	if !w.Has("/a") || !w.Has("/a/f") || w.Has("/f") {
		t.Errorf("has /a: %v, /a/f: %v, /f: %v, want true, true, false", w.Has("/a"), w.Has("/a/f"), w.Has("/f"))
	}
	if err := w.Symlink("a", "b"); err == nil {
		t.Error("a link was taken where a directory is")
	}
}

type entry struct {
	name string
	mode uint32
	body string
}

func read(t *testing.T, b []byte) []entry {
	t.Helper()
	var all []entry
	inodes := map[uint64]bool{}
	for off := 0; ; {
		if off%4 != 0 || len(b) < off+110 || string(b[off:off+6]) != "070701" {
			t.Fatalf("no header at %d of %d", off, len(b))
		}
		field := func(i int) uint64 {
			n, err := strconv.ParseUint(string(b[off+6+8*i:off+14+8*i]), 16, 32)
			must(t, err)
			return n
		}
		name := string(b[off+110 : off+110+int(field(11))-1])
		body := (off + 110 + int(field(11)) + 3) &^ 3
		size := int(field(6))
		if name == trailer {
			if rest := len(b) - body; rest != 0 {
				t.Errorf("%d bytes after the trailer", rest)
			}
			return all
		}
		if inodes[field(0)] {
			t.Errorf("%s: inode %d twice: the kernel may link the two", name, field(0))
		}
		inodes[field(0)] = true
		all = append(all, entry{name, uint32(field(1)), string(b[body : body+size])})
		off = (body + size + 3) &^ 3
	}
}

func (e entry) String() string { return fmt.Sprintf("%s %o %q", e.name, e.mode, e.body) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
