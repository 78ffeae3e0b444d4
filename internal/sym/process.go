// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on the cache of processes.
const (
	maxProcesses   = 4096
	maxAllMappings = 1 << 18
)

const (
	// checkEvery is how often Seen looks whether a PID still runs the same program.
	checkEvery = time.Second

	// idle and idleMin bound the reading again of maps and perf maps, for
	// addresses that nothing is known of: a broken stack is full of them. After a
	// reading that took t, none starts for idle*t, nor for idleMin.
	idle    = 20
	idleMin = 10 * time.Millisecond
)

// Processes names addresses of processes. The zero value is ready to use, by
// several goroutines at once. PIDs are those of the /proc that is mounted.
type Processes struct {
	Mangled bool // names of C++ and Rust stay as the symbol table has them; set before use

	mu       sync.RWMutex
	procs    map[uint32]*process
	mappings int // of all processes
	files    files

	open sync.Mutex // one reader of /proc at a time; locked before mu
	proc string     // "" is /proc
}

// A process is one program with one PID. When the program exits, what is known
// of it stays, until it is the oldest or the PID runs another program.
type process struct {
	pid     uint32
	dir     string // /proc/PID
	program program
	used    atomic.Uint64
	checked atomic.Int64 // when the program was last compared
	again   atomic.Int64 // not to be read again before

	maps atomic.Pointer[[]mapping] // in order of address
	jit  atomic.Pointer[file]      // the perf map
	note fileKey                   // what the perf map was when it was opened; guarded by Processes.open

	// prev is what the PID ran before, asked about addresses that this one does
	// not have: a stack may have been sampled before an exec.
	prev atomic.Pointer[process]
}

var epoch = time.Now()

// now is a monotonic time in nanoseconds.
func now() int64 { return int64(time.Since(epoch)) + 1 }

// Seen takes along what is needed to name the addresses of a process later: call
// it for each event. A new process takes a fraction of a millisecond, a known one
// 0.1 µs, but for a look once per second whether it still runs the same program.
func (p *Processes) Seen(pid uint32) {
	pr := p.get(pid)
	if pr == nil {
		p.refresh(pid, nil)
		return
	}
	t := now()
	if last := pr.checked.Load(); t-last < int64(checkEvery) || !pr.checked.CompareAndSwap(last, t) {
		return
	}
	if is, err := readProgram(pr.dir); err == nil && !pr.program.is(is) {
		p.refresh(pid, pr)
	}
}

// Frame names an address of a process. If the address is in no mapping, and the
// process lives, its mappings are read again: it may have loaded a library. A
// process that was not Seen is read now.
func (p *Processes) Frame(pid uint32, addr uint64) Frame {
	pr := p.get(pid)
	if pr == nil {
		if pr = p.refresh(pid, nil); pr == nil {
			return Frame{Addr: addr}
		}
	}
	f, ok := p.lookup(pr, addr)
	if ok {
		return f
	}
	if possible(addr) && now() >= pr.again.Load() {
		if next := p.refresh(pid, pr); next != nil {
			pr = next
			if f, ok = p.lookup(pr, addr); ok {
				return f
			}
		}
	}
	if prev := pr.prev.Load(); prev != nil && f.Module == "" {
		f, _ = p.lookup(prev, addr)
	}
	return f
}

// Stack appends the frames of a user stack, innermost first, to buf.
func (p *Processes) Stack(buf []Frame, pid uint32, addrs []uint64) []Frame {
	return stack(buf, addrs, func(addr uint64) Frame { return p.Frame(pid, addr) })
}

// Close frees everything. Processes must not be in use.
func (p *Processes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.procs, p.mappings = nil, 0
	p.files.close()
}

// possible reports whether an address may be one of user space.
func possible(addr uint64) bool { return addr >= 4096 && addr>>63 == 0 }

func (p *Processes) get(pid uint32) *process {
	p.mu.RLock()
	pr := p.procs[pid]
	p.mu.RUnlock()
	if pr != nil {
		if t := p.files.clock.Load(); pr.used.Load() != t {
			pr.used.Store(t)
		}
	}
	return pr
}

// lookup names an address with what is known. It is not ok when reading
// /proc again may give more.
func (p *Processes) lookup(pr *process, addr uint64) (Frame, bool) {
	m := findMapping(*pr.maps.Load(), addr)
	f := Frame{Addr: addr}
	if m != nil {
		f.Module = m.name
		f.Off = addr - m.start
	}
	if m != nil && m.elf() {
		f.Off += m.off
		if vaddr, ok := m.file.obj.vaddr(f.Off); ok {
			f.Off = vaddr - m.file.obj.base
			t := p.table(pr, m)
			if i := t.find(vaddr); i >= 0 {
				f.Sym, f.Off = t.sym(i), vaddr-t.addr[i]
				if p.Mangled {
					f.Sym = t.raw(i)
				}
				return f, true
			}
		}
	}
	if jit := pr.jit.Load(); jit != nil {
		t := p.jitTable(pr, jit)
		if i := t.find(addr); i >= 0 {
			return Frame{Addr: addr, Sym: t.sym(i), Off: addr - t.addr[i], Module: JIT}, true
		}
	}
	return f, m != nil && !m.jit()
}

// table returns the functions of a mapped file.
func (p *Processes) table(pr *process, m *mapping) *table {
	p.files.touch(m.file)
	if t := m.file.tab.Load(); t != nil {
		return t
	}
	return p.files.load(m.file, func() (src *os.File) {
		pr.visit(func(pl place) {
			at, err := pl.find(m)
			if err != nil {
				return
			}
			defer at.close()
			if keyOf(&at.stat) == m.file.key {
				_, src, _ = peek(pl, at, m.name)
			}
		})
		return src
	})
}

// jitTable returns the functions of a perf map.
func (p *Processes) jitTable(pr *process, jit *file) *table {
	p.files.touch(jit)
	if t := jit.tab.Load(); t != nil {
		return t
	}
	return p.files.load(jit, func() (src *os.File) {
		pr.visit(func(pl place) {
			at, err := findPerfMap(pl)
			if err != nil {
				return
			}
			defer at.close()
			src, _ = at.open()
		})
		return src
	})
}

// visit calls do while the process runs the program that is known.
func (pr *process) visit(do func(place)) {
	if is, err := readProgram(pr.dir); err != nil || is != pr.program {
		return
	}
	pl := openPlace(pr.dir)
	defer pl.close()
	do(pl)
}
