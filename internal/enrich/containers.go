// SPDX-License-Identifier: Apache-2.0

// Package enrich finds names for the kernel's numbers. The first lookup is slow, later ones are
// quick.
package enrich

import (
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"seine/internal/host"
)

const (
	maxName    = 256     // bytes of a name
	maxPath    = 4096    // bytes of a cgroup's path
	maxEntries = 1 << 14 // of each cache; when full, it starts over

	pidTTL     = 1 * time.Second  // a process may move, and its number be used again
	firstRetry = 1 * time.Second  // for a name that was not found, doubled each time
	lastRetry  = 64 * time.Second // at the most
)

// Containers names the containers of this machine. The cgroup of a process tells its container.
// The name of the container is in the state that its runtime keeps on disk; otherwise the runtime
// is asked, if it listens on a socket. A lookup that has to ask takes at most apiTimeout. A
// socket that did not answer in time is left alone for a while.
//
// Names are as they were found, control characters included, up to 256 bytes.
type Containers struct {
	root  string
	now   func() time.Time
	users *host.Users
	api   api
	lists listCache

	asking sync.Mutex // held while disk and sockets are asked; before mu

	mu     sync.RWMutex
	byPath map[string]*entry
	byID   map[string]*entry
	byPID  map[int]pidEntry
}

// An entry is shared by all cgroups of a container. mu guards its fields.
type entry struct {
	id, name string
	final    bool      // nothing more will be found
	retry    time.Time // when to look for the name again
	tries    int
}

type pidEntry struct {
	*entry
	until time.Time
}

// none is the entry of what is not in a container.
var none = &entry{final: true}

// NewContainers takes the directory that the machine's files are seen in: "/", or
// where a container has the host's root.
func NewContainers(root string) *Containers {
	root = filepath.Join("/", root)
	return &Containers{
		root:   root,
		now:    time.Now,
		users:  host.NewUsers(filepath.Join(root, "etc/passwd")),
		api:    api{blocked: make(map[string]time.Time)},
		byPath: make(map[string]*entry),
		byID:   make(map[string]*entry),
		byPID:  make(map[int]pidEntry),
	}
}

// ByCgroupPath tells the container that a cgroup belongs to, the innermost of
// several; both are "" where it belongs to none. Where the name cannot be found, it
// is the first 12 digits of the id. LXC's and nspawn's containers have no id but
// the name. In Kubernetes the name is NAMESPACE/POD/CONTAINER.
func (c *Containers) ByCgroupPath(path string) (id, name string) {
	c.mu.RLock()
	e, ok := c.byPath[path]
	if ok && (e.final || c.now().Before(e.retry)) {
		id, name = e.id, e.name
		c.mu.RUnlock()
		return id, name
	}
	c.mu.RUnlock()
	return c.copy(c.resolve(path))
}

// ByCgroupID is ByCgroupPath for the id that a BPF program sees.
func (c *Containers) ByCgroupID(cgroup uint64) (id, name string) {
	path := host.CgroupPath(cgroup)
	if path == "" {
		return "", ""
	}
	return c.ByCgroupPath(path)
}

// ByPID asks /proc for the cgroups of a process. It is for containers that are only in
// hierarchies of cgroup version 1, where BPF sees nothing but the root.
func (c *Containers) ByPID(pid int) (id, name string) {
	now := c.now()
	c.mu.RLock()
	e, ok := c.byPID[pid]
	if ok && now.Before(e.until) {
		id, name = e.id, e.name
		c.mu.RUnlock()
		return id, name
	}
	c.mu.RUnlock()

	found := none
	for _, at := range c.cgroupsOf(pid) {
		if e := c.resolve(at.path); e != none {
			found = e
			break
		}
	}
	c.mu.Lock()
	if len(c.byPID) >= maxEntries {
		clear(c.byPID)
	}
	c.byPID[pid] = pidEntry{found, now.Add(pidTTL)}
	c.mu.Unlock()
	return c.copy(found)
}

func (c *Containers) copy(e *entry) (id, name string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return e.id, e.name
}

// resolve finds the entry for a path and, if it is time, the name for the entry.
func (c *Containers) resolve(path string) *entry {
	r, ok := parseCgroup(path)
	if !ok {
		if len(path) <= maxPath {
			c.remember(path, none)
		}
		return none
	}
	c.asking.Lock()
	defer c.asking.Unlock()

	c.mu.RLock()
	e := c.byID[r.id]
	due := e == nil || !e.final && !c.now().Before(e.retry)
	c.mu.RUnlock()
	if due {
		name := r.id
		if !r.named() {
			name = c.lookUp(r)
		}
		e = c.update(r, name)
	}
	c.remember(path, e)
	return e
}

// update notes the outcome of a look-up.
func (c *Containers) update(r ref, name string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[r.id]
	if e == nil {
		if len(c.byID) >= maxEntries {
			clear(c.byID)
			clear(c.byPath)
			clear(c.byPID)
		}
		e = &entry{id: bound(r.id)}
		c.byID[strings.Clone(r.id)] = e
	}
	if name != "" {
		e.name, e.final = bound(name), true
		return e
	}
	e.name = e.id[:min(len(e.id), shortID)]
	e.retry = c.now().Add(min(firstRetry<<min(e.tries, 30), lastRetry))
	e.tries++
	return e
}

func (c *Containers) remember(path string, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byPath) >= maxEntries {
		clear(c.byPath)
	}
	c.byPath[strings.Clone(path)] = e
}

// bound cuts a name that is too long, between two characters.
func bound(s string) string {
	if len(s) > maxName {
		n := maxName
		for n > maxName-utf8.UTFMax && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.Clone(s)
}
