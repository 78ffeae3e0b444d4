// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
toor:x:0:0:second name:/root2:/bin/sh
# comment:x:7:7::/:/bin/sh
+::::::
+nis:x:8:8::/:/bin/sh
ann:x:1000:1000:Ann,,,:/home/ann:/bin/bash
ann:x:1001:1001:again:/home/ann2:/bin/bash
short:x:5
bad:x:-1:0::/:/bin/sh
big:x:4294967296:0::/:/bin/sh
1234:x:77:77::/home/n:/bin/sh
`

func TestUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(path, []byte(passwd), 0o644); err != nil {
		t.Fatal(err)
	}
	u := NewUsers(path)
	now := time.Unix(1000, 0)
	u.now = func() time.Time { return now }
	for uid, want := range map[uint32]user{0: {"root", "/root"}, 1000: {"ann", "/home/ann"}, 77: {"1234", "/home/n"}, 7: {}, 8: {}, 5: {}, 4294967295: {}} {
		if got := (user{u.Name(uid), u.Home(uid)}); got != want {
			t.Errorf("uid %d: got %+v, want %+v", uid, got, want)
		}
	}
	for name, want := range map[string]uint32{"root": 0, "toor": 0, "ann": 1000, "1234": 77, "4242": 4242, "0": 0} {
		if got, err := u.UID(name); err != nil || got != want {
			t.Errorf("user %s: got %d, %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "nobody-here", "-1", "4294967295", "4294967296", "+nis", "# comment"} {
		if got, err := u.UID(name); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("user %q: got %d, %v, want an error that names the file", name, got, err)
		}
	}

	// A new user is found, but not at once.
	if err := os.WriteFile(path, []byte(passwd+"bob:x:1002:1002::/home/bob:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := u.Name(1002); got != "" {
		t.Errorf("within a second: got %q, want nothing", got)
	}
	now = now.Add(patience)
	if got := u.Name(1002); got != "bob" {
		t.Errorf("after a second: got %q, want bob", got)
	}
}

func TestUsersWithoutFile(t *testing.T) {
	u := NewUsers(filepath.Join(t.TempDir(), "none"))
	if got := u.Name(0); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
	if got, err := u.UID("7"); err != nil || got != 7 {
		t.Errorf("got %d, %v, want 7", got, err)
	}
}

func BenchmarkUser(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		User(0)
	}
}
