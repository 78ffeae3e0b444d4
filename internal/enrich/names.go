// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/sym"
	"seine/internal/words"
)

// Names turns raw values of rows into names: paths of cgroups, containers, functions.
type Names struct {
	stacks     Stacks
	containers *Containers
	processes  sym.Processes
	kernel     sym.Kernel
	pids       bool           // those of rows are those of /proc
	broken     map[string]int // stacks that end early, by the file to blame
	nameless   int            // addresses of the kernel that have no name
}

// Stacks is the source of rows that have stacks: a session of a tool.
type Stacks interface {
	// Stack returns the addresses of a stack, innermost first; nil if it is not known.
	Stack(id int32) []uint64
	// OnNotice has f called for each process of which a stack is kept.
	OnNotice(f func(pid uint32))
}

// NewNames returns the names for rows that come of s. They have to be closed.
func NewNames(s Stacks) *Names {
	n := &Names{stacks: s, broken: map[string]int{}, pids: !host.InPIDNamespace()}
	s.OnNotice(n.processes.Seen)
	return n
}

// Close frees what is known of processes.
func (n *Names) Close() { n.processes.Close() }

// Namers returns the functions for [row.Name], by the word of a column's as= tag.
func (n *Names) Namers() map[string]row.Namer {
	namers := kern.Namers()
	maps.Copy(namers, map[string]row.Namer{
		"cgroup":    n.cgroup,
		"container": n.container,
		"ustack":    n.userStack,
		"kstack":    n.kernelStack,
		"ksym":      n.kernelSymbol,
		"layer":     n.layer,
	})
	return namers
}

func (n *Names) cgroup(_ *row.Row, c *row.Cell) {
	setText(c, host.CgroupPath(c.N))
}

func (n *Names) container(r *row.Row, c *row.Cell) {
	if n.containers == nil {
		n.containers = NewContainers("")
	}
	_, name := n.containers.ByCgroupID(c.N)
	// Containers of cgroup version 1 are in the root of version 2, all of them.
	if pid := r.Get("pid"); name == "" && n.pids && pid != nil && pid.Kind == row.Uint && host.CgroupPath(c.N) == "/" {
		_, name = n.containers.ByPID(int(pid.N))
	}
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
func (n *Names) userStack(r *row.Row, c *row.Cell) {
	id, pid := int32(c.N), r.Get("pid")
	*c = row.Cell{}
	if id < 0 || pid == nil || pid.Kind != row.Uint {
		return
	}
	addrs := n.stacks.Stack(id)
	if len(addrs) == 0 {
		return
	}
	frames := n.processes.Stack(nil, uint32(pid.N), addrs)
	st := stackOf(frames)
	if culprit, broken := sym.Broken(frames); broken {
		st.Broken = true
		n.broken[culprit]++
	}
	*c = row.Cell{Kind: row.Object, Ref: st}
}

func stackOf(frames []sym.Frame) *kern.Stack {
	st := &kern.Stack{}
	for _, f := range frames {
		off := f.Off
		if f.Sym == "" && f.Module == "" {
			off = f.Addr
		}
		st.Frames = append(st.Frames, kern.Frame{Sym: f.Sym, Off: off, Module: f.Module})
	}
	return st
}

// kernelStack makes a *kern.Stack of a stack id.
func (n *Names) kernelStack(_ *row.Row, c *row.Cell) {
	addrs := n.stacks.Stack(int32(c.N))
	*c = row.Cell{}
	if len(addrs) > 0 {
		*c = row.Cell{Kind: row.Object, Ref: stackOf(observed(n.kernelFrames(addrs)))}
	}
}

// layer turns the id of a kernel stack into the layer of the network code that it is in.
func (n *Names) layer(_ *row.Row, c *row.Cell) {
	addrs := n.stacks.Stack(int32(c.N))
	*c = row.Cell{}
	if len(addrs) > 0 {
		setText(c, kern.NetLayer(stackOf(n.kernelFrames(addrs))))
	}
}

func (n *Names) kernelFrames(addrs []uint64) []sym.Frame {
	frames := n.kernel.Stack(nil, addrs)
	if frames[0].Sym == "" {
		n.nameless++
	}
	return frames
}

// observed leaves out the frames of the BPF program that took the stack, and those of the kernel
// that called it. The latter depend on whether a tracepoint has one program or several.
func observed(frames []sym.Frame) []sym.Frame {
	for i, f := range frames {
		called := strings.HasPrefix(f.Sym, "__traceiter_") || strings.HasPrefix(f.Sym, "__bpf_trace_")
		if f.Module != "bpf" && !strings.HasPrefix(f.Sym, "bpf_trace_run") && !strings.HasPrefix(f.Sym, "bpf_trampoline") && (i == 0 || !called) {
			return frames[i:]
		}
	}
	return frames
}

// kernelSymbol makes tcp_v4_rcv+0x1f of an address in the kernel.
func (n *Names) kernelSymbol(_ *row.Row, c *row.Cell) {
	f := n.kernel.Frame(c.N)
	if f.Sym == "" {
		n.nameless++
		c.SetText(fmt.Sprintf("%#x", c.N))
		return
	}
	c.SetText(fmt.Sprintf("%s+%#x", f.Sym, f.Off))
}

// Hints says which names could not be made, and what to do about it. It names the
// few files that most stacks end in: a whole machine has many.
func (n *Names) Hints() (out []string) {
	const most = 3
	files := slices.SortedFunc(maps.Keys(n.broken), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.broken[b], n.broken[a]), cmp.Compare(a, b))
	})
	say := func(stacks int, where string) {
		out = append(out, words.Count(uint64(stacks), "stack ends", "stacks end")+" early in "+where)
	}
	for _, file := range files[:min(most, len(files))] {
		where := file + ", most likely built without frame pointers: build it with -fno-omit-frame-pointer, or use a C library that has them"
		switch {
		case file == "":
			where = "code of unknown origin"
		case !strings.HasPrefix(file, "/"): // [anon], [JIT], [vdso]
			where = file + ", code that is in no file"
		}
		say(n.broken[file], where)
	}
	others := 0
	for _, file := range files[min(most, len(files)):] {
		others += n.broken[file]
	}
	if others > 0 {
		say(others, words.Count(uint64(len(files)-most), "other place", "other places"))
	}
	if n.nameless > 0 && n.kernel.Err() != nil {
		out = append(out, n.kernel.Err().Error())
	}
	return out
}
