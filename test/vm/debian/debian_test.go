// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

func TestMirror(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       Mirror
	}{
		{"both, with slashes", "http://m/debian/\nhttp://m/debian/\nhttp://s/debian-security/\n", Mirror{"http://m/debian", "http://s/debian-security"}},
		{"main alone", "http://m/pub/debian\n", Mirror{"http://m/pub/debian", "http://m/pub/debian-security"}},
		{"a vendor's first", "http://v/linux/stable\nhttp://m/debian\n", Mirror{"http://m/debian", "http://m/debian-security"}},
	} {
		got, err := parseMirror(c.list)
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
	for _, list := range []string{"", "http://v/linux/stable\n"} {
		if got, err := parseMirror(list); err == nil {
			t.Errorf("list %q gave %v, want an error", list, got)
		}
	}
}

func TestSources(t *testing.T) {
	m := Mirror{"http://m/debian", "http://m/debian-security"}
	for _, c := range []struct{ suite, arch, want string }{
		{"trixie", "arm64", "deb [arch=arm64] http://m/debian trixie main\ndeb [arch=arm64] http://m/debian-security trixie-security main\n"},
		{"sid", "amd64", "deb [arch=amd64] http://m/debian sid main\n"}, // has no security suite
	} {
		if got := m.sources(c.suite, c.arch); got != c.want {
			t.Errorf("sources of %s: got %q, want %q", c.suite, got, c.want)
		}
	}
}

func TestDepends(t *testing.T) {
	show := `Package: linux-image-9.9-amd64
Version: 9.9.1-1
Pre-Depends: linux-base (>= 4.17~)
Depends: dracut | initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool, linux-binary-9.9-amd64 (= 9.9.1-1),linux-modules-9.9-amd64
Recommends: apparmor
Description: a kernel
 Depends: is a word of this text too
`
	want := []string{"dracut", "linux-binary-9.9-amd64", "linux-modules-9.9-amd64"}
	if got := parseDepends(show); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := parseDepends("Package: x\nVersion: 1\n"); got != nil {
		t.Errorf("a package without dependencies gave %q", got)
	}
}

// TestUnpack: the files of all packages in a folder come into one tree.
func TestUnpack(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip(err)
	}
	debs, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	for _, name := range []string{"one", "two"} {
		pkg := t.TempDir()
		for file, text := range map[string]string{
			"DEBIAN/control": "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: nothing\n",
			"usr/" + name:    name,
		} {
			file = filepath.Join(pkg, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("dpkg-deb", "-b", pkg, filepath.Join(debs, name+".deb")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := unpack(t.Context(), dir, debs); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if got, err := os.ReadFile(filepath.Join(dir, "usr", name)); err != nil || string(got) != name {
			t.Errorf("usr/%s: %q, %v, want %[1]q", name, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(debs, "three.deb"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unpack(t.Context(), dir, debs); err == nil {
		t.Error("an empty file passed for a package")
	}
}
