// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
)

// audit checks rows for what holds in every world, whatever the traffic: each host has its own
// addresses and its namespace, each process its name. A case itself compares what depends on its
// traffic.
func (x *Trial) audit(rows []*row.Row, r *running) {
	a := auditor{world: x.World, procs: map[int]*lab.Proc{}, events: r.events, began: r.began, cgroup: ownCgroup(), limited: r.limited, strangers: strangers{since: x.since}}
	for _, h := range x.World.Hosts() {
		a.strangers.hosts = append(a.strangers.hosts, x.World.Netns(h))
	}
	for _, p := range x.World.Procs() {
		a.procs[p.PID] = p
	}
	faults := 0
	for _, r := range rows {
		for _, fault := range a.faults(r) {
			if faults++; faults <= 3 {
				x.Errorf("%s, in %s", fault, Dump(r))
			}
		}
	}
	if faults > 3 {
		x.Errorf("%d faults in all", faults)
	}
}

type auditor struct {
	world  *lab.World
	procs  map[int]*lab.Proc
	events bool // they have a namespace; counts have it with --by
	began  time.Time
	cgroup string // that all processes share

	limited   bool // the tool was told to show only the world's namespaces
	strangers strangers
}

func (a *auditor) faults(r *row.Row) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	known := func(id string) *row.Cell {
		if c := r.Get(id); c != nil && c.Kind != row.Null {
			return c
		}
		return nil
	}
	addr := func(id string) netip.Addr {
		if c := known(id); c != nil && c.Kind == row.Addr {
			return c.IP().Unmap()
		}
		return netip.Addr{}
	}
	if c := known("time"); c != nil {
		if at := time.Unix(0, int64(c.N)); at.Before(a.began.Add(-slack)) || at.After(time.Now().Add(slack)) {
			say("at %v, but the tool was attached at %v", at, a.began)
		}
	}
	laddr, raddr := addr("laddr"), addr("raddr")
	netns := known("netns")
	if a.events {
		netns = r.Get("netns")
	}
	if c := netns; c != nil {
		mine, others := a.addrs(uint32(c.N))
		if mine == nil {
			say("no host has namespace %s", Value(c))
		} else if others[laddr] || mine[raddr] && raddr != laddr {
			say("%v to %v is not from there", laddr, raddr)
		}
	}
	if raddr.IsValid() && raddr.IsUnspecified() && !laddr.IsMulticast() { // a host without an address speaks to a group
		say("nobody is at %v", raddr)
	}
	if c := known("rport"); c != nil && c.N == 0 {
		say("nobody is at port 0")
	}
	if c := known("ip"); c != nil {
		for _, at := range []netip.Addr{laddr, raddr} {
			if at.IsValid() && !at.IsUnspecified() && at.Is4() != (Value(c) == "4") {
				say("%v is not of IPv%s", at, Value(c))
			}
		}
	}
	if c := known("sock"); c != nil && c.N == 0 {
		say("no socket has the id 0")
	}
	c := known("pid")
	if c == nil {
		return out
	}
	p := a.procs[int(c.N)]
	if p == nil {
		inside := a.limited || netns != nil && slices.Contains(a.strangers.hosts, uint32(netns.N))
		if inside && a.strangers.is(int(c.N)) {
			say("%d is not a process of the world", c.N)
		}
		return out
	}
	if c := known("comm"); c != nil && !p.Called(c.S) {
		say("%d is called %s", p.PID, p.Comm)
	}
	if c := netns; c != nil && uint32(c.N) != p.Netns {
		say("%d is in namespace %d", p.PID, p.Netns)
	}
	if c := known("tid"); c != nil && c.N == 0 {
		say("a thread 0 of %d", p.PID)
	}
	if c := known("uid"); c != nil && int(c.N) != p.UID {
		say("%d is of user %d", p.PID, p.UID)
	}
	if c := known("cgroup"); c != nil && a.cgroup != "" && c.S != a.cgroup {
		say("%d is in %s", p.PID, a.cgroup)
	}
	return out
}

// slack is the largest step of the wall clock during a case.
const slack = time.Second

// addrs returns the addresses that only the host with this namespace has, and
// those that only other hosts have.
func (a *auditor) addrs(netns uint32) (mine, others map[netip.Addr]bool) {
	others = map[netip.Addr]bool{}
	for _, h := range a.world.Hosts() {
		own := map[netip.Addr]bool{}
		for _, at := range []netip.Addr{a.world.Addr4(h), a.world.Addr6(h)} {
			if at.IsValid() && !at.IsLoopback() {
				own[at] = true
			}
		}
		if a.world.Netns(h) == netns {
			mine = own
			continue
		}
		for at := range own {
			others[at] = true
		}
	}
	return mine, others
}

// ownCgroup is the path of our cgroup of version 2; empty if we are in none.
func ownCgroup() string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	return ""
}
