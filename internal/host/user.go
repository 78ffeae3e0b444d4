// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// User is the name of a user, or "" if /etc/passwd has none. Users of a
// directory service are not known without libc.
func User(uid uint32) string { return users.Name(uid) }

// UID tells the number of a user, who is given by name or by number.
func UID(name string) (uint32, error) { return users.UID(name) }

var users = NewUsers("/etc/passwd")

// Users is a passwd(5) file. It is read when it is first needed, and again if it
// has changed and a user is not found.
type Users struct {
	path string
	now  func() time.Time

	mu      sync.RWMutex
	byUID   map[uint32]user
	byName  map[string]uint32
	checked time.Time
	version time.Time // of the file
}

type user struct{ name, home string }

// NewUsers makes Users of the file at path, which need not exist.
func NewUsers(path string) *Users { return &Users{path: path, now: time.Now} }

// Name is the name of a user, or "".
func (u *Users) Name(uid uint32) string { return u.get(uid).name }

// Home is the home directory of a user, or "".
func (u *Users) Home(uid uint32) string { return u.get(uid).home }

// UID tells the number of a user, who is given by name or by number.
func (u *Users) UID(name string) (uint32, error) {
	u.mu.RLock()
	uid, ok := u.byName[name]
	u.mu.RUnlock()
	if ok {
		return uid, nil
	}
	u.mu.Lock()
	u.refresh()
	uid, ok = u.byName[name]
	u.mu.Unlock()
	if ok {
		return uid, nil
	}
	n, err := strconv.ParseUint(name, 10, 32)
	// To the kernel the highest number means "no user".
	if err != nil || n == 1<<32-1 {
		return 0, fmt.Errorf("user %q: neither in %s nor a number", name, u.path)
	}
	return uint32(n), nil
}

func (u *Users) get(uid uint32) user {
	u.mu.RLock()
	entry, ok := u.byUID[uid]
	fresh := !u.checked.IsZero() && (ok || u.now().Sub(u.checked) < patience)
	u.mu.RUnlock()
	if fresh {
		return entry
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refresh()
	return u.byUID[uid]
}

// refresh reads the file if it has changed. The caller holds the lock.
func (u *Users) refresh() {
	now := u.now()
	if !u.checked.IsZero() && now.Sub(u.checked) < patience {
		return
	}
	u.checked = now
	f, err := os.Open(u.path)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || u.byUID != nil && info.ModTime().Equal(u.version) {
		return
	}
	u.version = info.ModTime()
	u.byUID, u.byName = parsePasswd(f)
}

// parsePasswd reads lines of name:password:uid:gid:gecos:home:shell. Of several
// lines for a number or a name, the first counts, as in libc.
func parsePasswd(r io.Reader) (byUID map[uint32]user, byName map[string]uint32) {
	byUID, byName = make(map[uint32]user), make(map[string]uint32)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Split(lines.Text(), ":")
		if len(f) < 7 || f[0] == "" || strings.ContainsAny(f[0][:1], "#+-") {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		uid := uint32(n)
		if _, ok := byUID[uid]; !ok {
			byUID[uid] = user{name: f[0], home: f[5]}
		}
		if _, ok := byName[f[0]]; !ok {
			byName[f[0]] = uid
		}
	}
	return byUID, byName
}
