// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"seine/internal/host"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/why"
)

// A target is the object of 'seine why'. The zero value is the whole machine.
type target struct {
	text  string
	pid   uint32
	comm  string // of the PID
	netns uint32 // likewise
	lport uint16
	raddr netip.Addr
	rport uint16
	name  string // of a container or a process
	only  uint32 // a network namespace and nothing else
}

// parseTarget reads a target: digits are a PID, :n a local port, an address or addr:port a peer,
// anything else a container or a process name. With live, the process must exist.
func parseTarget(text string, live bool) (t target, err error) {
	t.text = text
	if pid, err := strconv.ParseUint(text, 10, 32); err == nil {
		t.pid = uint32(pid)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil && live {
			return t, tool.Usagef("there is no process %d: digits are a PID; a local port is written :%d", pid, pid)
		}
		t.comm = strings.TrimSpace(string(b))
		if live {
			t.netns, _ = host.NetnsInode(text)
		}
		return t, nil
	}
	port := func(s string) (uint16, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return 0, tool.Usagef("%q: %q is not a port", text, s)
		}
		return uint16(n), nil
	}
	if rest, ok := strings.CutPrefix(text, ":"); ok && !strings.Contains(rest, ":") {
		t.lport, err = port(rest)
		return t, err
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		t.raddr = a.Unmap()
		return t, nil
	}
	if ap, err := netip.ParseAddrPort(text); err == nil {
		t.raddr, t.rport = ap.Addr().Unmap(), ap.Port()
		return t, nil
	}
	if text == "" || strings.ContainsAny(text, "/ ") {
		return t, tool.Usagef("%q is not a target: a PID, a process name, a container, :port, addr:port or an address", text)
	}
	t.name = text
	return t, nil
}

// is reports whether the target means an object.
func (t *target) is(o why.Object, v *watch.View) bool {
	switch {
	case t.text == "":
		return true
	case t.only != 0:
		return o.Netns == t.only
	case t.pid != 0:
		return o.PID == t.pid || o.Comm != "" && o.Comm == t.comm && (t.netns == 0 || o.Netns == 0 || o.Netns == t.netns)
	case t.lport != 0:
		return o.Lport == t.lport || o.Rport == t.lport && (o.Raddr.IsLoopback() || v.Local[o.Raddr] != nil)
	case t.raddr.IsValid():
		return o.Raddr == t.raddr && (t.rport == 0 || o.Rport == t.rport)
	}
	return o.Container == t.name || o.Comm == t.name
}

// objects returns all objects that were seen.
func (t *target) objects(v *watch.View) (out []why.Object) {
	for _, s := range v.Services {
		out = append(out, why.Object{Who: s.Who, Lport: s.Lport, Raddr: s.Raddr, Rport: s.Rport})
	}
	for _, y := range v.Tallies {
		k := y.Service()
		out = append(out, why.Object{Who: k.Who, Lport: k.Lport, Raddr: k.Raddr, Rport: k.Rport, PID: y.PID})
	}
	return out
}

// seen reports whether the target was seen.
func (t *target) seen(v *watch.View) bool {
	return slices.ContainsFunc(t.objects(v), func(o why.Object) bool { return t.is(o, v) })
}

// narrow keeps the findings about the target and their causes.
func (t *target) narrow(a *why.Answer, v *watch.View) error {
	if t.text == "" {
		return nil
	}
	if t.name != "" {
		if err := t.choose(v); err != nil {
			return err
		}
	}
	keep := map[int]bool{}
	var mark func(f *why.Finding)
	mark = func(f *why.Finding) {
		if keep[f.Rank] {
			return
		}
		keep[f.Rank] = true
		for _, c := range f.Causes {
			mark(a.Findings[c-1])
		}
	}
	for _, f := range a.Findings {
		if t.is(f.Object, v) {
			mark(f)
		}
	}
	now := map[int]int{}
	var left []*why.Finding
	for _, f := range a.Findings {
		if keep[f.Rank] {
			left = append(left, f)
			now[f.Rank] = len(left)
		}
	}
	for i, f := range left {
		f.Rank = i + 1
		for j, c := range f.Causes {
			f.Causes[j] = now[c]
		}
	}
	a.Findings = left
	return nil
}

// choose refuses a name that means both a container and a process outside it.
func (t *target) choose(v *watch.View) error {
	container, process := false, false
	var names []string
	for _, o := range t.objects(v) {
		names = append(names, o.Comm, o.Container)
		container = container || o.Container == t.name
		process = process || o.Comm == t.name && o.Container != t.name
	}
	if container && process {
		return tool.Usagef("%s is both a container and a process outside it: give the PID or a port", t.name)
	}
	if !container && !process {
		names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
		slices.Sort(names)
		if near := row.Nearest(t.name, slices.Compact(names)); near != "" {
			t.text += " (did you mean " + near + "?)"
		}
	}
	return nil
}
