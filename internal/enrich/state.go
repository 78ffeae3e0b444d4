// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxConfigFile = 4 << 20  // of one container: OCI configurations reach some 100 kB
	maxListFile   = 32 << 20 // of all containers of podman or CRI-O
)

// lookUp finds a container's name, or "". Users' files are looked at only for the
// containers of that user.
func (c *Containers) lookUp(r ref) string {
	var name string
	if r.runtime == docker || r.runtime == oci {
		name = c.dockerName(r)
	}
	if name == "" && (r.runtime == podman || r.runtime == crio || r.runtime == oci) {
		name = c.storageName(r)
	}
	if name == "" && (r.runtime == containerd || r.runtime == oci) {
		name = c.containerdName(r)
	}
	if name == "" {
		name = c.kubeletName(r)
	}
	if name == "" {
		name = c.apiName(r)
	}
	return name
}

// kubeletName reads the names of log files, which the kubelet makes whatever the runtime is:
// /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log. Where that directory is not mounted, the one of the
// pod's logs has at least the names of the pod: /var/log/pods/NAMESPACE_POD_UID.
func (c *Containers) kubeletName(r ref) string {
	uid := podUID(r.dir)
	if uid == "" {
		return ""
	}
	named := func(dir, suffix string) ([]string, error) {
		entries, err := os.ReadDir(filepath.Join(c.root, dir))
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
				return strings.Split(name, "_"), nil // names of Kubernetes have no underscore
			}
		}
		return nil, err
	}
	if part, err := named("/var/log/containers", "-"+r.id+".log"); len(part) == 3 {
		return part[1] + "/" + part[0] + "/" + part[2]
	} else if err == nil {
		return "" // not yet: the container has just begun
	}
	if part, _ := named("/var/log/pods", "_"+uid); len(part) == 2 {
		return part[0] + "/" + part[1]
	}
	return ""
}

// podUID is the UID of the pod in whose cgroup a container is, "" if there is none: podUID, or
// kubepods-besteffort-podUID.slice with underscores in the UID.
func podUID(dir string) string {
	for _, part := range strings.Split(filepath.Dir(dir), "/") {
		part = "-" + strings.TrimSuffix(part, ".slice")
		if i := strings.LastIndex(part, "-pod"); i >= 0 {
			if uid := strings.ReplaceAll(part[i+len("-pod"):], "_", "-"); isHex(strings.ReplaceAll(uid, "-", "")) && strings.Trim(uid, "-") != "" {
				return uid
			}
		}
	}
	return ""
}

// home is a directory below the home of the container's owner, "" without one.
func (c *Containers) home(r ref, dir string) string {
	if r.owner < 0 {
		return ""
	}
	home := c.users.Home(uint32(r.owner))
	if home == "" {
		return ""
	}
	return filepath.Join(home, dir)
}

// runtimeDir is $XDG_RUNTIME_DIR of the container's owner, "" without one.
func runtimeDir(r ref, dir string) string {
	if r.owner < 0 {
		return ""
	}
	return filepath.Join("/run/user", strconv.FormatInt(r.owner, 10), dir)
}

// A description is what Docker writes to disk and answers to a request; podman
// answers the same.
type description struct {
	Name   string
	Config struct{ Labels map[string]string }
}

func (d description) name() string {
	if name := kubernetesName(d.Config.Labels); name != "" {
		return name
	}
	return strings.TrimPrefix(d.Name, "/")
}

var remapDir = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]+\.[0-9]+$`) })

func (c *Containers) dockerName(r ref) string {
	roots := []string{c.dockerRoot(), "/var/snap/docker/common/var-lib-docker", c.home(r, ".local/share/docker")}
	// With userns-remap, state lies one level deeper, in UID.GID.
	entries, _ := os.ReadDir(filepath.Join(c.root, roots[0]))
	for _, e := range entries {
		if remapDir().MatchString(e.Name()) {
			roots = append(roots, filepath.Join(roots[0], e.Name()))
		}
	}
	for _, root := range roots {
		if root == "" {
			continue
		}
		var d description
		if c.readJSON(filepath.Join(root, "containers", r.id, "config.v2.json"), &d) == nil {
			if name := d.name(); name != "" {
				return name
			}
		}
	}
	return ""
}

func (c *Containers) dockerRoot() string {
	var daemon struct {
		DataRoot string `json:"data-root"`
	}
	if c.readJSON("/etc/docker/daemon.json", &daemon) == nil && filepath.IsAbs(daemon.DataRoot) {
		return daemon.DataRoot
	}
	return "/var/lib/docker"
}

// An ociConfig is the part of the runtime specification that has names in it.
type ociConfig struct {
	Annotations map[string]string `json:"annotations"`
}

func (o ociConfig) name() string {
	if name := kubernetesName(o.Annotations); name != "" {
		return name
	}
	return o.Annotations["nerdctl/name"] // nerdctl copies its labels there
}

// containerdName reads the bundle of the running task.
func (c *Containers) containerdName(r ref) string {
	for _, state := range []string{"/run/containerd", "/run/k3s/containerd", "/var/snap/microk8s/common/run/containerd", runtimeDir(r, "containerd")} {
		if state == "" {
			continue
		}
		tasks := filepath.Join(state, "io.containerd.runtime.v2.task")
		namespaces, _ := os.ReadDir(filepath.Join(c.root, tasks))
		for _, ns := range namespaces {
			var config ociConfig
			if c.readJSON(filepath.Join(tasks, ns.Name(), r.id, "config.json"), &config) == nil {
				if name := config.name(); name != "" {
					return name
				}
			}
		}
	}
	return ""
}

// storageName reads the storage that podman and CRI-O share: its lists have the
// names; the bundle of a Kubernetes container has better ones.
func (c *Containers) storageName(r ref) string {
	for _, root := range []string{"/var/lib/containers/storage", "/run/containers/storage", c.home(r, ".local/share/containers/storage"), runtimeDir(r, "containers")} {
		if root == "" {
			continue
		}
		for _, driver := range []string{"overlay", "vfs", "btrfs", "zfs"} {
			dir := filepath.Join(root, driver+"-containers")
			var config ociConfig
			if c.readJSON(filepath.Join(dir, r.id, "userdata/config.json"), &config) == nil {
				if name := config.name(); name != "" {
					return name
				}
			}
			// Those of `podman run --rm` are on a list of their own.
			for _, list := range []string{"containers.json", "volatile-containers.json"} {
				if name := c.lists.names(c, filepath.Join(dir, list))[r.id]; name != "" {
					return name
				}
			}
		}
	}
	return ""
}

// A listCache keeps the lists, which may be long, until the file changes. Users
// of it hold Containers.asking.
type listCache map[string]*list

type list struct {
	modified time.Time
	size     int64
	names    map[string]string
}

func (l *listCache) names(c *Containers, path string) map[string]string {
	info, err := os.Stat(filepath.Join(c.root, path))
	if err != nil {
		delete(*l, path)
		return nil
	}
	if old := (*l)[path]; old != nil && old.modified.Equal(info.ModTime()) && old.size == info.Size() {
		return old.names
	}
	var containers []struct {
		ID    string   `json:"id"`
		Names []string `json:"names"`
	}
	names := make(map[string]string)
	if c.readJSON(path, &containers) == nil {
		for _, container := range containers {
			if len(container.Names) > 0 {
				names[container.ID] = bound(container.Names[0])
			}
		}
	}
	if *l == nil || len(*l) >= maxEntries {
		*l = make(listCache)
	}
	(*l)[path] = &list{info.ModTime(), info.Size(), names}
	return names
}

// kubernetesName makes NAMESPACE/POD/CONTAINER of labels or annotations, or
// NAMESPACE/POD for the sandbox that holds a pod together.
func kubernetesName(labels map[string]string) string {
	first := func(keys ...string) string {
		for _, key := range keys {
			if v := labels[key]; v != "" {
				return v
			}
		}
		return ""
	}
	container := first("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
	pod := first("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name")
	namespace := first("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace")
	switch first("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType", "io.kubernetes.docker.type") {
	case "sandbox", "podsandbox":
		container = ""
	}
	if pod == "" || namespace == "" {
		return container
	}
	return strings.TrimSuffix(namespace+"/"+pod+"/"+container, "/")
}

// readJSON reads a file below the root into v. Members of a wrong type are left
// out; the rest is kept.
func (c *Containers) readJSON(path string, v any) error {
	most := int64(maxConfigFile)
	if strings.HasSuffix(path, "containers.json") {
		most = maxListFile
	}
	data, err := readFile(filepath.Join(c.root, path), most)
	if err != nil {
		return err
	}
	return decode(data, v)
}

func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return nil
	}
	return err
}

// readFile reads a file that a user may have put there: it opens nothing but
// regular files (a FIFO would make it wait) and reads only so much.
func readFile(path string, most int64) ([]byte, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > most {
		return nil, fmt.Errorf("%s: not a file of at most %d bytes", path, most)
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(at))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
