// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"

	"seine/internal/enrich"
	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/sym"
	"seine/internal/tool"
)

// names makes names of the raw values of a session's rows.
type names struct {
	namers     map[string]row.Namer
	containers *enrich.Containers
	processes  *sym.Processes
	session    *tool.Session
	broken     map[string]int // stacks that end early, by the file to blame
}

func newNames(s *tool.Session) *names {
	n := &names{session: s, broken: map[string]int{}}
	n.namers = kern.Namers()
	maps.Copy(n.namers, map[string]row.Namer{
		"cgroup":    n.cgroup,
		"container": n.container,
		"ustack":    n.userStack,
	})
	if s.Maps["stacks"] != nil {
		n.processes = &sym.Processes{}
		s.OnNotice(n.processes.Seen)
	}
	return n
}

func (n *names) close() {
	if n.processes != nil {
		n.processes.Close()
	}
}

// NamersOf is for trials, which have no command line.
func NamersOf(s *tool.Session) map[string]row.Namer { return newNames(s).namers }

func (n *names) cgroup(_ *row.Row, c *row.Cell) {
	setText(c, host.CgroupPath(c.N))
}

func (n *names) container(_ *row.Row, c *row.Cell) {
	if n.containers == nil {
		n.containers = enrich.NewContainers("")
	}
	_, name := n.containers.ByCgroupID(c.N)
	setText(c, name)
}

func setText(c *row.Cell, s string) {
	if s == "" {
		*c = row.Cell{}
		return
	}
	c.SetText(s)
}

// userStack makes a *kern.Stack of a stack id; the row's pid says whose it is.
func (n *names) userStack(r *row.Row, c *row.Cell) {
	id, pid := int32(c.N), r.Get("pid")
	*c = row.Cell{}
	if id < 0 || pid == nil || pid.Kind != row.Uint {
		return
	}
	var addrs [127]uint64
	if n.session.Maps["stacks"].Lookup(uint32(id), &addrs) != nil {
		return
	}
	depth := 0
	for depth < len(addrs) && addrs[depth] != 0 {
		depth++
	}
	frames := n.processes.Stack(nil, uint32(pid.N), addrs[:depth])
	st := &kern.Stack{}
	for _, f := range frames {
		off := f.Off
		if f.Sym == "" && f.Module == "" {
			off = f.Addr
		}
		st.Frames = append(st.Frames, kern.Frame{Sym: f.Sym, Off: off, Module: f.Module})
	}
	if culprit, broken := sym.Broken(frames); broken {
		st.Broken = true
		n.broken[culprit]++
	}
	*c = row.Cell{Kind: row.Object, Ref: st}
}

// hints is what to tell the user about names that could not be made.
func (n *names) hints() (out []string) {
	for file, count := range n.broken {
		out = append(out, fmt.Sprintf("%d stacks end early in %s, most likely built without frame pointers: "+
			"build it with -fno-omit-frame-pointer, or use a C library that has them", count, file))
	}
	return out
}
