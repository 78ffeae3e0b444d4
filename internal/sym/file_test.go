// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"
)

// held opens a new small ELF file n and gives it to c, with one reference.
func held(t *testing.T, c *files, dir string, n int) *file {
	t.Helper()
	name := filepath.Join(dir, fmt.Sprint(n))
	data := image(true, elf.EM_X86_64, symbols(true, elf.SHT_SYMTAB, defs...)...)
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	f := c.hold(fileKey{ino: uint64(n)}, &object{}, src)
	c.relieve()
	return f
}

// open files are bounded; the oldest is parsed and so nothing is lost.
func TestHeld(t *testing.T) {
	var c files
	defer c.close()
	dir := t.TempDir()
	all := make([]*file, maxHeld+7)
	for i := range all {
		all[i] = held(t, &c, dir, i)
	}
	open := 0
	for i, f := range all {
		if f.src != nil {
			open++
		}
		if parsed := f.tab.Load() != nil; parsed != (i < 7) {
			t.Errorf("file %d is parsed: %v", i, parsed)
		}
	}
	if open != maxHeld || c.held != maxHeld {
		t.Errorf("%d files are open, counted %d, want %d", open, c.held, maxHeld)
	}
	for i, f := range all {
		if c.load(f, nil).find(0x401100) < 0 {
			t.Errorf("file %d has no functions", i)
		}
	}
	if c.held != 0 {
		t.Errorf("%d files are open after all were parsed", c.held)
	}
}

// Files are forgotten when no process has them, the oldest first.
func TestForget(t *testing.T) {
	var c files
	defer c.close()
	dir := t.TempDir()
	used := held(t, &c, dir, 0)
	for i := 1; i <= maxFiles+100; i++ {
		c.release(held(t, &c, dir, i))
	}
	if n := len(c.known); n != maxFiles+1 || c.idle != maxFiles {
		t.Errorf("%d files are known, %d of them idle, want %d and %d", n, c.idle, maxFiles+1, maxFiles)
	}
	if c.known[used.key] != used {
		t.Error("a file was forgotten that a process has mapped")
	}
	if c.known[fileKey{ino: 1}] != nil || c.known[fileKey{ino: maxFiles + 100}] == nil {
		t.Error("it was not the oldest that was forgotten")
	}
}

// Tables are dropped when they take too much, the one that was not used for
// longest first, and read again when asked for.
func TestDropped(t *testing.T) {
	var c files
	defer c.close()
	dir := t.TempDir()
	buf := make([]byte, maxBytes*2/5) // never touched, so that it takes no memory
	big := func() *table {
		return &table{addr: []uint64{1}, size: []uint32{1}, name: []uint32{0, 1}, names: unsafe.String(&buf[0], len(buf))}
	}
	a, b, d := held(t, &c, dir, 1), held(t, &c, dir, 2), held(t, &c, dir, 3)
	c.put(a, big())
	c.put(b, big())
	c.clock.Add(1)
	c.touch(a)
	c.put(d, big())
	if a.tab.Load() == nil || b.tab.Load() != nil || d.tab.Load() == nil {
		t.Errorf("kept: %v %v %v, want a and d", a.tab.Load() != nil, b.tab.Load() != nil, d.tab.Load() != nil)
	}
	if c.bytes > maxBytes || c.bytes < len(buf) {
		t.Errorf("%d bytes are counted", c.bytes)
	}
	reopen := func() *os.File {
		f, _ := os.Open(filepath.Join(dir, "2"))
		return f
	}
	c.mu.Lock()
	c.unhold(b)
	c.mu.Unlock()
	if c.load(b, reopen).find(0x401100) < 0 {
		t.Error("b was not read again")
	}
	// One that cannot be opened is not tried again and again.
	c.mu.Lock()
	c.unhold(a)
	c.drop(a)
	c.mu.Unlock()
	tries := 0
	for range 3 {
		c.load(a, func() *os.File { tries++; return nil })
	}
	if tries != 1 {
		t.Errorf("opened %d times, want once", tries)
	}
}

// The table of a live process is read again after it was dropped.
func TestReopen(t *testing.T) {
	exe := goBuild(t, "child", false)
	c := start(t, exec.Command(exe))
	var p Processes
	defer p.Close()
	expect(t, &p, c, exe, goNames...)
	p.files.mu.Lock()
	for _, f := range p.files.known {
		p.files.drop(f)
	}
	p.files.mu.Unlock()
	expect(t, &p, c, exe, goNames...)
}

// No more processes are kept than fit, and their files with them.
func TestProcessesBound(t *testing.T) {
	var p Processes
	defer p.Close()
	dir := t.TempDir()
	for i := range maxProcesses + 10 {
		pr := &process{pid: uint32(i + 1)}
		pr.maps.Store(new([]mapping))
		maps := make([]mapping, 3)
		if i < 20 {
			maps[0].file = held(t, &p.files, dir, i)
		}
		p.setMaps(pr, maps)
		p.insert(pr, nil)
	}
	if len(p.procs) != maxProcesses || p.mappings != 3*maxProcesses {
		t.Errorf("%d processes and %d mappings, want %d and %d", len(p.procs), p.mappings, maxProcesses, 3*maxProcesses)
	}
	for i := range 20 {
		want := 1
		if i < 10 {
			want = 0 // the first ones had to go
		}
		if got := p.files.known[fileKey{ino: uint64(i)}].refs; got != want {
			t.Errorf("file %d has %d references, want %d", i, got, want)
		}
	}
	// One with very many mappings drives others out.
	pr := &process{pid: 1 << 30}
	pr.maps.Store(new([]mapping))
	p.setMaps(pr, make([]mapping, maxAllMappings))
	p.insert(pr, nil)
	if len(p.procs) != 1 || p.mappings != maxAllMappings {
		t.Errorf("%d processes and %d mappings, want 1 and %d", len(p.procs), p.mappings, maxAllMappings)
	}
}
