// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 8 MiB.
func smallDisk(t *testing.T, kind string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "disk")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "tmpfs":
		if err := unix.Mount("seine-test", at, "tmpfs", 0, "size=8m"); errors.Is(err, unix.EPERM) {
			t.Skip("this container may not mount")
		} else if err != nil {
			t.Fatal(err)
		}
	case "ext4":
		image := filepath.Join(dir, "image")
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(image, 8<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs.ext4", "-q", "-O", "^has_journal", image).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.ext4, of Debian's e2fsprogs: %v: %s", err, out)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
			t.Skipf("no loop device here: mount: %v: %s", err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}
