// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestRelease makes everything, makes it again from a copy in another folder
// with other settings, and installs it. With FULL=1 the copy is compiled anew,
// which takes minutes.
func TestRelease(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	s, err := source("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := release("..", first); err != nil {
		t.Fatal(err)
	}
	t.Run("again", func(t *testing.T) {
		t.Setenv("VERSION", s.version)
		t.Setenv("SOURCE_DATE_EPOCH", fmt.Sprint(s.time.Unix()))
		t.Setenv("TZ", "Asia/Kathmandu")
		t.Setenv("LC_ALL", "C")
		t.Setenv("GOFLAGS", "-buildvcs=false -mod=mod")
		if os.Getenv("FULL") != "" {
			t.Setenv("GOCACHE", t.TempDir())
		}
		defer syscall.Umask(syscall.Umask(0o077))
		if err := release(clone(t), second); err != nil {
			t.Fatal(err)
		}
		same(t, first, second)
	})
	t.Run("tarball", func(t *testing.T) { checkTarball(t, s, first) })
	t.Run("deb", func(t *testing.T) { checkDeb(t, s, first) })
	t.Run("deb on Debian", func(t *testing.T) { checkDebian(t, s, first) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, s, first) })
}

// clone copies the sources, without git.
func clone(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "a folder")
	list, err := git("..", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.Trim(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // removed, and that not committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// same compares folders byte by byte.
func same(t *testing.T, a, b string) {
	t.Helper()
	of := func(dir string) (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	names := of(a)
	if got := of(b); !slices.Equal(got, names) || len(names) != 4*len(arches)+1 {
		t.Fatalf("got %q and %q, want four files for each architecture and the checksums", names, got)
	}
	for _, name := range names {
		x, errX := os.ReadFile(filepath.Join(a, name))
		y, errY := os.ReadFile(filepath.Join(b, name))
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s: the second one is different", name)
		}
	}
}

func checkTarball(t *testing.T, s *src, dist string) {
	top := fmt.Sprintf("seine-%s-linux-%s", s.version, runtime.GOARCH)
	f, err := os.Open(filepath.Join(dist, top+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, top+"/")
		if found[name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		mode := int64(0o644)
		if name == "seine" {
			mode = 0o755
		}
		if h.Mode != mode || h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || !h.ModTime.Equal(s.time) {
			t.Errorf("%s: mode %o, owner %d %d %s, time %v", h.Name, h.Mode, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	for _, name := range []string{
		"seine", "README.md", "CHANGELOG.md", sbomName, "LICENSES/Apache-2.0.txt", "LICENSES/GPL-2.0-only.txt", "LICENSES/BSD-2-Clause.txt", "LICENSES/THIRD-PARTY.txt",
		"man/man8/seine.8.gz", "man/man8/seine-tcplife.8.gz", "completion/bash/seine", "completion/zsh/_seine", "completion/fish/seine.fish",
	} {
		if len(found[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	for _, want := range []string{"Bigelow & Holmes", "Copyright 2009 The Go Authors", "Permission is hereby granted", "Apache License\n"} {
		if !bytes.Contains(found["LICENSES/THIRD-PARTY.txt"], []byte(want)) {
			t.Errorf("no %q in the licences of others", want)
		}
	}
	var bill spdx
	if err := json.Unmarshal(found[sbomName], &bill); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"seine", "stdlib", "github.com/cilium/ebpf", "golang.org/x/sys"} {
		i := slices.IndexFunc(bill.Packages, func(p spdxPackage) bool { return p.Name == path })
		if i < 0 || bill.Packages[i].Version == "" {
			t.Errorf("%s is not in the bill of materials", path)
		}
	}
}

// run runs a command that must end well.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
		t.Skipf("needs %s and root", program)
	}
}

// checkVersion runs what was installed in a root that has nothing else, no
// library either.
func checkVersion(t *testing.T, s *src, root string) {
	t.Helper()
	cmd := exec.Command("/usr/bin/seine", "version")
	cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: root}, "/"
	if got, want := run(t, cmd), "seine "+s.version+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// checkDeb has dpkg install the package in an empty root, and uses what is there.
func checkDeb(t *testing.T, s *src, dist string) {
	need(t, "dpkg")
	root := t.TempDir()
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command("dpkg", "--root="+root, "--install", filepath.Join(dist, fmt.Sprintf("seine_%s-1_%s.deb", s.version, runtime.GOARCH))))
	checkVersion(t, s, root)
	if out := run(t, exec.Command(filepath.Join(root, "usr/bin/seine"), "demo", "tcplife")); strings.Count(out, " browser ") != 3 {
		t.Errorf("seine demo tcplife does not show the browser's three sessions:\n%s", out)
	}
	if _, err := exec.LookPath("man"); err == nil {
		man := exec.Command("man", "--warnings", filepath.Join(root, "usr/share/man/man8/seine-tcplife.8.gz"))
		man.Env = append(os.Environ(), "MANPAGER=cat", "MANWIDTH=80", "LC_ALL=C.UTF-8")
		if out := run(t, man); !strings.Contains(out, "TCP sessions with lifespan and bytes") || strings.Contains(out, "warning:") {
			t.Errorf("the man page reads\n%s", out)
		}
	}
	if out := run(t, exec.Command("dpkg", "--root="+root, "--verify", "seine")); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
	run(t, exec.Command("dpkg", "--root="+root, "--remove", "seine"))
	if _, err := os.Stat(filepath.Join(root, "usr/share/doc/seine")); !os.IsNotExist(err) {
		t.Errorf("files remain after the removal (%v)", err)
	}
}

// checkDebian boots a Debian that has the package in it, and a script that
// installs, uses and removes it.
func checkDebian(t *testing.T, s *src, dist string) {
	need(t, "qemu-system-x86_64")
	script, err := filepath.Abs("testdata/deb.sh")
	if err != nil {
		t.Fatal(err)
	}
	guest := exec.Command("go", "run", "./test/vm", "run", "-kernels", "6.12", "-cpus", "1", "-timeout", "10m", "-root", "-modules", "mac80211",
		"-env", "VERSION="+s.version, "-file", filepath.Join(dist, fmt.Sprintf("seine_%s-1_amd64.deb", s.version)), "--", script)
	guest.Dir = ".."
	if out := run(t, guest); !strings.Contains(out, "\ndone\n") {
		t.Errorf("the script did not get to its end:\n%s", out)
	}
}

func checkRPM(t *testing.T, s *src, dist string) {
	need(t, "rpm")
	root := t.TempDir()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	run(t, exec.Command("rpm", "--root="+root, "--install", filepath.Join(dist, fmt.Sprintf("seine-%s-1.%s.rpm", s.version, arch))))
	checkVersion(t, s, root)
	if out := run(t, exec.Command("rpm", "--root="+root, "--verify", "seine")); out != "" {
		t.Errorf("rpm --verify: %s", out)
	}
}
