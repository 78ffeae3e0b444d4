// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bounds on what all processes together may take.
const (
	maxFiles = 1024      // known files that no process in the cache has mapped
	maxHeld  = 256       // open files
	maxBytes = 256 << 20 // of all tables
)

// A fileKey tells files apart. The build-id would find more copies of one file,
// as containers have them, but whoever builds a file chooses it: with it, one
// process could give another process's functions wrong names.
type fileKey struct {
	dev, ino    uint64
	mtime, size int64
}

func keyOf(s *unix.Stat_t) fileKey {
	return fileKey{s.Dev, s.Ino, s.Mtim.Nano(), s.Size}
}

// A file is one that processes have mapped, or a perf map. It is shared by all
// processes that have it mapped.
type file struct {
	key  fileKey
	obj  *object // nil when it is not ELF; never changes
	used atomic.Uint64
	tab  atomic.Pointer[table] // nil until asked for, and again when memory ran short
	lost atomic.Bool           // cannot be opened again: its processes are gone

	// Guarded by files.mu.
	refs int      // mappings in the cache
	src  *os.File // open until parsed
}

// files is what is known of all files.
//
// Reading symbols takes from 0.1 ms to seconds, so that is put off until an address
// asks for it; most files are never asked for. But then the process may be gone,
// and with it the file's name or its whole file system. So Seen opens the
// files and reads only their headers, and each stays open until it is parsed,
// up to maxHeld: after that the one that was not used for longest is parsed at
// once. Nothing is open after it was parsed. While a file is held, its file
// system cannot be unmounted; parsing all at once would avoid that but make Seen
// slow.
type files struct {
	parse sync.Mutex // one at a time bounds the memory it takes; locked before mu

	mu    sync.Mutex
	known map[fileKey]*file
	idle  int // files without references
	held  int // open files
	bytes int // of all tables
	clock atomic.Uint64
}

// touch notes that f was used. The clock goes on with each file that is added.
func (c *files) touch(f *file) {
	if now := c.clock.Load(); f.used.Load() != now {
		f.used.Store(now)
	}
}

// open returns the file of a mapping with one more reference, or nil when it
// cannot be read.
func (c *files) open(p place, m *mapping) *file {
	at, err := p.find(m)
	if err != nil {
		return nil
	}
	defer at.close()
	key := keyOf(&at.stat)
	if f := c.ref(key); f != nil {
		return f
	}
	obj, src, err := peek(p, at, m.name)
	if err != nil {
		return nil
	}
	f := c.hold(key, obj, src)
	c.relieve()
	return f
}

// ref returns a known file if it is parsed or open, with one more reference.
func (c *files) ref(key fileKey) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.known[key]
	if f == nil || f.tab.Load() == nil && f.src == nil {
		return nil
	}
	c.refer(f, 1)
	c.touch(f)
	return f
}

// again takes one more reference to f, which has one.
func (c *files) again(f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refer(f, 1)
}

// hold adds a file, with one reference, and takes src over, which may be nil.
func (c *files) hold(key fileKey, obj *object, src *os.File) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.known[key]
	if f == nil {
		f = &file{key: key, obj: obj}
		if c.known == nil {
			c.known = make(map[fileKey]*file)
		}
		c.known[key] = f
		c.idle++
	}
	c.refer(f, 1)
	f.used.Store(c.clock.Add(1))
	c.forget()
	switch {
	case src == nil:
		f.tab.CompareAndSwap(nil, &table{})
	case f.src != nil || f.tab.Load() != nil:
		src.Close() // another goroutine was faster
	default:
		c.renew(f, src)
	}
	return f
}

// renew makes src what f is read from next, in place of what was read before.
// Called with mu held.
func (c *files) renew(f *file, src *os.File) {
	c.drop(f)
	c.unhold(f)
	f.src = src
	c.held++
	f.lost.Store(false)
}

// release takes a reference back.
func (c *files) release(f *file) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refer(f, -1)
	c.forget()
}

// refer counts references. Called with mu held.
func (c *files) refer(f *file, n int) {
	if f.refs == 0 {
		c.idle--
	}
	if f.refs += n; f.refs == 0 {
		c.idle++
	}
}

// forget drops the file that was not used for longest while there are too many
// that no process has mapped. Called with mu held.
func (c *files) forget() {
	if c.idle <= maxFiles {
		return
	}
	var old *file
	for _, f := range c.known {
		if f.refs == 0 && (old == nil || f.used.Load() < old.used.Load()) {
			old = f
		}
	}
	if old != nil {
		c.delete(old)
	}
}

// remove forgets a file that only one process had.
func (c *files) remove(f *file) {
	if f == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delete(f)
}

// delete forgets a file. Called with mu held.
func (c *files) delete(f *file) {
	c.drop(f)
	c.unhold(f)
	if f.refs == 0 {
		c.idle--
	}
	delete(c.known, f.key)
}

// unhold closes what f would be parsed from. Called with mu held.
func (c *files) unhold(f *file) {
	if f.src != nil {
		f.src.Close()
		f.src = nil
		c.held--
	}
}

// drop frees the table of f. Called with mu held.
func (c *files) drop(f *file) {
	if t := f.tab.Swap(nil); t != nil {
		c.bytes -= t.bytes()
	}
}

// relieve parses files while too many are held.
func (c *files) relieve() {
	for {
		c.mu.Lock()
		var old *file
		if c.held > maxHeld {
			for _, f := range c.known {
				if f.src != nil && (old == nil || f.used.Load() < old.used.Load()) {
					old = f
				}
			}
		}
		c.mu.Unlock()
		if old == nil {
			return
		}
		c.load(old, nil)
	}
}

// load returns the table of f; parses it if need be; opens it again with reopen,
// if that is not nil, when it was dropped meanwhile.
func (c *files) load(f *file, reopen func() *os.File) *table {
	c.parse.Lock()
	defer c.parse.Unlock()
	if t := f.tab.Load(); t != nil {
		return t
	}
	c.mu.Lock()
	src := f.src
	if src != nil {
		f.src = nil
		c.held--
	}
	c.mu.Unlock()
	if src == nil && reopen != nil && !f.lost.Load() {
		src = reopen()
	}
	if src == nil {
		f.lost.Store(true)
		return &table{}
	}
	defer src.Close()
	t := &table{}
	if info, err := src.Stat(); err == nil {
		if f.obj == nil {
			t = readPerfMap(src, info.Size())
		} else {
			t, _ = parseELF(src, info.Size()) // damaged: what could be read
		}
	}
	c.put(f, t)
	return t
}

// put makes t the table of f, and drops those that were not used for longest if
// all together take too much. A file that was forgotten meanwhile stays so.
func (c *files) put(f *file, t *table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[f.key] != f {
		return
	}
	c.drop(f)
	f.tab.Store(t)
	f.used.Store(c.clock.Add(1))
	c.bytes += t.bytes()
	for c.bytes > maxBytes {
		var old *file
		for _, g := range c.known {
			if g != f && g.tab.Load() != nil && (old == nil || g.used.Load() < old.used.Load()) {
				old = g
			}
		}
		if old == nil {
			return
		}
		c.drop(old)
	}
}

// close closes all and forgets it.
func (c *files) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.known {
		c.delete(f)
	}
}
