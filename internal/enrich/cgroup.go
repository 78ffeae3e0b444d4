// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"strconv"
	"strings"
)

// A runtime is the program that made a container, as far as its cgroup tells.
type runtime int

const (
	docker     runtime = iota
	containerd         // with or without Kubernetes, and nerdctl
	podman
	crio
	oci    // one of the above
	nspawn // and whatever else registers with systemd-machined
	lxc
)

// A ref is what a cgroup's path says about the container around it.
type ref struct {
	runtime runtime
	id      string // of nspawn and lxc: the name
	dir     string // the container's own cgroup; the path may lead further down
	owner   int64  // the user whose session it is in: rootless containers; -1: nobody's
}

// named says that the id is the name.
func (r ref) named() bool { return r.runtime == nspawn || r.runtime == lxc }

// unitPrefixes are the names that the runtimes give to systemd's scopes. Monitors
// outside of the container (libpod-conmon-…, crio-conmon-…) have no id in that
// place, so that they do not match.
var unitPrefixes = []struct {
	prefix  string
	runtime runtime
}{
	{"docker-", docker},
	{"cri-containerd-", containerd},
	{"nerdctl-", containerd},
	{"crio-", crio},
	{"libpod-payload-", podman},
	{"libpod-", podman},
}

// parseCgroup finds the innermost container in a cgroup's path.
func parseCgroup(path string) (ref, bool) {
	if len(path) > maxPath {
		return ref{}, false
	}
	end := len(path)
	for end > 0 {
		start := strings.LastIndexByte(path[:end], '/')
		part, above := path[start+1:end], path[:max(start, 0)]
		if kind, id, ok := parsePart(part, above); ok {
			return ref{runtime: kind, id: id, dir: path[:end], owner: sessionOwner(above)}, true
		}
		end = start
	}
	return ref{}, false
}

// parsePart judges one directory name, given the path of the directory it is in.
func parsePart(part, above string) (kind runtime, id string, ok bool) {
	parent := above[strings.LastIndexByte(above, '/')+1:]
	name := strings.TrimSuffix(part, ".scope")

	// runc without systemd, given a path that is meant for systemd:
	// kubepods-pod1.slice:cri-containerd:<id>
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		if j := strings.LastIndexByte(name[:i], ':'); j >= 0 {
			name = name[j+1:i] + "-" + name[i+1:]
		}
	}
	for _, unit := range unitPrefixes {
		if id, found := strings.CutPrefix(name, unit.prefix); found && isID(id, shortID) {
			return unit.runtime, id, true
		}
	}
	// Without systemd, and below any --cgroup-parent. Only whole ids: others
	// than runtimes make cgroups with hexadecimal names, too.
	if isID(part, fullID) {
		if parent == "docker" {
			return docker, part, true
		}
		return oci, part, true
	}
	if unit, found := strings.CutPrefix(part, "machine-"); found {
		if unit, found := strings.CutSuffix(unit, ".scope"); found {
			machine := unitUnescape(unit)
			// libvirt registers its virtual machines too.
			return nspawn, machine, machine != "" && !strings.HasPrefix(machine, "qemu-")
		}
	}
	if unit, found := strings.CutPrefix(part, "systemd-nspawn@"); found {
		if unit, found := strings.CutSuffix(unit, ".service"); found {
			return nspawn, unitUnescape(unit), unit != ""
		}
	}
	if name, found := strings.CutPrefix(part, "lxc.payload."); found {
		return lxc, name, name != ""
	}
	if (parent == "lxc" || parent == "lxc.payload") && part != "" && part[0] != '.' {
		return lxc, part, true
	}
	return 0, "", false
}

const (
	shortID = 12 // digits that tools show
	fullID  = 64
)

// isID says whether s is a container's id of least digits at the least.
func isID(s string, least int) bool {
	return len(s) >= least && len(s) <= fullID && isHex(s)
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// sessionOwner finds the uid in /user.slice/user-1000.slice/….
func sessionOwner(path string) int64 {
	for part := range strings.SplitSeq(path, "/") {
		if rest, ok := strings.CutPrefix(part, "user-"); ok {
			if number, ok := strings.CutSuffix(rest, ".slice"); ok {
				if uid, err := strconv.ParseUint(number, 10, 32); err == nil {
					return int64(uid)
				}
			}
		}
	}
	return -1
}

// unitUnescape undoes systemd's \x2d in unit names. Machine names have no
// slashes, so that a bare "-" stands for itself.
func unitUnescape(s string) string {
	if !strings.Contains(s, `\x`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], `\x`) && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
