// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"seine/test/vm/debian"
)

// The Debian root for peers and for programs that are the real thing: its suite
// and what it holds besides a minimal system.
const rootSuite, rootArch = "trixie", "amd64"

var rootPackages = []string{"curl", "dnsmasq-base", "hostapd", "iproute2", "iputils-ping", "iw", "libbpf-tools", "procps"}

func rootfs(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("rootfs", flag.ContinueOnError)
	more := flags.String("packages", "", "packages to add to "+strings.Join(rootPackages, ",")+", separated by commas")
	if flags.Parse(args) != nil {
		return errUsage
	}
	var extra []string
	if *more != "" {
		extra = strings.Split(*more, ",")
	}
	image, err := ensureRoot(ctx, extra)
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	fmt.Fprintf(os.Stderr, "vm: root: %s\n", image)
	return nil
}

// ensureRoot returns the root image, which it builds unless there is one that
// has all the packages. What an earlier image had, the new one has too.
func ensureRoot(ctx context.Context, extra []string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "seine")
	image, list := filepath.Join(dir, "root.ext4"), filepath.Join(dir, "root.packages")
	text, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	have := strings.Fields(string(text))
	want := slices.Concat(rootPackages, extra, have)
	slices.Sort(want)
	want = slices.Compact(want)
	if slices.Equal(have, want) {
		return image, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("building a root image needs root")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "vm: root: building %s with %s\n", rootSuite, strings.Join(want, " "))
	if err := buildRoot(ctx, image, want); err != nil {
		return "", err
	}
	return image, os.WriteFile(list, []byte(strings.Join(want, "\n")+"\n"), 0o644)
}

func buildRoot(ctx context.Context, image string, packages []string) error {
	mirror, err := debian.Host(ctx)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(image), ".root-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	tree, part := filepath.Join(tmp, "tree"), filepath.Join(tmp, "image")
	err = command(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--components=main",
		"--include="+strings.Join(packages, ","),
		"--aptopt=APT::Install-Recommends \"false\"",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		// No address may stay in the image.
		`--customize-hook=rm -rf "$1"/etc/apt/sources.list* "$1"/var/lib/apt/lists "$1"/var/cache/apt`,
		`--customize-hook=printf 'vm\n' > "$1"/etc/hostname; printf '127.0.0.1 localhost vm\n::1 localhost\n' > "$1"/etc/hosts`,
		rootSuite, tree, mirror.Main)
	if err != nil {
		return err
	}
	size, err := treeSize(tree)
	if err != nil {
		return err
	}
	// The guest only reads, so no journal; and 5.10 must know every feature.
	err = command(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal,^metadata_csum",
		"-d", tree, part, fmt.Sprintf("%dK", size*5/4/1024+32<<10))
	if err != nil {
		return err
	}
	return os.Rename(part, image)
}

// treeSize counts the bytes of a tree's files, each to the full block.
func treeSize(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum += (info.Size() + 4095) &^ 4095
		return nil
	})
	return sum, err
}

// command runs a program whose output matters only when it fails.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("%s: %w: %s", name, err, bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
	}
	return nil
}
