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
	"seine/test/vm/kernel"
)

// The suite of the Debian roots, which have the peers and other real programs.
const rootSuite, rootArch = "trixie", "amd64"

// A root is an image and what it holds besides a minimal system.
type root struct {
	name     string
	packages []string
	headers  bool // of all kernels that it can run on
}

var (
	plainRoot = root{"root", []string{"curl", "dnsmasq-base", "hostapd", "iproute2", "iputils-ping", "iw", "libbpf-tools", "procps"}, false}
	// peersRoot is four times as large: its tools bring a compiler each.
	peersRoot = root{"peers", slices.Concat(plainRoot.packages, []string{"bpfcc-tools", "bpftrace"}), true}
)

func rootfs(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("rootfs", flag.ContinueOnError)
	more := flags.String("packages", "", "packages to add to "+strings.Join(plainRoot.packages, ",")+", separated by commas")
	peers := flags.Bool("peers", false, "build the one of vm run -peers")
	if flags.Parse(args) != nil {
		return errUsage
	}
	r := plainRoot
	if *peers {
		r = peersRoot
	}
	if *more != "" {
		r.packages = slices.Concat(r.packages, strings.Split(*more, ","))
	}
	image, err := r.ensure(ctx)
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	fmt.Fprintf(os.Stderr, "vm: root: %s\n", image)
	return nil
}

// ensure returns the image, which it builds unless there is one that has all the
// packages. What an earlier image had, the new one has too, but for headers of
// kernels that are not in the cache any more.
func (r root) ensure(ctx context.Context) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "seine")
	image, list := filepath.Join(dir, r.name+".ext4"), filepath.Join(dir, r.name+".packages")
	text, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var kernels []kernel.Kernel
	if r.headers {
		for _, name := range kernel.Names(rootArch) {
			k, err := kernel.Fetch(ctx, name, false, os.Stderr)
			if err != nil {
				return "", err
			}
			kernels = append(kernels, k)
		}
	}
	have := strings.Fields(string(text))
	packages, all := r.wants(have, kernels)
	if slices.Equal(have, all) {
		return image, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("building a root image needs root")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "vm: root: building %s with %s\n", rootSuite, strings.Join(all, " "))
	if err := buildRoot(ctx, image, packages, kernels); err != nil {
		return "", err
	}
	return image, os.WriteFile(list, []byte(strings.Join(all, "\n")+"\n"), 0o644)
}

// wants lists the packages to install, and the contents of the image: these
// packages and the kernels' headers.
func (r root) wants(have []string, kernels []kernel.Kernel) (packages, all []string) {
	const headers = "linux-headers-"
	packages = slices.Concat(r.packages, slices.DeleteFunc(slices.Clone(have), func(p string) bool { return strings.HasPrefix(p, headers) }))
	slices.Sort(packages)
	packages = slices.Compact(packages)
	all = slices.Clone(packages)
	for _, k := range kernels {
		all = append(all, k.HeadersPackage())
	}
	slices.Sort(all)
	return packages, all
}

func buildRoot(ctx context.Context, image string, packages []string, kernels []kernel.Kernel) error {
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
	for _, k := range kernels {
		dir := filepath.Join(tmp, k.Name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := k.Headers(ctx, tree, dir); err != nil {
			return err
		}
	}
	size, err := treeSize(tree)
	if err != nil {
		return err
	}
	// The guest only reads, so no journal; and 5.10 must know every feature. Headers
	// are many small files.
	err = command(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-i", "8192", "-O", "^has_journal,^metadata_csum",
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
