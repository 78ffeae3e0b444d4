// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

var sink Frame

// A process that is known, and a file that is parsed.
func BenchmarkFrame(b *testing.B) {
	var p Processes
	defer p.Close()
	pid, pc := uint32(os.Getpid()), here()
	p.Frame(pid, pc)
	b.ReportAllocs()
	for b.Loop() {
		sink = p.Frame(pid, pc)
	}
}

// The same with a name that is demangled, which is done once.
func BenchmarkFrameDemangled(b *testing.B) {
	c := start(b, exec.Command(cc(b, "-pie", "-fPIE")))
	var p Processes
	defer p.Close()
	if f := p.Frame(c.pid(), c.pcs[0]); f.Sym != "outer::Thing::call" {
		b.Fatalf("got %#v", f)
	}
	b.ReportAllocs()
	for b.Loop() {
		sink = p.Frame(c.pid(), c.pcs[0])
	}
}

// An address that is in no mapping: most of the time nothing is read again.
func BenchmarkFrameUnknown(b *testing.B) {
	var p Processes
	defer p.Close()
	pid := uint32(os.Getpid())
	p.Seen(pid)
	b.ReportAllocs()
	for b.Loop() {
		sink = p.Frame(pid, 0x1000)
	}
}

func BenchmarkStack(b *testing.B) {
	var p Processes
	defer p.Close()
	pid, pc := uint32(os.Getpid()), here()
	addrs := []uint64{pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc, pc}
	buf := p.Stack(nil, pid, addrs)
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Stack(buf[:0], pid, addrs)
	}
}

func BenchmarkSeenKnown(b *testing.B) {
	var p Processes
	defer p.Close()
	pid := uint32(os.Getpid())
	p.Seen(pid)
	b.ReportAllocs()
	for b.Loop() {
		p.Seen(pid)
	}
}

// A new process whose files are known: a dynamically linked C++ program.
func BenchmarkSeenNew(b *testing.B) {
	c := start(b, exec.Command(cc(b, "-pie", "-fPIE")))
	var p Processes
	defer p.Close()
	p.Seen(c.pid())
	b.ReportAllocs()
	for b.Loop() {
		p.mu.Lock()
		pr := p.procs[c.pid()]
		delete(p.procs, c.pid())
		p.mu.Unlock()
		p.setMaps(pr, nil)
		p.Seen(c.pid())
	}
}

// A new process with files that are new as well.
func BenchmarkSeenFirst(b *testing.B) {
	c := start(b, exec.Command(cc(b, "-pie", "-fPIE")))
	b.ReportAllocs()
	for b.Loop() {
		var p Processes
		p.Seen(c.pid())
		p.Close()
	}
}

// The symbols of this test's binary, about as many as seine has.
func BenchmarkParse(b *testing.B) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	defer exe.Close()
	info, _ := exe.Stat()
	b.ReportAllocs()
	var t *table
	for b.Loop() {
		t, _ = parseELF(exe, info.Size())
	}
	b.ReportMetric(float64(len(t.addr)), "functions")
	b.ReportMetric(float64(t.bytes()), "table-B")
}

func BenchmarkKallsyms(b *testing.B) {
	var k Kernel
	if err := k.Err(); err != nil {
		b.Skip(err)
	}
	b.ReportAllocs()
	var t *table
	for b.Loop() {
		t, _ = readKallsyms()
	}
	b.ReportMetric(float64(len(t.addr)), "functions")
	b.ReportMetric(float64(t.bytes()), "table-B")
	b.StopTimer()
	// What really stays.
	t = nil
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t, _ = readKallsyms()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)), "heap-B")
	runtime.KeepAlive(t)
}

func BenchmarkKernelFrame(b *testing.B) {
	var k Kernel
	addr, ok := k.Lookup("tcp_sendmsg")
	if !ok {
		b.Skip(k.Err())
	}
	b.ReportAllocs()
	for b.Loop() {
		sink = k.Frame(addr + 5)
	}
}

func BenchmarkKernelLookup(b *testing.B) {
	var k Kernel
	for b.Loop() {
		k.Lookup("no such function")
	}
}
