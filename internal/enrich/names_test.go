// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seine/internal/host"
	"seine/internal/row"
	"seine/internal/sym"
)

// TestContainerOfVersion1: where cgroup2 has but its root, /proc tells the
// container of a process, unless its ids are others than the rows'.
func TestContainerOfVersion1(t *testing.T) {
	root, _, err := host.CgroupID("/")
	if err != nil {
		t.Skip(err)
	}
	dir, id := t.TempDir(), strings.Repeat("0123456789abcdef", 4)
	if err := os.MkdirAll(filepath.Join(dir, "proc/4218"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "proc/4218/cgroup"), []byte("4:memory:/docker/"+id+"\n0::/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &row.Schema{Columns: []row.Column{{ID: "pid", Kind: row.Uint}, {ID: "container", Kind: row.Text}}}
	for _, c := range []struct {
		pids bool
		pid  uint64
		want string
	}{{true, 4218, id[:12]}, {true, 4219, ""}, {false, 4218, ""}} {
		r := s.New()
		r.Cells[0].SetUint(c.pid)
		r.Cells[1].SetUint(root)
		n := &Names{containers: NewContainers(dir), pids: c.pids}
		if n.container(r, &r.Cells[1]); r.Cells[1].S != c.want {
			t.Errorf("process %d is in container %q, want %q", c.pid, r.Cells[1].S, c.want)
		}
	}
}

// TestObserved: a stack begins where a tracepoint is, however many programs it has;
// a sample that was taken while one was called shows that.
func TestObserved(t *testing.T) {
	prog, run := sym.Frame{Module: "bpf", Sym: "bpf_prog_1_drop"}, sym.Frame{Sym: "bpf_trace_run3"}
	called, all, at := sym.Frame{Sym: "__bpf_trace_kfree_skb"}, sym.Frame{Sym: "__traceiter_kfree_skb"}, sym.Frame{Sym: "sk_skb_reason_drop"}
	for _, c := range []struct {
		frames []sym.Frame
		want   string
	}{
		{[]sym.Frame{prog, run, at}, at.Sym},
		{[]sym.Frame{prog, run, all, at}, at.Sym},
		{[]sym.Frame{prog, run, called, all, at}, at.Sym},
		{[]sym.Frame{all, at}, all.Sym},
	} {
		if got := observed(c.frames)[0].Sym; got != c.want {
			t.Errorf("%v begins with %s, want %s", c.frames, got, c.want)
		}
	}
}

// TestHints: only what is a file can be built with frame pointers.
func TestHints(t *testing.T) {
	n := &Names{broken: map[string]int{"": 9, "[anon]": 24, "/usr/bin/app": 1}}
	want := []string{
		"24 stacks end early in [anon], code that is in no file",
		"9 stacks end early in code of unknown origin",
		"1 stack ends early in /usr/bin/app, most likely built without frame pointers: build it with -fno-omit-frame-pointer, or use a C library that has them",
	}
	if got := n.Hints(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	n.broken = map[string]int{"/a": 4, "/b": 3, "/c": 2, "/d": 1}
	if got := n.Hints(); len(got) != 4 || got[3] != "1 stack ends early in 1 other place" {
		t.Errorf("got %q", got)
	}
}
