// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A town has containers of many kinds. Ids that begin alike are made up.
func town(t *testing.T) (c *Containers, ids map[string]string) {
	tree := newTree(t)
	ids = map[string]string{
		"web": "abcd1" + id("web")[5:], "db": "abcd2" + id("db")[5:], "old": "cafe" + id("old")[4:],
		"nginx1": id("nginx1"), "nginx2": id("nginx2"), "bare": id("bare"), "outer": id("outer"), "inner": id("inner"),
	}
	for _, name := range []string{"web", "db", "old", "outer"} {
		tree.write("/var/lib/docker/containers/"+ids[name]+"/config.v2.json", fmt.Sprintf(`{"Name":"/%s"}`, name))
	}
	for i, name := range []string{"nginx1", "nginx2"} {
		tree.write("/run/containerd/io.containerd.runtime.v2.task/k8s.io/"+ids[name]+"/config.json", fmt.Sprintf(`{"annotations":{
			"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.sandbox-name":"pod%d","io.kubernetes.cri.sandbox-namespace":"shop"}}`, i+1))
	}
	tree.write("/sys/fs/cgroup/unified/cgroup.controllers", "")
	for _, dir := range []string{
		"system.slice/docker-" + ids["web"] + ".scope/init.scope",
		"system.slice/docker-" + ids["db"] + ".scope",
		"kubepods.slice/kubepods-pod1.slice/cri-containerd-" + ids["nginx1"] + ".scope",
		"kubepods.slice/kubepods-pod2.slice/cri-containerd-" + ids["nginx2"] + ".scope",
		"machine.slice/libpod-" + ids["bare"] + ".scope",
		"docker/" + ids["outer"] + "/docker/" + ids["inner"],
		"lxc.payload.box",
		"system.slice/nginx.service",
	} {
		tree.mkdir("/sys/fs/cgroup/unified/" + dir)
	}
	// In version 1 only, as on hybrid hosts.
	v1 := "4:memory:/docker/" + ids["old"] + "\n1:name=systemd:/docker/" + ids["old"] + "\n0::/\n"
	tree.write("/proc/31/cgroup", v1)
	tree.write("/proc/37/cgroup", v1)
	tree.write("/proc/41/cgroup", "1:name=systemd:/system.slice/docker-"+ids["web"]+".scope\n0::/system.slice/docker-"+ids["web"]+".scope/init.scope\n")
	tree.write("/proc/43/cgroup", "0::/docker/"+ids["outer"]+"\n")
	tree.write("/proc/47/cgroup", "0::/docker/"+ids["outer"]+"/docker/"+ids["inner"]+"\n")
	tree.write("/proc/53/cgroup", "0::/system.slice/nginx.service\n")
	tree.write("/proc/self/cgroup", "0::/lxc/self\n")
	return NewContainers(tree.root), ids
}

func TestResolve(t *testing.T) {
	c, ids := town(t)
	web := []string{"/system.slice/docker-" + ids["web"] + ".scope"}
	db := []string{"/system.slice/docker-" + ids["db"] + ".scope"}
	nginx1 := "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + ids["nginx1"] + ".scope"
	nginx2 := "/kubepods.slice/kubepods-pod2.slice/cri-containerd-" + ids["nginx2"] + ".scope"
	for ask, want := range map[string][]string{
		"web":                    web,
		ids["web"]:               web,
		ids["web"][:12]:          web,
		"abcd1":                  web,
		"abcd2":                  db,
		"docker://" + ids["web"]: web,
		"shop/pod1/nginx":        {nginx1},
		"pod2/nginx":             {nginx2},
		"nginx":                  {nginx1, nginx2},
		ids["bare"][:12]:         {"/machine.slice/libpod-" + ids["bare"] + ".scope"},
		"box":                    {"/lxc.payload.box"},
		"outer":                  {"/docker/" + ids["outer"]},
		ids["inner"][:7]:         {"/docker/" + ids["outer"] + "/docker/" + ids["inner"]},
	} {
		if got, err := c.Resolve(ask); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", ask, got, err, want)
		}
	}
}

func TestResolveErrors(t *testing.T) {
	c, ids := town(t)
	for ask, want := range map[string][]string{
		"":              {"give a name or an id"},
		"nosuch":        {"no container nosuch", "web (abcd1", "db (abcd2", "shop/pod1/nginx", "box", "old (cafe", ids["bare"][:12]},
		"abc":           {"no container abc"}, // three digits
		"abcd":          {"ambiguous", "web (abcd1", "db (abcd2"},
		"web\x1b[2J":    {`"web\x1b[2J"`},
		"pod1":          {"no container pod1"},
		"docker://":     {"give a name or an id"},
		"nginx.service": {"no container"},
		"self":          {"no container"},
	} {
		got, err := c.Resolve(ask)
		if err == nil {
			t.Errorf("%q: got %v, want an error", ask, got)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %v, want %q in it", ask, err, part)
			}
		}
		if errors.Is(err, ErrCgroup1) {
			t.Errorf("%q: got %v, which has nothing to do with version 1", ask, err)
		}
	}
	if _, err := NewContainers(t.TempDir()).Resolve("web"); err == nil || !strings.Contains(err.Error(), "no cgroup here") {
		t.Errorf("without containers: got %v", err)
	}
}

func TestResolveCgroup1(t *testing.T) {
	c, ids := town(t)
	for _, ask := range []string{"old", "cafe", ids["old"]} {
		got, err := c.Resolve(ask)
		if !errors.Is(err, ErrCgroup1) || !strings.Contains(err.Error(), "name=systemd:/docker/"+ids["old"]) || !strings.Contains(err.Error(), "such as 31") {
			t.Errorf("%s: got %v, %v, want ErrCgroup1 with its place and a process", ask, got, err)
		}
	}
	found, err := c.Find("old")
	want := []Container{{ID: ids["old"], Name: "old", PIDs: []int{31, 37},
		V1: []string{"name=systemd:/docker/" + ids["old"], "memory:/docker/" + ids["old"]}}}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("got %+v, %v, want %+v", found, err, want)
	}
}

func TestList(t *testing.T) {
	c, ids := town(t)
	got := make(map[string]Container)
	for _, container := range c.List() {
		got[container.ID] = container
	}
	if len(got) != 9 {
		t.Errorf("got %d containers, want 9: %+v", len(got), got)
	}
	if web := got[ids["web"]]; web.V1 != nil || len(web.Cgroups) != 1 {
		t.Errorf("web: got %+v, want one cgroup2 directory and nothing else", web)
	}
	for name, pids := range map[string][]int{"web": {41}, "db": nil, "outer": {43, 47}, "inner": {47}, "old": {31, 37}} {
		if container := got[ids[name]]; !reflect.DeepEqual(container.PIDs, pids) {
			t.Errorf("%s: got processes %v, want %v", name, container.PIDs, pids)
		}
	}
}

// TestVersion1Only: the directories of version 1 are not taken for cgroup2's.
func TestVersion1Only(t *testing.T) {
	tree, own := newTree(t), id("v1")
	tree.mkdir("/sys/fs/cgroup/memory/docker/" + own)
	if got := NewContainers(tree.root).List(); len(got) != 0 {
		t.Errorf("got %+v, want nothing", got)
	}
}

// sleeper starts a process that lasts as long as the test.
func sleeper(t *testing.T, cgroupProcs string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSleeper$")
	cmd.Env = append(os.Environ(), "SEINE_SLEEPER=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	if err := os.WriteFile(cgroupProcs, []byte(fmt.Sprint(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestSleeper(t *testing.T) {
	if os.Getenv("SEINE_SLEEPER") != "" {
		bufio.NewReader(os.Stdin).ReadByte() // until the parent is done
	}
}

// mkcgroup makes a directory and those above it that are missing, and removes
// them at the end.
func mkcgroup(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	mkcgroup(t, filepath.Dir(dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
}

// TestThisMachine makes cgroups as Docker does, puts processes in them, and finds
// them again.
func TestThisMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root, err := host.Cgroup2()
	if err != nil {
		t.Fatal(err)
	}
	own := id(fmt.Sprint("machine", os.Getpid()))
	cgroup := fmt.Sprintf("/seine-enrich-%d.slice/docker-%s.scope", os.Getpid(), own)
	mkcgroup(t, root+cgroup+"/init.scope")
	pid := sleeper(t, root+cgroup+"/init.scope/cgroup.procs")

	c := NewContainers("/")
	if gotID, name := c.ByPID(pid); gotID != own || name != own[:12] {
		t.Errorf("pid %d: got %q %q, want %q", pid, gotID, name, own)
	}
	kernelID, level, err := host.CgroupID(cgroup + "/init.scope")
	if err != nil || level != 3 {
		t.Fatalf("level %d, %v, want 3", level, err)
	}
	if gotID, name := c.ByCgroupID(kernelID); gotID != own || name != own[:12] {
		t.Errorf("cgroup %d: got %q %q, want %q", kernelID, gotID, name, own)
	}
	paths, err := c.Resolve(own[:10])
	if err != nil || !reflect.DeepEqual(paths, []string{cgroup}) {
		t.Errorf("got %v, %v, want %s", paths, err, cgroup)
	}
	for _, path := range paths {
		if _, level, err := host.CgroupID(path); err != nil || level != 2 {
			t.Errorf("%s: level %d, %v, want 2", path, level, err)
		}
	}
	if found, err := c.Find(own); err != nil || !reflect.DeepEqual(found[0].PIDs, []int{pid}) {
		t.Errorf("got %+v, %v, want process %d", found, err, pid)
	}
}

func TestThisMachineCgroup1(t *testing.T) {
	const v1 = "/sys/fs/cgroup/systemd"
	var fs unix.Statfs_t
	if err := unix.Statfs(v1, &fs); err != nil || fs.Type != unix.CGROUP_SUPER_MAGIC {
		t.Skip("no hierarchies of version 1 here")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	own := id(fmt.Sprint("v1", os.Getpid()))
	mkcgroup(t, v1+"/docker/"+own)
	pid := sleeper(t, v1+"/docker/"+own+"/cgroup.procs")
	c := NewContainers("/")
	if gotID, name := c.ByPID(pid); gotID != own || name != own[:12] {
		t.Errorf("pid %d: got %q %q, want %q", pid, gotID, name, own)
	}
	if got, err := c.Resolve(own); !errors.Is(err, ErrCgroup1) || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
		t.Errorf("got %v, %v, want ErrCgroup1 with process %d", got, err, pid)
	}
}
