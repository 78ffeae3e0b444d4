// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// counter is a program that counts system calls of one thread.
func counter(t *testing.T, section string) (*ebpf.ProgramSpec, *ebpf.Map) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	ps := &ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, SectionName: section, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 8, asm.DWord).WithSymbol("counter"),
			asm.FnGetCurrentPidTgid.Call(),
			asm.JNE.Imm32(asm.R0, int32(unix.Gettid()), "end"),
			asm.JNE.Imm(asm.R6, unix.SYS_GETPPID, "end"),
			asm.LoadMapValue(asm.R1, m.FD(), 0),
			asm.Mov.Imm(asm.R2, 1),
			asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
			asm.Return(),
		},
	}
	return ps, m
}

// TestTwice: of the copies of a program one does the work: the first that runs.
func TestTwice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for _, c := range []struct {
		name        string
		copies      func(*Twice, *ebpf.ProgramSpec) []Copy
		attach      func([]Copy) []Copy
		count, took uint64
	}{
		{"all", (*Twice).Copies, func(n []Copy) []Copy { return n }, 1000, 0},
		{"first skipped", (*Twice).Copies, func(n []Copy) []Copy { return n[1:] }, 1000, 1000},
		{"second skipped", (*Twice).Copies, func(n []Copy) []Copy { return []Copy{n[0], n[2]} }, 1000, 0},
		{"last skipped", (*Twice).Copies, func(n []Copy) []Copy { return n[:2] }, 1000, 0},
		{"only the first", (*Twice).Copies, func(n []Copy) []Copy { return n[:1] }, 1000, 0},
		{"only the second", (*Twice).Copies, func(n []Copy) []Copy { return n[1:2] }, 1000, 1000},
		{"only the last", (*Twice).Copies, func(n []Copy) []Copy { return n[2:] }, 1000, 1000},
		{"first skipped, uncounted", (*Twice).Uncounted, func(n []Copy) []Copy { return n[1:] }, 1000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ps, counted := counter(t, "raw_tp/sys_enter")
			w, err := newTwice()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for _, n := range c.attach(c.copies(w, ps)) {
				prog, err := ebpf.NewProgram(n.ProgramSpec)
				if err != nil {
					t.Fatalf("again %v: %+v", n.Again, err)
				}
				defer prog.Close()
				l, err := bySection(prog, n.ProgramSpec, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			for range c.count {
				unix.Getppid()
			}
			var got uint64
			if err := counted.Lookup(uint32(0), &got); err != nil {
				t.Fatal(err)
			}
			if got != c.count {
				t.Errorf("%d events were counted, want %d", got, c.count)
			}
			if got := w.taken(); c.took > 0 && got < c.took || c.took == 0 && got > 0 {
				t.Errorf("other copies did the work %d times, want %d or, of other threads, more", got, c.took)
			}
		})
	}
}

// closing is a link that says when it was closed.
type closing struct {
	name string
	took time.Duration
	said chan<- string
}

func (c closing) Close() error {
	time.Sleep(c.took)
	c.said <- c.name
	return nil
}

// TestDetachOrder: a second copy is gone before the first one goes. Alone it would
// count what it sees as skipped by the first.
func TestDetachOrder(t *testing.T) {
	said := make(chan string, 2)
	s := Set{links: []placed{{closing{"first", 0, said}, false}, {closing{"second", 50 * time.Millisecond, said}, true}}}
	s.Detach()
	if got := []string{<-said, <-said}; got[0] != "second" || got[1] != "first" || len(s.links) != 0 {
		t.Errorf("detached %v, want the second copy before the first; %d links are left", got, len(s.links))
	}
}
