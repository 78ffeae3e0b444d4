// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"seine/test/vm/cpio"
	"seine/test/vm/job"
	"seine/test/vm/kernel"
)

// Modules that every guest loads, those for a card, and those that a Debian
// root needs first.
var (
	guestModules = []string{
		"veth", "dummy", "tun", "macvlan", "8021q",
		"sch_fq", "sch_fq_codel", "sch_codel", "sch_red", "sch_tbf", "sch_cbs", "sch_prio", "sch_htb", "sch_netem", "sch_ingress", "cls_bpf",
		"inet_diag", "tcp_diag", "udp_diag", "unix_diag",
		"crc32c_generic", "nf_tables", // which asks the crypto layer for the former until 6.12
	}
	nicModules  = []string{"virtio_pci", "virtio_net"}
	rootModules = []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay"}
)

// etc is the few files of /etc that programs read in a guest without a Debian
// root.
var etc = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost vm\n::1 localhost\n",
	"/etc/nsswitch.conf": "hosts: files dns\n",
	"/etc/hostname":      "vm\n",
}

// buildInit compiles the guest's init into dir.
func buildInit(ctx context.Context, arch, dir string) (string, error) {
	file := filepath.Join(dir, "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", file, "seine/test/vm/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build init: %w: %s", err, bytes.TrimSpace(out))
	}
	return file, nil
}

// initramfs writes the archive that the guest boots from. It is not compressed:
// unpacking under emulation costs more than reading it.
func (r *runner) initramfs(file string, k kernel.Kernel) error {
	j := job.Job{Args: r.command, Env: append([]string{"SEINE_VM=" + k.Name}, r.env...), Tracefs: r.tracefs, Root: r.root}
	modules, err := r.loadOrder(k)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := bufio.NewWriterSize(f, 1<<20)
	a := archive{cpio.NewWriter(buf)}

	if err := a.copy("/init", r.init); err != nil {
		return err
	}
	for _, m := range modules {
		j.Modules = append(j.Modules, filepath.Base(m))
		if err := a.copy(path.Join(job.Modules, filepath.Base(m)), m); err != nil {
			return err
		}
	}
	under := "/"
	if r.root {
		under = job.Payload
	}
	for _, dir := range []string{"/root", job.Home} {
		if err := a.Dir(path.Join(under, dir)); err != nil {
			return err
		}
	}
	// Debian builds no /proc/config.gz; this is where its users find the options.
	if err := a.copy(path.Join(under, "boot", "config-"+k.Version), k.Config); err != nil {
		return err
	}
	if !r.fromGuest() {
		j.Args = append([]string{inHome(filepath.Base(r.command[0]))}, r.command[1:]...)
		if err := a.copy(path.Join(under, j.Args[0]), r.command[0]); err != nil {
			return err
		}
	}
	for _, spec := range r.files {
		host, guest, _ := strings.Cut(spec, ":")
		if guest == "" {
			guest = filepath.Base(host)
		}
		if err := a.copyTree(path.Join(under, inHome(guest)), host); err != nil {
			return fmt.Errorf("-file %s: %w", spec, err)
		}
	}
	for name, text := range etc {
		if r.root || a.Has(name) {
			continue
		}
		if err := a.text(name, text); err != nil {
			return err
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if err := a.text(job.File, string(text)); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	return buf.Flush()
}

// loadOrder lists the module files of this boot. Those asked for by flag must
// exist. A root's modules change with the kernels: what is missing there and
// needed shows when the disk is mounted.
func (r *runner) loadOrder(k kernel.Kernel) ([]string, error) {
	var first []string
	if r.root {
		first = rootModules
	}
	if r.nic {
		first = slices.Concat(first, nicModules)
	}
	files, missing, err := k.LoadOrder(slices.Concat(first, guestModules, r.modules)...)
	if err != nil {
		return nil, err
	}
	for _, m := range missing {
		switch {
		case slices.Contains(r.modules, m):
			if !kernel.Kept(m) {
				return nil, fmt.Errorf("module %s is not kept: see test/vm/kernel/modules.go", m)
			}
			return nil, fmt.Errorf("%s has no module %s", k.Version, m)
		case slices.Contains(guestModules, m):
			r.say(k, "%s has no module %s", k.Version, m)
		}
	}
	return files, nil
}

func inHome(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(job.Home, name)
}

// An archive is a cpio archive that can be filled from the host.
type archive struct{ *cpio.Writer }

func (a archive) text(name, text string) error {
	return a.File(name, 0o644, int64(len(text)), strings.NewReader(text))
}

func (a archive) copy(name, host string) error {
	f, err := os.Open(host)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return a.File(name, info.Mode(), info.Size(), f)
}

// copyTree adds a file, or a directory with all that is in it.
func (a archive) copyTree(name, host string) error {
	return filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return a.Dir(path.Join(name, rel))
		}
		return a.copy(path.Join(name, rel), p) // of a link: what it points to
	})
}
