// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"os"
	"slices"
	"strconv"
)

// refresh reads a process that is new, or known as old. It returns what the PID
// now stands for, nil if nothing is known.
func (p *Processes) refresh(pid uint32, old *process) *process {
	p.open.Lock()
	defer p.open.Unlock()
	if pr := p.get(pid); pr != old {
		return pr // another goroutine was faster
	}
	began := now()
	defer func() {
		if pr := p.get(pid); pr != nil {
			end := now()
			pr.again.Store(end + max(int64(idleMin), idle*(end-began)))
		}
	}()
	dir := p.proc
	if dir == "" {
		dir = "/proc"
	}
	dir += "/" + strconv.FormatUint(uint64(pid), 10)
	// Before maps: if it is replaced in between, the next look tells.
	is, err := readProgram(dir)
	if err != nil {
		return old
	}
	pl := openPlace(dir)
	defer pl.close()
	pr := old
	if old == nil || !old.program.is(is) {
		pr = &process{pid: pid, dir: dir, program: is}
		pr.checked.Store(began)
		pr.maps.Store(new([]mapping))
	}
	maps, err := p.readMaps(pl)
	if err == nil && (len(maps) > 0 || pr != old) {
		p.setMaps(pr, maps)
	}
	p.readJIT(pr, pl)
	if pr != old {
		p.insert(pr, old)
	}
	return pr
}

// readMaps reads /proc/PID/maps and opens the files.
func (p *Processes) readMaps(pl place) ([]mapping, error) {
	f, err := os.Open(pl.dir + "/maps")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	maps, err := parseMaps(f)
	if err != nil {
		return nil, err
	}
	type inode struct{ dev, ino uint64 }
	seen := make(map[inode]*file)
	for i := range maps {
		m := &maps[i]
		if m.ino == 0 || m.name[0] != '/' {
			continue
		}
		in := inode{m.dev, m.ino}
		f, ok := seen[in]
		switch {
		case f != nil:
			p.files.again(f)
		case !ok && len(seen) < maxMapped:
			f = p.files.open(pl, m)
			seen[in] = f
		}
		m.file = f
	}
	return maps, nil
}

// setMaps replaces the mappings of a process. The files of the old ones are
// released after those of the new ones were opened, so that common ones stay.
func (p *Processes) setMaps(pr *process, maps []mapping) {
	old := *pr.maps.Swap(&maps)
	p.mu.Lock()
	p.mappings += len(maps) - len(old)
	p.mu.Unlock()
	for i := range old {
		p.files.release(old[i].file)
	}
}

// readJIT opens the perf map of a process if there is one that is new or has
// grown. It is kept like a mapped file, under a key that no such file has.
func (p *Processes) readJIT(pr *process, pl place) {
	if !slices.ContainsFunc(*pr.maps.Load(), func(m mapping) bool { return m.jit() }) {
		return
	}
	at, err := findPerfMap(pl)
	if err != nil {
		return
	}
	defer at.close()
	is := keyOf(&at.stat)
	jit := pr.jit.Load()
	if jit != nil && is == pr.note {
		return
	}
	src, err := at.open()
	if err != nil {
		return
	}
	pr.note = is
	if jit == nil {
		key := fileKey{dev: pr.program.start, ino: uint64(pr.pid), mtime: int64(pr.program.stack), size: -1}
		pr.jit.Store(p.files.hold(key, nil, src))
	} else {
		p.files.mu.Lock()
		p.files.renew(jit, src)
		p.files.mu.Unlock()
	}
	p.files.relieve()
}

// insert makes pr what its PID stands for, and old what it stood for before. It
// makes room by dropping the processes that were not seen for longest.
func (p *Processes) insert(pr, old *process) {
	var gone []*process
	p.mu.Lock()
	if p.procs == nil {
		p.procs = make(map[uint32]*process)
	}
	if old != nil {
		gone = append(gone, old.prev.Swap(nil))
		pr.prev.Store(old)
	}
	pr.used.Store(p.files.clock.Add(1))
	p.procs[pr.pid] = pr
	n := p.mappings
	for len(p.procs) > maxProcesses || n > maxAllMappings && len(p.procs) > 1 {
		var last *process
		for _, q := range p.procs {
			if q != pr && (last == nil || q.used.Load() < last.used.Load()) {
				last = q
			}
		}
		delete(p.procs, last.pid)
		n -= len(*last.maps.Load())
		gone = append(gone, last, last.prev.Swap(nil))
	}
	p.mu.Unlock()
	for _, q := range gone {
		if q != nil {
			p.setMaps(q, nil)
			p.files.remove(q.jit.Swap(nil))
		}
	}
}
