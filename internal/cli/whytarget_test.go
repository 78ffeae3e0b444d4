// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"seine/internal/host"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/why"
)

// TestTargets: each kind of target keeps the findings about it, and those that explain them.
func TestTargets(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprint(os.Getpid())
	netns, err := host.NetnsInode(pid)
	if err != nil {
		t.Fatal(err)
	}
	db := watch.Who{Comm: "postgres", Container: "pg", Netns: netns + 1}
	web := watch.Who{Comm: "web", Netns: netns}
	here := watch.Who{Comm: strings.TrimSpace(string(comm)), Netns: netns}
	away := netip.MustParseAddr("192.0.2.5")
	objects := []why.Object{
		{Name: "postgres :5432", Who: db, Lport: 5432},
		{Name: "web → 192.0.2.5:5432", Who: web, Raddr: away, Rport: 5432},
		{Name: "web :443", Who: web, Lport: 443},
		{Name: "here :22", Who: here, Lport: 22},
	}
	causes := [][]int{{}, {1}, {2}, {}}
	view := &watch.View{Local: watch.Addrs{away: {db.Netns: true}}}
	for _, o := range objects {
		view.Services = append(view.Services, &watch.Service{ServiceKey: watch.ServiceKey{Who: o.Who, Out: o.Rport != 0, Lport: o.Lport, Raddr: o.Raddr, Rport: o.Rport}})
	}
	for target, want := range map[string][]int{
		pid: {4}, "web": {1, 2, 3}, "pg": {1}, "postgres": {1}, ":443": {1, 2, 3}, ":22": {4}, ":5432": {1, 2},
		"192.0.2.5:5432": {1, 2}, "192.0.2.5": {1, 2}, "192.0.2.5:80": nil, "192.0.2.6": nil, "nobody": nil,
	} {
		a := &why.Answer{}
		for i, o := range objects {
			a.Findings = append(a.Findings, &why.Finding{Rank: i + 1, Object: o, Causes: slices.Clone(causes[i])})
		}
		aim, err := parseTarget(target, true)
		if err == nil {
			err = aim.narrow(a, view)
		}
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		var got []int
		for i, f := range a.Findings {
			got = append(got, 1+slices.IndexFunc(objects, func(o why.Object) bool { return o == f.Object }))
			if f.Rank != i+1 || slices.ContainsFunc(f.Causes, func(c int) bool { return c < 1 || c >= f.Rank }) {
				t.Errorf("%s: %s is number %d with causes %v, want %d and causes before it", target, f.Object.Name, f.Rank, f.Causes, i+1)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: findings %v, want %v", target, got, want)
		}
		if seen := aim.seen(view); seen != (want != nil) {
			t.Errorf("%s: seen %v", target, seen)
		}
	}
	view.Services = append(view.Services, &watch.Service{ServiceKey: watch.ServiceKey{Who: watch.Who{Comm: "pg"}, Lport: 1}})
	aim, err := parseTarget("pg", true)
	if err == nil {
		err = aim.narrow(&why.Answer{}, view)
	}
	if err == nil || !strings.Contains(err.Error(), "both a container and a process") || !errors.Is(err, tool.ErrUsage) {
		t.Errorf("a name of two: %v", err)
	}
}
