// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"seine/internal/host"
)

// ErrCgroup1 says that a container has no cgroup2 directory to filter by, only
// ones of cgroup version 1.
var ErrCgroup1 = errors.New("lives in cgroup version 1 only")

// A Container is one that runs.
type Container struct {
	ID, Name string
	Cgroups  []string // its cgroup2 directories, from the root of the hierarchy on
	V1       []string // without any of them: HIERARCHY:PATH, as /proc/PID/cgroup has it
	PIDs     []int    // its processes, with those of containers inside of it
}

// Resolve finds the cgroup2 directories of the container that --container means:
// by name, by id, or by the first digits of the id, four at the least. The last part
// of a Kubernetes name serves too, and then means that container in each pod. A
// container in cgroup version 1 only is an ErrCgroup1; Find tells its processes.
func (c *Containers) Resolve(nameOrID string) (cgroupPaths []string, err error) {
	found, err := c.Find(nameOrID)
	if err != nil {
		return nil, err
	}
	for _, container := range found {
		cgroupPaths = append(cgroupPaths, container.Cgroups...)
	}
	if len(cgroupPaths) == 0 {
		first := found[0]
		return nil, fmt.Errorf("container %s %w (%s): filter by --netns or --pid of its processes, such as %d",
			printable(first.Name), ErrCgroup1, printable(first.V1[0]), first.PIDs[0])
	}
	return cgroupPaths, nil
}

// Find finds the containers that Resolve's argument means: one or more, or an error
// that lists what there is.
func (c *Containers) Find(nameOrID string) ([]Container, error) {
	want := nameOrID
	if _, id, ok := strings.Cut(want, "://"); ok { // as kubectl writes it: containerd://ID
		want = id
	}
	if want == "" {
		return nil, errors.New("container: give a name or an id")
	}
	all := c.List()
	rules := []func(Container) bool{
		func(x Container) bool { return x.ID == want || x.Name == want },
		func(x Container) bool { return strings.HasSuffix(x.Name, "/"+want) },
	}
	for _, rule := range rules {
		if found := matching(all, rule); len(found) > 0 {
			return found, nil
		}
	}
	if len(want) >= 4 && isHex(want) {
		found := matching(all, func(x Container) bool { return isID(x.ID, shortID) && strings.HasPrefix(x.ID, want) })
		if len(found) == 1 {
			return found, nil
		}
		if len(found) > 1 {
			return nil, fmt.Errorf("container id %s… is ambiguous: %s", want, summary(found))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no container %s: no cgroup here belongs to a container", printable(nameOrID))
	}
	return nil, fmt.Errorf("no container %s: there are %s", printable(nameOrID), summary(all))
}

func matching(all []Container, rule func(Container) bool) (found []Container) {
	for _, container := range all {
		if rule(container) {
			found = append(found, container)
		}
	}
	return found
}

func summary(containers []Container) string {
	const most = 20
	var b strings.Builder
	for i, x := range containers {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(containers)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(printable(x.Name))
		if id := x.ID[:min(len(x.ID), shortID)]; id != x.Name && x.ID != x.Name {
			b.WriteString(" (" + id + ")")
		}
	}
	return b.String()
}

// printable quotes a name that could do something to a terminal.
func printable(s string) string {
	if q := strconv.Quote(s); s == "" || q != `"`+s+`"` {
		return q
	}
	return s
}

// List tells the containers that run, by name.
func (c *Containers) List() []Container {
	found := make(map[string]*Container)
	seen := make(map[at]bool)
	note := func(where at) *Container {
		r, ok := parseCgroup(where.path)
		if !ok {
			return nil
		}
		container := found[r.id]
		if container == nil {
			id, name := c.ByCgroupPath(where.path)
			container = &Container{ID: id, Name: name}
			found[r.id] = container
		}
		dir := at{where.hierarchy, r.dir}
		if !seen[dir] {
			seen[dir] = true
			if where.hierarchy == "" {
				container.Cgroups = append(container.Cgroups, r.dir)
			} else {
				container.V1 = append(container.V1, dir.String())
			}
		}
		return container
	}
	if dir := c.cgroup2(); dir != "" {
		// Without the tree there are still the processes.
		_ = host.WalkCgroups(dir, func(path string) { note(at{"", path}) })
	}
	for _, pid := range c.pids() {
		for _, where := range c.cgroupsOf(pid) {
			noteProcess(note, where, pid)
		}
	}
	for _, container := range found {
		slices.Sort(container.Cgroups)
		slices.Sort(container.PIDs)
		container.PIDs = slices.Compact(container.PIDs)
		if len(container.Cgroups) > 0 {
			container.V1 = nil
		}
	}
	var all []Container
	for _, container := range slices.SortedFunc(maps.Values(found), func(a, b *Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	}) {
		all = append(all, *container)
	}
	return all
}

// noteProcess counts a process to its container and to those around that.
func noteProcess(note func(at) *Container, where at, pid int) {
	path := where.path
	for {
		r, ok := parseCgroup(path)
		if !ok {
			return
		}
		container := note(at{where.hierarchy, path})
		container.PIDs = append(container.PIDs, pid)
		i := strings.LastIndexByte(r.dir, '/')
		if i <= 0 {
			return
		}
		path = r.dir[:i]
	}
}

// at is a place in one of the hierarchies: "" is cgroup2.
type at struct{ hierarchy, path string }

func (a at) String() string { return a.hierarchy + ":" + a.path }

// cgroup2 is the directory of the cgroup2 hierarchy, "" where there is none.
func (c *Containers) cgroup2() string {
	if c.root == "/" {
		dir, err := host.Cgroup2()
		if err != nil {
			return ""
		}
		return dir
	}
	for _, dir := range []string{"sys/fs/cgroup/unified", "sys/fs/cgroup"} {
		dir = filepath.Join(c.root, dir)
		// Version 1 has no such file, nor has the tmpfs that its mounts are on.
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir
		}
	}
	return ""
}

func (c *Containers) pids() (pids []int) {
	entries, _ := os.ReadDir(filepath.Join(c.root, "proc"))
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupsOf reads /proc/PID/cgroup: cgroup2 first, then systemd's own hierarchy,
// then the others.
func (c *Containers) cgroupsOf(pid int) []at {
	data, err := os.ReadFile(filepath.Join(c.root, "proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil
	}
	var places []at
	for line := range strings.Lines(string(data)) {
		_, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			continue
		}
		hierarchy, path, ok := strings.Cut(rest, ":")
		if ok && path != "" && path[0] == '/' {
			places = append(places, at{hierarchy, strings.TrimSuffix(path, " (deleted)")})
		}
	}
	rank := func(a at) int {
		switch a.hierarchy {
		case "":
			return 0
		case "name=systemd":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(places, func(a, b at) int { return cmp.Compare(rank(a), rank(b)) })
	return places
}
