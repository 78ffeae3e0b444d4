// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
)

// TestLeastPrivilege: every tool runs as a user who is not root and has only the
// capabilities that doctor names, and once it is ready it has those that
// doctor says it keeps.
func TestLeastPrivilege(t *testing.T) {
	var d verdict
	strict(t, run(t, "doctor", "-o", "json"), &d)
	if len(d.Tools) < 20 {
		t.Fatalf("doctor speaks of %d tools", len(d.Tools))
	}
	for _, tl := range d.Tools {
		t.Run(tl.Tool, func(t *testing.T) {
			if !tl.Runs {
				t.Skip(tl.Why)
			}
			t.Parallel()
			needs := capNames(tl.Needs)
			if !slices.Contains(needs, "CAP_BPF") || slices.Contains(needs, "CAP_SYS_ADMIN") {
				t.Errorf("doctor says that it needs %v", needs)
			}
			p := startAs(t, 65534, needs, tl.Tool)
			var want []string
			for _, c := range capNames(tl.Keeps) {
				if slices.Contains(needs, c) {
					want = append(want, c)
				}
			}
			p.wantCaps(want)
			p.signal(syscall.SIGINT)
			p.wantEnd(0)
		})
	}
}

func capNames(of []struct{ Capability, For string }) (out []string) {
	for _, c := range of {
		out = append(out, c.Capability)
	}
	return out
}

// TestLacksOne: a tool that needs more than the usual two capabilities reports
// that, with another exit code than for an unsupported kernel.
func TestLacksOne(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(seine, "udplife", "-d", "1")
	as(cmd, 65534, []string{"CAP_BPF", "CAP_PERFMON"})
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 0 {
		t.Skip("another way in does without CAP_NET_ADMIN")
	}
	const want = "seine: udplife also needs CAP_NET_ADMIN (programs on cgroups): run as root or with it\n"
	if cmd.ProcessState.ExitCode() != 4 || string(out) != want {
		t.Errorf("%v, %q, want exit status 4, %q", err, out, want)
	}
}

// TestGivesUp: root also keeps only the capabilities that it needs.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "tcpdrop")
	p.wantCaps([]string{"CAP_SYSLOG"})
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	p = start(t, nil, "tcpdrop", "--no-stack")
	p.wantCaps(nil)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
}

// TestLeastSees: with the least capabilities a tool sees everything that root
// sees.
func TestLeastSees(t *testing.T) {
	t.Parallel()
	w, only := twoHosts(t)
	s, err := lab.StartTCP(w, lab.Sessions{Count: 23, Send: 1000, Recv: 5000})
	if err != nil {
		t.Fatal(err)
	}
	p := startAs(t, 65534, []string{"CAP_BPF", "CAP_PERFMON"}, append([]string{"tcplife", "-o", "json"}, only...)...)
	if _, err := s.Run(); err != nil {
		t.Fatal(err)
	}
	p.await(&p.out, `(?s)(\n.*){46}`)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	if n := strings.Count(p.out.String(), fmt.Sprintf(`"pid":%d,`, s.Server.PID)); n != 23 {
		t.Errorf("%d sessions of the server, want 23", n)
	}
	if n := strings.Count(p.out.String(), "\n"); n != 46 {
		t.Errorf("%d rows, want 46", n)
	}
}

// TestLeastNames: names of kernel functions are also available for columns
// derived from them. If they are not available, a message says so.
func TestLeastNames(t *testing.T) {
	w, _ := twoHosts(t)
	for name, begin := range map[string]func() *process{
		"root": func() *process { return start(t, nil, "profile", "--net", "-F", "499", "--comm", "layered") },
		"without": func() *process {
			return startAs(t, 65534, []string{"CAP_BPF", "CAP_PERFMON"}, "profile", "--net", "-F", "499", "--comm", "layered")
		},
	} {
		p := begin()
		if err := lab.RunTCP(w, lab.Sessions{Send: 1 << 30, Recv: 1, ClientComm: "layered"}); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
		rows, hidden := strings.Contains(p.out.String(), "\ntcp "), strings.Contains(p.err.String(), "shows only zeroes")
		if rows == hidden || name == "root" && hidden {
			t.Errorf("%s: got\n%s%s", name, p.out.String(), p.err.String())
		}
	}
}

// startAs is start as a user with these capabilities and no others.
func startAs(t *testing.T, uid uint32, caps []string, args ...string) *process {
	t.Helper()
	return startWith(t, func(c *exec.Cmd) { as(c, uid, caps) }, args...)
}

func as(c *exec.Cmd, uid uint32, caps []string) {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	for n := range host.Capability(64) {
		if slices.Contains(caps, n.String()) {
			c.SysProcAttr.AmbientCaps = append(c.SysProcAttr.AmbientCaps, uintptr(n))
		}
	}
}

// wantCaps checks the capabilities of every thread of the process, and that it
// cannot get more.
func (p *process) wantCaps(want []string) {
	p.t.Helper()
	var bits uint64
	for n := range host.Capability(64) {
		if slices.Contains(want, n.String()) {
			bits |= 1 << n
		}
	}
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	threads, err := os.ReadDir(dir)
	if err != nil || len(threads) < 2 {
		p.t.Fatalf("%d threads (%v)", len(threads), err)
	}
	prm, eff := fmt.Sprintf("\nCapPrm:\t%016x\n", bits), fmt.Sprintf("\nCapEff:\t%016x\n", bits)
	late := time.Now().Add(patience)
	for _, th := range threads {
		var status []byte
		ok := false
		// A thread that was made to try something may take a moment to go.
		for {
			if status, err = os.ReadFile(dir + "/" + th.Name() + "/status"); err != nil {
				ok = true // gone
				break
			}
			s := string(status)
			ok = strings.Contains(s, prm) && strings.Contains(s, eff) && strings.Contains(s, "\nNoNewPrivs:\t1\n")
			if ok || time.Now().After(late) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !ok {
			p.t.Errorf("thread %s has not %v alone for good: %s", th.Name(), want, status)
		}
	}
}

// withCaps makes a copy of the binary with these file capabilities, and returns a
// function that makes a command run it as nobody.
func withCaps(t *testing.T, name string, caps ...host.Capability) func(*exec.Cmd) {
	t.Helper()
	file := filepath.Join(filepath.Dir(seine), name)
	b, err := os.ReadFile(seine)
	if err == nil {
		syscall.ForkLock.RLock() // otherwise the child of a parallel test may have it open, and it is busy
		err = os.WriteFile(file, b, 0o755)
		syscall.ForkLock.RUnlock()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	if len(caps) > 0 {
		// struct vfs_cap_data, version 2, in effect: permitted and inheritable bits, twice 32.
		words := [4]uint32{}
		for _, c := range caps {
			words[c/32*2] |= 1 << (c % 32)
		}
		data := binary.LittleEndian.AppendUint32(nil, 0x02000001)
		for _, word := range words {
			data = binary.LittleEndian.AppendUint32(data, word)
		}
		if err := unix.Setxattr(file, "security.capability", data, 0); err != nil {
			t.Skipf("no file capabilities on this file system: %v", err)
		}
	}
	return func(c *exec.Cmd) {
		c.Path = file
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// TestFileCapabilities: users get the capabilities that setcap gives to the
// binary.
func TestFileCapabilities(t *testing.T) {
	t.Parallel()
	setcap := withCaps(t, "setcap", host.CapBPF, host.CapPerfmon)
	p := startWith(t, setcap, "tcplife")
	p.wantCaps(nil)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	// uprobes, which are loaded as kprobes are; it says what it has, not what it could use
	p = startWith(t, setcap, "gethostlatency", "-v")
	if kept := "seine: capabilities kept: CAP_BPF, CAP_PERFMON (programs"; !strings.Contains(p.err.String(), kept) {
		t.Errorf("stderr %q, want %q", p.err.String(), kept)
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
}

// TestNoLabWithFileCapabilities: a binary with file capabilities does not run the
// lab's bodies for its caller, because they can do anything. A copy without
// capabilities shows that the order itself is valid.
func TestNoLabWithFileCapabilities(t *testing.T) {
	t.Parallel()
	order := func(change func(*exec.Cmd)) (string, string) {
		cmd := exec.Command(seine, "version")
		change(cmd)
		cmd.Env = append(os.Environ(), "SEINE_LAB_CHILD=1")
		in, say, err := os.Pipe() // whose end would be a child's, too
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer say.Close()
		cmd.Stdin = in
		fmt.Fprintln(say, `{"comm":"nobody","body":"mounts","arg":{"Program":["/bin/cat","/proc/self/status"]}}`)
		var out, trouble strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &trouble
		cmd.Run()
		return out.String(), trouble.String()
	}
	if out, trouble := order(withCaps(t, "plain")); !strings.Contains(out, "new mount namespace") {
		t.Errorf("without capabilities it wrote %q, %q, want a refused mount namespace", out, trouble)
	}
	out, trouble := order(withCaps(t, "capable", host.CapSysAdmin, host.CapBPF, host.CapPerfmon))
	if !strings.HasPrefix(out, "seine ") || strings.Contains(out, "CapEff") || strings.Contains(out, "{") {
		t.Errorf("with capabilities it wrote %q, %q, want its version alone", out, trouble)
	}
	cmd := exec.Command(seine, "demo", "tcplife")
	withCaps(t, "demo", host.CapSysAdmin, host.CapNetAdmin, host.CapBPF, host.CapPerfmon)(cmd)
	text, _ := cmd.CombinedOutput()
	const want = "seine: this binary has capabilities of its own (setcap): it makes no traffic: run a copy without them as root\n"
	if string(text) != want {
		t.Errorf("a demo says %q, want %q", text, want)
	}
}
