// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/host"
)

// bootUnit makes the first process of its namespaces a systemd that has the agent's unit, as it
// is, and the targets that it names, and nothing else of this machine. The binary under test is
// /usr/bin/seine.
const bootUnit = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t cgroup2 none /sys/fs/cgroup
mount -t overlay -o lowerdir="$1/bin:/usr/bin" overlay /usr/bin
mount --bind "$1/units" /usr/lib/systemd/system
mount --bind "$1/etc" /etc/systemd
for empty in /usr/lib/systemd/system-generators /usr/lib/systemd/system-environment-generators /var/lib /run; do
	if [ -d $empty ]; then mount -t tmpfs none $empty; fi
done
mkdir -p /run/default
cp "$1/default" /run/default/seine-agent
mount --bind /run/default /etc/default
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/lib/systemd/systemd --system --unit=multi-user.target --log-target=null --show-status=no`

// TestUnitRuns: under a real systemd the unit starts and says that it is ready, the agent attaches
// all its tools and records within its sandbox, reads its config again, and stops.
func TestUnitRuns(t *testing.T) {
	t.Parallel()
	m := bootManager(t)
	if out, err := m.systemctl("start", "seine-agent"); err != nil {
		t.Fatalf("start: %v: %s\n%s", err, out, m.log())
	}
	// Its log says so before systemctl returns.
	if !strings.Contains(m.log(), "seine: ready") {
		t.Errorf("systemd takes it for ready before it is:\n%s", m.log())
	}
	a := &runningAgent{t: t, url: "http://" + m.address}
	a.await("/readyz", "ready")
	a.await("/metrics", `seine_agent_build_info\{`)

	holder := m.processes()
	if len(holder) != 2 {
		t.Fatalf("processes %v, want a holder and a front", holder)
	}
	unit, err := os.ReadFile("../../deploy/seine-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	allowed := strings.Fields(string(regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(unit)[1]))
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var want []string // what a machine withholds from all, such as a container, systemd cannot give
	for _, c := range capabilities(t, own, "CapBnd") {
		if slices.Contains(allowed, c) {
			want = append(want, c)
		}
	}
	for i, want := range [][]string{want, nil} { // the holder came first
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", holder[i]))
		if err != nil {
			t.Fatal(err)
		}
		if got := capabilities(t, b, "CapEff"); !slices.Equal(got, want) {
			t.Errorf("process %d has %v, want %v", i, got, want)
		}
		if !regexp.MustCompile(`(?m)^NoNewPrivs:\t1\nSeccomp:\t2$`).Match(b) {
			t.Errorf("process %d is not confined:\n%s", i, b)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", holder[0]))
	if err != nil || !regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ / ro[, ]`).Match(mounts) {
		t.Errorf("the root of the file system is not read-only: %v", err)
	}
	if files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/var/lib/seine/*.seine", holder[0])); err != nil || len(files) == 0 {
		t.Errorf("there is no recording: %v", err)
	}

	if out, err := m.systemctl("reload", "seine-agent"); err != nil {
		t.Errorf("reload: %v: %s", err, out)
	}
	for end := time.Now().Add(agentPatience); strings.Count(m.log(), "seine: ready") < 2; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not read its config again:\n%s", m.log())
		}
	}
	a.await("/readyz", "ready")
	// What the sandbox takes away is in the log: a tool that is left out, a file that is not read.
	if strings.Contains(m.log(), "level=WARN") || strings.Contains(m.log(), "level=ERROR") {
		t.Errorf("the log:\n%s", m.log())
	}

	if out, err := m.systemctl("stop", "seine-agent"); err != nil {
		t.Errorf("stop: %v: %s", err, out)
	}
	out, err := m.systemctl("show", "-p", "Result,ActiveState,ExecMainStatus", "seine-agent")
	if want := []string{"ActiveState=inactive", "ExecMainStatus=0", "Result=success"}; err != nil || !slices.Equal(sortedLines(out), want) {
		t.Errorf("after the stop: %q, %v, want %q", sortedLines(out), err, want)
	}
	if left := m.processes(); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

func sortedLines(s string) []string {
	lines := strings.Fields(s)
	slices.Sort(lines)
	return lines
}

// capabilities are those of a set in /proc/PID/status.
func capabilities(t *testing.T, status []byte, set string) (names []string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + set + `:\t([0-9a-f]+)$`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no %s:\n%s", set, status)
	}
	mask, err := strconv.ParseUint(string(m[1]), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	for c := range 64 {
		if mask>>c&1 != 0 {
			names = append(names, host.Capability(c).String())
		}
	}
	return names
}

// A manager is a systemd in namespaces and a control group of its own.
type manager struct {
	pid     int
	dir     string
	group   string // its control group
	address string // that the agent listens at
}

func bootManager(t *testing.T) *manager {
	t.Helper()
	for _, name := range []string{"/usr/lib/systemd/systemd", "systemctl", "nsenter", "unshare"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v: make test brings it", err)
		}
	}
	l := listenLow(t)
	m := &manager{dir: t.TempDir(), address: l.Addr().String()}
	l.Close()
	write := func(name, text string) {
		name = filepath.Join(m.dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, from := range map[string]string{"bin/seine": seine, "units/seine-agent.service": "../../deploy/seine-agent.service"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(b))
	}
	for _, target := range []string{"sysinit", "basic", "network", "multi-user", "shutdown"} {
		write("units/"+target+".target", "[Unit]\nDefaultDependencies=no\n")
	}
	// There is no journal.
	write("units/seine-agent.service.d/log.conf", "[Service]\nStandardError=append:"+m.dir+"/log\n")
	write("default", fmt.Sprintf("SEINE_AGENT=--listen %s --netns %d\n", m.address, newAgentWorld(t).Netns("")))
	write("etc/system.conf", "")

	root := "/sys/fs/cgroup/unified" // beside version 1
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root = "/sys/fs/cgroup"
	}
	m.group = filepath.Join(root, fmt.Sprintf("seine-unit-%d", os.Getpid()))
	if err := os.Mkdir(m.group, 0o755); err != nil {
		t.Fatal(err)
	}
	group, err := os.Open(m.group)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	cmd := exec.Command("unshare", "--cgroup", "sh", "-c", bootUnit, "sh", m.dir)
	said := &strings.Builder{}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		UseCgroupFD: true, CgroupFD: int(group.Fd()), Setsid: true,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.pid = cmd.Process.Pid
	t.Cleanup(func() {
		cmd.Process.Kill() // and so everything in its namespace
		cmd.Wait()
		removeGroup(m.group)
	})
	for end := time.Now().Add(agentPatience); ; time.Sleep(100 * time.Millisecond) {
		out, _ := m.systemctl("is-active", "multi-user.target")
		if strings.TrimSpace(out) == "active" {
			return m
		}
		if time.Now().After(end) {
			t.Fatalf("systemd does not start: %s\n%s", out, said)
		}
	}
}

// systemctl runs it in the namespaces.
func (m *manager) systemctl(args ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(m.pid), "-m", "-p", "systemctl", "--no-pager"}, args...)...).CombinedOutput()
	return string(out), err
}

// log is what the agent has said.
func (m *manager) log() string {
	b, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	return string(b)
}

// processes are those of the unit, the oldest first.
func (m *manager) processes() (pids []int) {
	b, _ := os.ReadFile(filepath.Join(m.group, "system.slice/seine-agent.service/cgroup.procs"))
	for _, line := range strings.Fields(string(b)) {
		var pid int
		fmt.Sscan(line, &pid)
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids
}

// removeGroup removes a control group and those in it, which have no processes any more.
func removeGroup(group string) {
	var all []string
	filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(all) {
		for range 50 { // its processes may still be dying
			if os.Remove(dir) == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}
