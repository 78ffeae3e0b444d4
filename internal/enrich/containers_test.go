// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A tree is a fake root directory.
type tree struct {
	testing.TB
	root string
}

func newTree(t testing.TB) tree { return tree{t, t.TempDir()} }

func (t tree) write(path, text string) {
	t.Helper()
	path = filepath.Join(t.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (t tree) mkdir(path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(t.root, path), 0o755); err != nil {
		t.Fatal(err)
	}
}

// wantName checks the container that a cgroup belongs to.
func wantName(t testing.TB, c *Containers, path, wantID, want string) {
	t.Helper()
	gotID, got := c.ByCgroupPath(path)
	if gotID != wantID || got != want {
		t.Errorf("%s:\n got %q, %q\nwant %q, %q", path, gotID, got, wantID, want)
	}
}

const ociKubernetes = `{"ociVersion":"1.1.0","process":{"args":["nginx"]},"annotations":{
	"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.container-type":"container",
	"io.kubernetes.cri.sandbox-name":"web-7f9c","io.kubernetes.cri.sandbox-namespace":"shop"}}`

func TestNames(t *testing.T) {
	const pod = "0a1b2c3d-1111-2222-3333-444455556666"
	for _, test := range []struct {
		name   string
		files  map[string]string // ID stands for the id, also in the cgroup
		cgroup string
		want   string
	}{
		{"docker", map[string]string{"/var/lib/docker/containers/ID/config.v2.json": `{"ID":"ID","Name":"/web","Config":{"Labels":{}}}`},
			"/docker/ID", "web"},
		{"docker, systemd", map[string]string{"/var/lib/docker/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/system.slice/docker-ID.scope", "web"},
		{"docker, elsewhere", map[string]string{"/etc/docker/daemon.json": `{"data-root":"/srv/docker"}`, "/srv/docker/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/docker/ID", "web"},
		{"docker, other parent", map[string]string{"/var/lib/docker/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/mine/ID", "web"},
		{"docker, userns-remap", map[string]string{"/var/lib/docker/100000.100000/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/docker/ID", "web"},
		{"docker, snap", map[string]string{"/var/snap/docker/common/var-lib-docker/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/docker/ID", "web"},
		{"docker, rootless", map[string]string{"/etc/passwd": "ann:x:1000:1000::/home/ann:/bin/sh\n", "/home/ann/.local/share/docker/containers/ID/config.v2.json": `{"Name":"/web"}`},
			"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope", "web"},
		{"docker, kubernetes", map[string]string{"/var/lib/docker/containers/ID/config.v2.json": `{"Name":"/k8s_nginx_web-7f9c_shop_1_0","Config":{"Labels":{
			"io.kubernetes.container.name":"nginx","io.kubernetes.pod.name":"web-7f9c","io.kubernetes.pod.namespace":"shop","io.kubernetes.docker.type":"container"}}}`},
			"/kubepods/burstable/pod1/ID", "shop/web-7f9c/nginx"},
		{"docker, kubernetes, sandbox", map[string]string{"/var/lib/docker/containers/ID/config.v2.json": `{"Name":"/k8s_POD_web-7f9c_shop_1_0","Config":{"Labels":{
			"io.kubernetes.container.name":"POD","io.kubernetes.pod.name":"web-7f9c","io.kubernetes.pod.namespace":"shop","io.kubernetes.docker.type":"podsandbox"}}}`},
			"/kubepods/burstable/pod1/ID", "shop/web-7f9c"},
		{"containerd", map[string]string{"/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json": ociKubernetes},
			"/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope", "shop/web-7f9c/nginx"},
		{"containerd, cgroupfs", map[string]string{"/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json": ociKubernetes},
			"/kubepods/besteffort/pod1/ID", "shop/web-7f9c/nginx"},
		{"containerd, k3s", map[string]string{"/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json": ociKubernetes},
			"/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope", "shop/web-7f9c/nginx"},
		{"containerd, sandbox", map[string]string{"/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json": `{"annotations":{
			"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"web-7f9c","io.kubernetes.cri.sandbox-namespace":"shop"}}`},
			"/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope", "shop/web-7f9c"},
		{"nerdctl", map[string]string{"/run/containerd/io.containerd.runtime.v2.task/default/ID/config.json": `{"annotations":{"nerdctl/name":"web","nerdctl/namespace":"default"}}`},
			"/system.slice/nerdctl-ID.scope", "web"},
		{"nerdctl, cgroupfs", map[string]string{"/run/containerd/io.containerd.runtime.v2.task/default/ID/config.json": `{"annotations":{"nerdctl/name":"web"}}`},
			"/default/ID", "web"},
		{"crio", map[string]string{"/run/containers/storage/overlay-containers/ID/userdata/config.json": `{"annotations":{
			"io.kubernetes.container.name":"nginx","io.kubernetes.pod.name":"web-7f9c","io.kubernetes.pod.namespace":"shop","io.kubernetes.cri-o.ContainerType":"container"}}`},
			"/kubepods.slice/kubepods-pod1.slice/crio-ID.scope", "shop/web-7f9c/nginx"},
		{"crio, only the list", map[string]string{"/var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"ID","names":["k8s_nginx_web-7f9c_shop_1_0"]}]`},
			"/kubepods.slice/kubepods-pod1.slice/crio-ID.scope", "k8s_nginx_web-7f9c_shop_1_0"},
		{"kubelet's log", map[string]string{"/var/log/containers/web-7f9c_shop_nginx-ID.log": "", "/var/log/containers/other_shop_nginx-1.log": "", "/var/log/pods/shop_web-7f9c_" + pod + "/nginx/0.log": ""},
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(pod, "-", "_") + ".slice/cri-containerd-ID.scope", "shop/web-7f9c/nginx"},
		{"kubelet's directory of a pod", map[string]string{"/var/log/pods/shop_web-7f9c_" + pod + "/nginx/0.log": "", "/var/log/pods/shop_other_1-2/nginx/0.log": ""},
			"/kubepods/besteffort/pod" + pod + "/ID", "shop/web-7f9c"},
		{"podman", map[string]string{"/var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"x","names":["other"]},{"id":"ID","names":["web","alias"],"layer":"1"}]`},
			"/machine.slice/libpod-ID.scope/container", "web"},
		{"podman --rm", map[string]string{"/var/lib/containers/storage/overlay-containers/volatile-containers.json": `[{"id":"ID","names":["web"]}]`},
			"/machine.slice/libpod-ID.scope", "web"},
		{"podman, vfs", map[string]string{"/var/lib/containers/storage/vfs-containers/containers.json": `[{"id":"ID","names":["web"]}]`},
			"/libpod_parent/libpod-ID", "web"},
		{"podman, payload", map[string]string{"/var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"ID","names":["web"]}]`},
			"/system.slice/web.service/libpod-payload-ID", "web"},
		{"podman, rootless", map[string]string{"/etc/passwd": "ann:x:1000:1000::/home/ann:/bin/sh\n",
			"/home/ann/.local/share/containers/storage/overlay-containers/containers.json": `[{"id":"ID","names":["web"]}]`},
			"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container", "web"},
		{"nspawn", nil, `/machine.slice/machine-my\x2dweb.scope/payload`, "my-web"},
		{"lxc", nil, "/lxc/web/init.scope", "web"},
		{"lxc, payload", nil, "/lxc.payload.web", "web"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree, own := newTree(t), id(test.name)
			for path, text := range test.files {
				tree.write(strings.ReplaceAll(path, "ID", own), strings.ReplaceAll(text, "ID", own))
			}
			wantID := own
			if !strings.Contains(test.cgroup, "ID") {
				wantID = test.want
			}
			c := NewContainers(tree.root)
			path := strings.ReplaceAll(test.cgroup, "ID", own)
			wantName(t, c, path, wantID, test.want)
			wantName(t, c, path, wantID, test.want) // from the cache

			// The same cgroup without the files: nothing is guessed.
			if len(test.files) > 0 {
				wantName(t, NewContainers(t.TempDir()), path, own, own[:12])
			}
		})
	}
}

// TestOtherPods: log files of the kubelet name only containers in a pod, and only those of that pod.
func TestOtherPods(t *testing.T) {
	tree, own := newTree(t), id("x")
	tree.write("/var/log/containers/web_shop_nginx-"+own+".log", "")
	tree.write("/var/log/pods/shop_web_12-34/nginx/0.log", "")
	for _, path := range []string{"/system.slice/docker-" + own + ".scope", "/tripod12-34/" + own, "/kubepods/" + own} {
		wantName(t, NewContainers(tree.root), path, own, own[:12])
	}
	other := id("y")
	wantName(t, NewContainers(tree.root), "/kubepods/pod12-34/"+other, other, other[:12]) // its log comes later
	tree = newTree(t)
	tree.write("/var/log/pods/shop_web_12-34/nginx/0.log", "")
	wantName(t, NewContainers(tree.root), "/kubepods/pod12-3/"+other, other, other[:12])
	wantName(t, NewContainers(tree.root), "/kubepods/pod12-34/"+other, other, "shop/web")
}

// TestOtherRuntimesFiles: the state of one runtime does not name a container of
// another, and a user's files do not name the system's containers.
func TestOtherRuntimesFiles(t *testing.T) {
	tree, own := newTree(t), id("x")
	tree.write("/var/lib/docker/containers/"+own+"/config.v2.json", `{"Name":"/docker-name"}`)
	tree.write("/etc/passwd", "ann:x:1000:1000::/home/ann:/bin/sh\n")
	tree.write("/home/ann/.local/share/containers/storage/overlay-containers/containers.json", `[{"id":"`+own+`","names":["ann-name"]}]`)
	c := NewContainers(tree.root)
	wantName(t, c, "/machine.slice/libpod-"+own+".scope", own, own[:12])
	wantName(t, c, "/system.slice/nginx.service", "", "")
	wantName(t, c, "/", "", "")
	wantName(t, c, "", "", "")
}

func TestHostileState(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for _, test := range []struct{ name, text, want string }{ // "" wants the short id
		{"empty", "", ""},
		{"not JSON", "hello", ""},
		{"truncated", `{"Name":"/web","Config":{"Lab`, ""},
		{"null", `null`, ""},
		{"an array", `[1,2]`, ""},
		{"a string", `"web"`, ""},
		{"a number for the name", `{"Name":7}`, ""},
		{"an object for the name", `{"Name":{"a":1}}`, ""},
		{"no name", `{"ID":"x"}`, ""},
		{"only a slash", `{"Name":"/"}`, ""},
		{"a wrong type beside the name", `{"Name":"/web","Config":7}`, "web"},
		{"a wrong type among the labels", `{"Name":"/web","Config":{"Labels":{"a":1,"b":["c"]}}}`, "web"},
		{"labels in an array", `{"Config":{"Labels":["a"]},"Name":"/web"}`, "web"},
		{"control characters", `{"Name":"/w\u001b[31mb\u0000\n"}`, "w\x1b[31mb\x00\n"},
		{"long", `{"Name":"/` + long + `"}`, long[:256]},
		{"long, uneven", `{"Name":"/a` + long + `"}`, ("a" + long)[:255]},
		{"half a pod", `{"Name":"/web","Config":{"Labels":{"io.kubernetes.pod.name":"p"}}}`, "web"},
		{"deep", strings.Repeat(`{"Config":`, 20000) + "1" + strings.Repeat("}", 20000), ""},
		{"huge", `{"Name":"/web","x":"` + strings.Repeat("y", 5<<20) + `"}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree, own := newTree(t), id(test.name)
			tree.write("/var/lib/docker/containers/"+own+"/config.v2.json", test.text)
			want := test.want
			if want == "" {
				want = own[:12]
			}
			c := NewContainers(tree.root)
			wantName(t, c, "/docker/"+own, own, want)
			if _, name := c.ByCgroupPath("/docker/" + own); len(name) > maxName || !utf8.ValidString(name) {
				t.Errorf("%d bytes %q: want at most %d, cut between characters", len(name), name, maxName)
			}
		})
	}
}

func TestHostileList(t *testing.T) {
	own := id("list")
	for _, test := range []struct{ name, text, want string }{
		{"truncated", `[{"id":"` + own + `","names":["web"]}`, ""},
		{"an object", `{"id":"` + own + `","names":["web"]}`, ""},
		{"no names", `[{"id":"` + own + `","names":[]}]`, ""},
		{"names of wrong type", `[{"id":"` + own + `","names":"web"}]`, ""},
		{"a bad one before", `[7,null,"x",{"id":7,"names":{}},{"id":"` + own + `","names":["web"]}]`, "web"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := newTree(t)
			tree.write("/var/lib/containers/storage/overlay-containers/containers.json", test.text)
			want := test.want
			if want == "" {
				want = own[:12]
			}
			wantName(t, NewContainers(tree.root), "/machine.slice/libpod-"+own+".scope", own, want)
		})
	}
}

// TestNotAFile puts what would block or never end in the place of the state.
func TestNotAFile(t *testing.T) {
	own := id("fifo")
	state := "/var/lib/docker/containers/" + own + "/config.v2.json"
	for name, make := range map[string]func(path string) error{
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"link":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"loop":      func(path string) error { return os.Symlink(path, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			tree.mkdir(filepath.Dir(state))
			if err := make(filepath.Join(tree.root, state)); err != nil {
				t.Fatal(err)
			}
			done := time.AfterFunc(10*time.Second, func() { panic("still reading " + name) })
			defer done.Stop()
			wantName(t, NewContainers(tree.root), "/docker/"+own, own, own[:12])
		})
	}
}

// TestLateName: a name that is not there at first is looked for again, less and
// less often, and then kept.
func TestLateName(t *testing.T) {
	tree, own := newTree(t), id("late")
	c := NewContainers(tree.root)
	now := time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	path := "/docker/" + own
	wantName(t, c, path, own, own[:12])
	wantName(t, c, path+"/inner", own, own[:12])
	state := "/var/lib/docker/containers/" + own + "/config.v2.json"
	tree.write(state, `{"Name":"/web"}`)
	wantName(t, c, path, own, own[:12])
	now = now.Add(firstRetry)
	wantName(t, c, path, own, "web")
	wantName(t, c, path+"/inner", own, "web") // without waiting: it is one container
	tree.write(state, `{"Name":"/other"}`)
	now = now.Add(time.Hour)
	wantName(t, c, path, own, "web")
	wantName(t, c, path+"/inner/2", own, "web")
}

func TestRetriesGetRarer(t *testing.T) {
	own := id("never")
	c := NewContainers(t.TempDir())
	now := time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	for range 3600 { // an hour of rows, one a second
		c.ByCgroupPath("/docker/" + own)
		now = now.Add(time.Second)
	}
	// After 1, 2, 4, … 64 seconds, then each 64.
	if got, want := c.byID[own].tries, 7+(3600-127)/64+1; got != want {
		t.Errorf("looked %d times, want %d", got, want)
	}
}

func TestListIsReadAgainWhenItChanges(t *testing.T) {
	tree, one, two := newTree(t), id("one"), id("two")
	list := "/var/lib/containers/storage/overlay-containers/containers.json"
	tree.write(list, `[{"id":"`+one+`","names":["one"]}]`)
	c := NewContainers(tree.root)
	wantName(t, c, "/machine.slice/libpod-"+one+".scope", one, "one")
	tree.write(list, `[{"id":"`+one+`","names":["one"]},{"id":"`+two+`","names":["two"]}]`)
	wantName(t, c, "/machine.slice/libpod-"+two+".scope", two, "two")
}

func TestByPID(t *testing.T) {
	tree, v2, v1 := newTree(t), id("v2"), id("v1")
	tree.write("/var/lib/docker/containers/"+v2+"/config.v2.json", `{"Name":"/two"}`)
	tree.write("/var/lib/docker/containers/"+v1+"/config.v2.json", `{"Name":"/one"}`)
	tree.write("/proc/7/cgroup", "0::/system.slice/docker-"+v2+".scope\n")
	tree.write("/proc/8/cgroup", "12:cpuset:/\n3:memory:/docker/"+v1+"\n1:name=systemd:/docker/"+v1+"\n0::/system.slice/containerd.service\n")
	tree.write("/proc/9/cgroup", "0::/system.slice/nginx.service\n")
	tree.write("/proc/10/cgroup", "0::/docker/"+v2+" (deleted)\n")
	tree.write("/proc/11/cgroup", "junk\n\n1:x\n0::\n")
	c := NewContainers(tree.root)
	now := time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	for pid, want := range map[int][2]string{7: {v2, "two"}, 8: {v1, "one"}, 9: {}, 10: {v2, "two"}, 11: {}, 12: {}} {
		if gotID, got := c.ByPID(pid); gotID != want[0] || got != want[1] {
			t.Errorf("pid %d: got %q %q, want %q", pid, gotID, got, want)
		}
	}
	// The number is used again, by a process in another container.
	tree.write("/proc/7/cgroup", "0::/docker/"+v1+"\n")
	now = now.Add(pidTTL)
	if _, got := c.ByPID(7); got != "one" {
		t.Errorf("pid 7, used again: got %q, want one", got)
	}
}

// TestBounded fills the caches far beyond their bounds.
func TestBounded(t *testing.T) {
	c := NewContainers(t.TempDir())
	for i := range 3 * maxEntries {
		c.ByCgroupPath(fmt.Sprintf("/lxc/c%d", i))
		c.ByCgroupPath(fmt.Sprintf("/system.slice/s%d", i))
	}
	for i := range maxEntries + 7 {
		c.ByPID(i + 1)
	}
	if a, b, p := len(c.byPath), len(c.byID), len(c.byPID); a > maxEntries || b > maxEntries || p > maxEntries {
		t.Errorf("%d paths, %d ids, %d pids: want at most %d", a, b, p, maxEntries)
	}
	wantName(t, c, "/lxc/web", "web", "web")
}

func TestConcurrent(t *testing.T) {
	tree := newTree(t)
	var paths []string
	for i := range 13 {
		own := id(fmt.Sprint(i))
		tree.write("/var/lib/docker/containers/"+own+"/config.v2.json", fmt.Sprintf(`{"Name":"/c%d"}`, i))
		tree.write(fmt.Sprintf("/proc/%d/cgroup", i+1), "0::/docker/"+own+"\n")
		paths = append(paths, "/docker/"+own)
	}
	c := NewContainers(tree.root)
	var wait sync.WaitGroup
	for range 7 {
		wait.Go(func() {
			for round := range 101 {
				for i, path := range paths {
					want := fmt.Sprintf("c%d", i)
					if _, got := c.ByCgroupPath(path); got != want {
						t.Errorf("%s: got %q, want %q", path, got, want)
					}
					if _, got := c.ByPID(i + 1); got != want {
						t.Errorf("pid %d: got %q, want %q", i+1, got, want)
					}
				}
				if round == 50 {
					c.List()
				}
			}
		})
	}
	wait.Wait()
}

func cachedContainers(t testing.TB) (c *Containers, path string) {
	tree, own := newTree(t), id("cached")
	tree.write("/var/lib/docker/containers/"+own+"/config.v2.json", `{"Name":"/web"}`)
	tree.write("/proc/7/cgroup", "0::/docker/"+own+"\n")
	return NewContainers(tree.root), "/docker/" + own
}

func TestCachedLookupsDoNotAllocate(t *testing.T) {
	c, path := cachedContainers(t)
	now := time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	for name, look := range map[string]func(){
		"named":   func() { c.ByCgroupPath(path) },
		"unnamed": func() { c.ByCgroupPath("/docker/0000000000000000000000000000000000000000000000000000000000000000") },
		"outside": func() { c.ByCgroupPath("/system.slice/nginx.service") },
		"pid":     func() { c.ByPID(7) },
		"cgroup":  func() { c.ByCgroupID(1) },
	} {
		look()
		if n := testing.AllocsPerRun(1000, look); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func BenchmarkByCgroupPath(b *testing.B) {
	c, path := cachedContainers(b)
	b.ReportAllocs()
	for b.Loop() {
		c.ByCgroupPath(path)
	}
}

func BenchmarkByCgroupID(b *testing.B) {
	c, _ := cachedContainers(b)
	b.ReportAllocs()
	for b.Loop() {
		c.ByCgroupID(1)
	}
}

func BenchmarkByPID(b *testing.B) {
	c, _ := cachedContainers(b)
	now := time.Now()
	c.now = func() time.Time { return now }
	b.ReportAllocs()
	for b.Loop() {
		c.ByPID(7)
	}
}

// BenchmarkFirstSight is what the first row of a container pays.
func BenchmarkFirstSight(b *testing.B) {
	c, path := cachedContainers(b)
	for b.Loop() {
		NewContainers(c.root).ByCgroupPath(path)
	}
}
