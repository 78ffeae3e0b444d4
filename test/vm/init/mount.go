// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"seine/test/vm/job"
)

type mount struct{ kind, dir, options string }

var (
	// early is the mounts that init itself needs; a Debian root gets them
	// too.
	early = []mount{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
	}
	late = []mount{
		{"devpts", "/dev/pts", "ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"bpf", "/sys/fs/bpf", "mode=700"},
		{"securityfs", "/sys/kernel/security", ""},
	}
	// tracing also mounts tracefs in its old place, for peers that look
	// there.
	tracing = []mount{
		{"tracefs", "/sys/kernel/tracing", ""},
		{"debugfs", "/sys/kernel/debug", ""},
	}
)

func mountAll(list []mount) error {
	for _, m := range list {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

// switchRoot puts a tmpfs over the Debian root on the first disk, copies the
// payload there and makes it the root directory.
func switchRoot() error {
	if err := waitFor("/dev/vda", 10*time.Second); err != nil {
		return err
	}
	for _, d := range []string{"/disk", "/over", "/new"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("/dev/vda", "/disk", "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the root disk: %w", err)
	}
	if err := unix.Mount("tmpfs", "/over", "tmpfs", 0, "size=75%"); err != nil {
		return fmt.Errorf("mount /over: %w", err)
	}
	for _, d := range []string{"/over/upper", "/over/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", "/new", "overlay", 0, "lowerdir=/disk,upperdir=/over/upper,workdir=/over/work"); err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	for _, m := range early {
		if err := unix.Mount(m.dir, "/new"+m.dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", m.dir, err)
		}
	}
	// Opened before the change of root and copied after it, so that symbolic
	// links such as /bin lead to where they do for the command.
	payload, err := os.OpenRoot(job.Payload)
	if err != nil {
		return err
	}
	defer payload.Close()
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return copyTree(payload.FS(), "/")
}

// copyTree copies directories and files, over what is there.
func copyTree(from fs.FS, to string) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		in, err := from.Open(name)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
		if err != nil {
			return err
		}
		defer out.Close()
		_, err = io.Copy(out, in)
		return err
	})
}

// waitFor waits for a device whose driver has just been loaded.
func waitFor(device string, limit time.Duration) error {
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := os.Stat(device)
		if err == nil {
			return nil
		}
		if time.Since(start) > limit {
			return fmt.Errorf("no %s after %v: %w", device, limit, err)
		}
	}
}
