// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// id makes a container's id of a word.
func id(word string) string {
	sum := sha256.Sum256([]byte(word))
	return hex.EncodeToString(sum[:])
}

func TestParseCgroup(t *testing.T) {
	a, b := id("a"), id("b")
	for _, test := range []struct {
		path string
		want ref
	}{
		// Docker: cgroupfs, systemd, rootless, another parent, swarm's or a user's.
		{"/docker/" + a, ref{docker, a, "", -1}},
		{"/system.slice/docker-" + a + ".scope", ref{docker, a, "", -1}},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + a + ".scope", ref{docker, a, "", 1000}},
		{"/custom/parent/" + a, ref{oci, a, "", -1}},
		{"/ecs/0123456789abcdef0123456789abcdef/" + a, ref{oci, a, "", -1}},
		// containerd, with Kubernetes and without.
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + a + ".scope", ref{containerd, a, "", -1}},
		{"/kubepods/besteffort/pod6b0f2a3c-8c1f/" + a, ref{oci, a, "", -1}},
		{"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + a, ref{containerd, a, "", -1}},
		{"/system.slice/nerdctl-" + a + ".scope", ref{containerd, a, "", -1}},
		{"/default/" + a, ref{oci, a, "", -1}},
		// CRI-O and podman.
		{"/kubepods.slice/kubepods-pod1.slice/crio-" + a + ".scope", ref{crio, a, "", -1}},
		{"/kubepods/pod1/crio-" + a, ref{crio, a, "", -1}},
		{"/machine.slice/libpod-" + a + ".scope", ref{podman, a, "", -1}},
		{"/libpod_parent/libpod-" + a, ref{podman, a, "", -1}},
		{"/system.slice/web.service/libpod-payload-" + a, ref{podman, a, "", -1}},
		{"/user.slice/user-1001.slice/user@1001.service/user.slice/libpod-" + a + ".scope", ref{podman, a, "", 1001}},
		// Those whose name is in the path.
		{`/machine.slice/machine-web.scope`, ref{nspawn, "web", "", -1}},
		{`/machine.slice/machine-my\x2dweb.scope`, ref{nspawn, "my-web", "", -1}},
		{`/machine.slice/systemd-nspawn@web\x2d1.service`, ref{nspawn, "web-1", "", -1}},
		{"/lxc/web", ref{lxc, "web", "", -1}},
		{"/lxc/101", ref{lxc, "101", "", -1}},
		{"/lxc.payload.web", ref{lxc, "web", "", -1}},
		{"/lxc.payload/web", ref{lxc, "web", "", -1}},
		{"/lxc.payload.project_web", ref{lxc, "project_web", "", -1}},
		// Containers in containers: the innermost.
		{"/docker/" + b + "/docker/" + a, ref{docker, a, "", -1}},
		{"/docker/" + b + "/kubelet.slice/kubelet-kubepods.slice/cri-containerd-" + a + ".scope", ref{containerd, a, "", -1}},
		{"/lxc.payload.web/system.slice/docker-" + a + ".scope", ref{docker, a, "", -1}},
		{"/lxc/outer/lxc/inner", ref{lxc, "inner", "", -1}},
		{"/machine.slice/machine-m.scope/payload/lxc/web", ref{lxc, "web", "", -1}},
	} {
		test.want.dir = test.path
		// The container's own cgroup, and cgroups that were made inside of it.
		for _, inside := range []string{"", "/", "/init.scope", "/container", "/system.slice/nginx.service", "/process_api/21e79ceedc0b561108a9dfbab5d1f703"} {
			got, ok := parseCgroup(test.path + inside)
			if !ok || got != test.want {
				t.Errorf("%s%s:\n got %+v, %v\nwant %+v", test.path, inside, got, ok, test.want)
			}
		}
	}
}

func TestParseCgroupOutside(t *testing.T) {
	a := id("a")
	for _, path := range []string{
		"", "/", "//", "/init.scope", "/system.slice/docker.service", "/system.slice/containerd.service",
		"/user.slice/user-1000.slice/session-2.scope",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-6b0f.scope",
		"/docker", "/docker/", "/lxc", "/lxc/", "/kubepods.slice/kubepods-pod1_2_3.slice",
		"/kubepods/besteffort/pod6b0f2a3c-8c1f-4b7e-9d59-bd0c2d1f0a11",
		"/process_api/21e79ceedc0b561108a9dfbab5d1f703", // hexadecimal, but no container
		"/docker/" + a[:63], "/docker/" + a + "0", "/docker/" + strings.ToUpper(a), "/docker/" + a[:63] + "g",
		"/system.slice/docker-.scope", "/system.slice/docker-abc.scope", "/system.slice/docker-buildx.scope",
		// Monitors run outside of what they watch.
		"/machine.slice/libpod-conmon-" + a + ".scope", "/kubepods.slice/crio-conmon-" + a + ".scope",
		"/lxc.monitor.web", "/lxc.payload.", "/lxc/.lxc",
		"/machine.slice/libpod_pod_" + a + ".slice",
		// Virtual machines are not containers.
		`/machine.slice/machine-qemu\x2d1\x2dvm.scope`, "/machine.slice/machine-.scope", "/machine.slice/systemd-nspawn@.service",
		"/docker/" + a + strings.Repeat("/x", maxPath), // longer than any path
	} {
		if got, ok := parseCgroup(path); ok {
			t.Errorf("%.80s: got %+v, want nothing", path, got)
		}
	}
}

func FuzzCgroupPath(f *testing.F) {
	a := id("a")
	for _, seed := range []string{
		"/docker/" + a, "/system.slice/docker-" + a + ".scope/init.scope", "/kubepods-pod1.slice:cri-containerd:" + a,
		`/machine.slice/machine-my\x2dweb.scope`, `/machine-\x.scope`, "/lxc/web", "/lxc.payload.web", "::", "/", "",
		"/user.slice/user-1000.slice/user@1000.service/libpod-" + a + ".scope", "docker/" + a, "/../../docker/" + a,
	} {
		f.Add(seed)
	}
	containers := NewContainers(f.TempDir())
	f.Fuzz(func(t *testing.T, path string) {
		r, ok := parseCgroup(path)
		gotID, name := containers.ByCgroupPath(path)
		if ok != (gotID != "") || (gotID == "") != (name == "") {
			t.Fatalf("%q: parsed %v %+v, yet id %q and name %q", path, ok, r, gotID, name)
		}
		if len(gotID) > maxName || len(name) > maxName {
			t.Errorf("%q: id of %d, name of %d bytes", path, len(gotID), len(name))
		}
		if !ok {
			return
		}
		if r.id == "" || !strings.HasPrefix(path, r.dir) {
			t.Errorf("%q: got %+v", path, r)
		}
		// Ids become parts of file names and of requests.
		if !r.named() && (!isHex(r.id) || len(r.id) < shortID || len(r.id) > fullID) {
			t.Errorf("%q: id %q", path, r.id)
		}
		if again, ok := parseCgroup(r.dir); !ok || again != r {
			t.Errorf("%q: its own cgroup %q gives %+v, want %+v", path, r.dir, again, r)
		}
	})
}
