// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seine/test/vm/job"
	"seine/test/vm/kernel"
)

func TestModulesAreKept(t *testing.T) {
	for _, name := range slices.Concat(guestModules, rootModules) {
		if !kernel.Kept(name) {
			t.Errorf("guests load %s, but kernel does not keep it", name)
		}
	}
}

func TestOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("-kernels 5.10,new -file a -file b:/c -modules x,y -- bin -kernels z"))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(o.kernels, o.files, o.modules, o.command)
	if want := "[5.10 new] [a b:/c] [x y] [bin -kernels z]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The command's architecture chooses the kernels.
func TestArch(t *testing.T) {
	amd64, arm64 := static(t, elf.EM_X86_64), static(t, elf.EM_AARCH64)
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		amd64:                                 "amd64 [5.10 6.1 6.12 new]",
		arm64:                                 "arm64 [6.12-arm64]",
		"-kernels 6.1 " + amd64:               "amd64 [6.1]",
		"-root " + script:                     "amd64 [5.10 6.1 6.12 new]",
		"-root ls":                            "amd64 [5.10 6.1 6.12 new]",
		"-kernels 6.12 " + arm64:              "is for arm64, kernel 6.12 for amd64",
		"-kernels 6.12-arm64 " + amd64:        "is for amd64, kernel 6.12-arm64 for arm64",
		"-root " + arm64:                      "a Debian root for amd64 alone",
		"-kernels 4.9 " + amd64:               "no kernel is called",
		"-steady " + amd64:                    "-steady is for one processor",
		"-steady -cpus 1 " + amd64:            "amd64 [5.10 6.1 6.12 new]",
		static(t, elf.EM_RISCV):               "is for EM_RISCV",
		filepath.Join(t.TempDir(), "nothing"): "no such file",
	} {
		o, err := parseOptions(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		err = o.check()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		if got := fmt.Sprint(o.arch, " ", o.kernels, err); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}

// static is a file of that machine, with nothing in it.
func static(t *testing.T, m elf.Machine) string {
	t.Helper()
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(m), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	})
	file := filepath.Join(t.TempDir(), m.String())
	if err := os.WriteFile(file, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// A root keeps the packages that it was given, and has the headers of the current
// kernels.
func TestRootWants(t *testing.T) {
	r := root{"x", []string{"b", "a"}, true}
	packages, all := r.wants([]string{"a", "c", "linux-headers-1"}, []kernel.Kernel{{Version: "2"}})
	if got, want := fmt.Sprint(packages, all), "[a b c] [a b c linux-headers-2]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, again := r.wants(all, []kernel.Kernel{{Version: "2"}}); !slices.Equal(again, all) {
		t.Errorf("with all that it wants it wants %s", again)
	}
}

// A steady guest has its clock from its instructions.
func TestSteady(t *testing.T) {
	for steady, want := range map[bool]string{true: "tcg,thread=single -icount shift=0", false: "tcg,thread=multi"} {
		b := boot{machine: machines["amd64"], CPUs: 1, Steady: steady}
		if got := strings.Join(b.args(), " "); !strings.Contains(got, want) || strings.Contains(got, "icount") != steady {
			t.Errorf("steady %v: got %s, want %s", steady, got, want)
		}
	}
}

// A root's own command is named without a slash; everything else is a file here.
func TestFromGuest(t *testing.T) {
	for _, c := range []struct {
		root    bool
		command string
		want    bool
	}{{true, "tcplife", true}, {true, "./tcplife", false}, {false, "tcplife", false}} {
		o := options{root: c.root, command: []string{c.command}}
		if got := o.fromGuest(); got != c.want {
			t.Errorf("root %v, %s: got %v, want %v", c.root, c.command, got, c.want)
		}
	}
}

func TestInitramfs(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	k := kernel.Kernel{Name: "6.12", Version: "6.12.1", Dir: filepath.Join(dir, "k"), Config: write("k/config", "CONFIG_X=y")}
	var dep strings.Builder
	for _, m := range slices.Concat(guestModules, rootModules, []string{"needed"}) {
		write("k/modules/"+m+".ko", "module")
		fmt.Fprintf(&dep, "%s.ko:", m)
		if m == "veth" {
			dep.WriteString(" needed.ko")
		}
		dep.WriteString("\n")
	}
	write("k/modules.dep", dep.String())
	write("k/modules.builtin", "")
	o := options{
		command: []string{write("prog", "binary"), "-x"},
		files:   []string{write("hosts", "mine") + ":/etc/hosts", filepath.Dir(write("tree/sub/leaf", "leaf"))},
	}

	names := func(root bool) string {
		r := runner{options: o, init: write("init", "first")}
		r.root = root
		file := filepath.Join(dir, "initrd")
		if err := r.initramfs(file, k); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	plain, root := names(false), names(true)
	for _, c := range []struct {
		in, what string
		want     bool
	}{
		{plain, "0init\x00\x00first", true},
		{plain, "vm/prog\x00\x00\x00binary", true},
		{plain, "vm/sub/leaf\x00\x00\x00leaf", true},
		{plain, "boot/config-6.12.1\x00\x00\x00\x00CONFIG_X=y", true},
		{plain, "modules/needed.ko\x00", true},
		{plain, "modules/ext4.ko\x00", false},
		{plain, "etc/passwd\x00", true},
		{plain, "localhost", false}, // of our own hosts file
		{plain, `"Args":["/vm/prog","-x"]`, true},
		{plain, `"Modules":["needed.ko","veth.ko",`, true},
		{root, job.Payload[1:] + "/vm/prog\x00", true},
		{root, job.Payload[1:] + "/etc/hosts\x00", true},
		{root, "etc/passwd\x00", false},
		{root, `"Modules":["virtio_pci.ko","virtio_blk.ko",`, true},
	} {
		if got := strings.Contains(c.in, c.what); got != c.want {
			t.Errorf("root %v: has %q: %v, want %v", c.in == root, c.what, got, c.want)
		}
	}
}

// A module that the flag names and that is not there is an error.
func TestUnknownModule(t *testing.T) {
	k := kernel.Kernel{Dir: t.TempDir()}
	for _, name := range []string{"modules.dep", "modules.builtin"} {
		if err := os.WriteFile(filepath.Join(k.Dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"mac80211-hwsim", "btrfs"} {
		r := runner{options: options{modules: []string{name}}, stderr: &shared{w: new(bytes.Buffer)}}
		if files, err := r.loadOrder(k); err == nil {
			t.Errorf("-modules %s: got %q, want an error", name, files)
		}
	}
}

func TestMarks(t *testing.T) {
	starts := 0
	m := marks{started: func() { starts++ }}
	for i, c := range job.Started + job.Exited(7) {
		if want := min(1, i/len(job.Started)); starts != want {
			t.Errorf("after %d bytes: %d starts, want %d", i, starts, want)
		}
		m.Write([]byte(string(c)))
	}
	if code, ok := job.ExitCode(m.text.String()); starts != 1 || code != 7 || !ok {
		t.Errorf("got %d starts, code %d, %v, want 1, 7, true", starts, code, ok)
	}
}

// Two guests that write at once do not cut each other's lines.
func TestLines(t *testing.T) {
	var b bytes.Buffer
	s := &shared{w: &b}
	one, two := s.lines(true), s.lines(true)
	for _, w := range []struct {
		to   *lines
		text string
	}{{one, "a1"}, {two, "b1\nb"}, {one, " a1\na2\na"}, {two, "2\n"}, {one, "3"}} {
		fmt.Fprint(w.to, w.text)
	}
	one.Close()
	two.Close()
	if got, want := b.String(), "b1\na1 a1\na2\nb2\na3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.Reset()
	live := s.lines(false)
	fmt.Fprint(live, "no newline")
	if got := b.String(); got != "no newline" {
		t.Errorf("one guest alone: got %q before Close, want it at once", got)
	}
}

func TestConsole(t *testing.T) {
	quiet := "[ 1] mtrr: your CPUs had inconsistent settings\r\n[ 2] reboot: Power down\r\n"
	long := strings.Repeat("[ 1] line\r\n", 97)
	for _, c := range []struct {
		name, console string
		complained    bool
		first         string
		lines         int
	}{
		{"quiet", quiet, false, "[ 1] mtrr: your CPUs had inconsistent settings", 2},
		{"empty", "\r\n", false, "(nothing)", 1},
		{"long", long, false, "[ 1] line", 50},
		{"warning", long + "[ 2] WARNING: CPU: 0 PID: 1 at net/x.c:1\r\n" + quiet, true, "[ 2] WARNING: CPU: 0 PID: 1 at net/x.c:1", 3},
		{"panic", quiet + "[ 3] Kernel panic - not syncing: x\r\n" + long, true, "[ 3] Kernel panic - not syncing: x", 50},
	} {
		tail := string(consoleTail([]byte(c.console)))
		first, _, _ := strings.Cut(tail, "\n")
		if got := complained([]byte(c.console)); got != c.complained {
			t.Errorf("%s: complained %v, want %v", c.name, got, c.complained)
		}
		if n := strings.Count(tail, "\n"); first != c.first || n != c.lines {
			t.Errorf("%s: got %d lines from %q, want %d from %q", c.name, n, first, c.lines, c.first)
		}
	}
}
