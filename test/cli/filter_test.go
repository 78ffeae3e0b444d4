// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
	"seine/tools/tcplife"
)

// TestFilters tests each filter with tcplife in a known world: three pairs of
// processes make 3 sessions over IPv4, 2 over IPv6, and 5 over IPv4 as another
// user in a cgroup. Each session is a row at the client and one at the server.
func TestFilters(t *testing.T) {
	t.Parallel()
	group := cgroup(t)
	w, only := twoHosts(t)
	alpha := peer{Addr: w.Addr4("server"), Port: 7101, Count: 3, Comm: "alpha-srv"}
	beta := peer{Addr: w.Addr6("server"), Port: 7102, Count: 2, Comm: "beta-srv"}
	gamma := peer{Addr: w.Addr4("server"), Port: 7103, Count: 5, Comm: "gamma-srv"}
	var clients []*lab.Proc
	for _, p := range []*peer{&alpha, &beta, &gamma} {
		serve(t, w, *p)
		p.Comm = strings.TrimSuffix(p.Comm, "srv") + "cli"
		if p == &gamma {
			p.UID, p.Cgroup = 65534, group
		}
		clients = append(clients, client(t, w, *p))
	}
	inner := group.Name()
	self, other := os.Getpid(), filepath.Join(filepath.Dir(inner), "other")
	const a, b, c = 3, 2, 5
	filters := []filter{
		{"", 2 * (a + b + c)},

		{fmt.Sprintf("--pid=%d", clients[0].PID), a},
		{fmt.Sprintf("--pid=%d,%d", clients[0].PID, clients[1].PID), a + b},
		{fmt.Sprintf("-p %d", self), 0},

		{"--comm=alpha-cli", a},
		{"--comm=alpha-*", 2 * a},
		{"--comm=*-cli", a + b + c},
		{"--comm=*a-s*v", a + b + c},
		{"--comm=?eta-srv", b},
		{"--comm=[ab]*-cli", a + b},
		{"--comm=[!a]*-srv", b + c},
		{"--comm=alpha", 0},
		{"--comm=alpha-cli?", 0},
		{"--comm=ALPHA-CLI", 0},
		{"--comm=alpha-cli,?eta-srv", a + b},

		{"--uid=65534", c},
		{"-u nobody", c},
		{"--uid=0", 2*(a+b) + c},
		{"--uid=0,nobody", 2 * (a + b + c)},
		{"--uid=12345", 0},
		{"--uid=0,0" + numbers(20000, 20701), 2*(a+b) + c},

		{"--cgroup=" + inner, c},
		{"--cgroup=" + filepath.Dir(inner), c}, // what is below counts
		{"--cgroup=" + other, 0},
		{"--cgroup=/", 2 * (a + b + c)},

		{"--port=7101", 2 * a},
		{"--port=7101,7103", 2 * (a + c)},
		{"--port=7101-7102", 2 * (a + b)},
		{"--port=1-65535", 2 * (a + b + c)},
		{"--port=1", 0},
		{"--port=7100,7104-7200", 0},
		{"--lport=7101", a},
		{"-L 7101-7103", a + b + c},
		{"--lport=1", 0},
		{"--rport=7102", b},
		{"-D 7102,7103", b + c},
		{"--rport=1", 0},
		{"--port=7101 --lport=7101", a},
		{"--port=7101 --rport=7102", 0}, // all must hold

		{"--addr=192.0.2.1", 2 * (a + c)},
		{"--addr=192.0.2.0/24", 2 * (a + c)},
		{"--addr=0.0.0.0/0", 2 * (a + c)},
		{"--addr=2001:db8::1", 2 * b},
		{"--addr=2001:db8::/32", 2 * b},
		{"--addr=::/0", 2 * b}, // IPv4 is not a part of IPv6 to those who ask
		{"--addr=192.0.2.0/24,2001:db8::/64", 2 * (a + b + c)},
		{"--addr=0.0.0.0/0,::/0", 2 * (a + b + c)},
		{"--addr=10.0.0.0/8", 0},
		{"--addr=192.0.2.128/25", 0},
		{"--addr=2001:db9::/32", 0},
		{"--laddr=192.0.2.1", a + c},
		{"--laddr=2001:db8::2/128", b},
		{"--laddr=10.0.0.1,::1", 0},
		{"--raddr=192.0.2.1", a + c},
		{"--raddr=2001:db8::2", b},
		{"--raddr=10.0.0.1", 0},
		{"--laddr=192.0.2.0/24 --raddr=192.0.2.1", a + c}, // the narrow one lies in the wide one
		{"--laddr=10.0.0.0/8 --raddr=192.0.2.1", 0},

		{"-4", 2 * (a + c)},
		{"-6", 2 * b},
		{"--family=inet", 2 * (a + c)},
		{"--family=inet6", 2 * b},
		{"--family=inet,inet6", 2 * (a + b + c)},
		{"--family=unix", 0},
		{"-4 --family=inet6", 0},
		{"--proto=tcp", 2 * (a + b + c)},
		{"--proto=6", 2 * (a + b + c)},
		{"--proto=udp", 0},

		{"--comm=*-cli -4 --uid=0 --rport=7101-7103", a},

		{fmt.Sprintf("--netns=%d", w.Netns("client")), a + b + c},
		{fmt.Sprintf("--netns=%d", clients[2].PID), a + b + c},
		{fmt.Sprintf("--netns=/proc/%d/ns/net", clients[2].PID), a + b + c},
		{fmt.Sprintf("--netns=%d,%d", w.Netns("client"), w.Netns("server")), 2 * (a + b + c)},
		{"--netns=/proc/self/ns/net --port=7101-7103", 0},
	}
	const atOnce = 12
	for batch := range slices.Chunk(filters, atOnce) {
		for i, got := range watch(t, tcplife.Tool, only, batch, func() { talk(t, clients...) }) {
			if len(got.rows) != batch[i].want {
				t.Errorf("%s: %d rows, want %d", batch[i].flags, len(got.rows), batch[i].want)
			}
		}
	}
}

// numbers is a long list, after a comma.
func numbers(from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, ",%d", n)
	}
	return b.String()
}

// A filter is flags and the number of rows that pass. some stands for any
// number above none.
type filter struct {
	flags string
	want  int
}

const some = -1

// A watched is the rows of one run and the number of its sockets with an
// unknown owner.
type watched struct {
	rows      []*row.Row
	ownerless uint64
}

// watch runs a tool with each of the filters at the same time over the same
// traffic, and returns what each has seen. Filters without --netns see only the
// namespaces of the world.
func watch(t *testing.T, tl *tool.Tool, only []string, filters []filter, traffic func()) []watched {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	gathered, out := make([]gatherer, len(filters)), make([]watched, len(filters))
	var running sync.WaitGroup
	for i, f := range filters {
		flags := append(strings.Fields(f.flags), "--buffer=1M", "--memory=4M")
		if !strings.Contains(f.flags, "--netns") {
			flags = append(flags, only...)
		}
		if tl.Once { // else it would show what is there before the traffic is
			flags = append(flags, "--interval=1h")
		}
		s := attach(t, tl, flags)
		running.Go(func() {
			r, err := s.Run(ctx, row.Name(&gathered[i], nil, cli.NamersOf(s)))
			if err != nil {
				t.Errorf("%s: %v", f.flags, err)
				return
			}
			out[i].ownerless = r.Losses[tool.LossOwner]
		})
	}
	traffic()
	deadline := time.Now().Add(patience)
	for i, f := range filters {
		for f.want != some && gathered[i].len() < f.want && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	stop()
	running.Wait()
	for i := range gathered {
		out[i].rows = gathered[i].rows
	}
	return out
}

func attach(t *testing.T, tl *tool.Tool, flags []string) *tool.Session {
	t.Helper()
	// The command line refuses filters that can never match. Here they must reach
	// the kernel.
	unlimited := *tl
	unlimited.Sockets = tool.Sockets{}
	tl = &unlimited
	cfg, o, err := cli.Parse(tl, flags)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tool.Prepare(tl, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Attach()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gatherer is a sink that keeps rows.
type gatherer struct {
	mu   sync.Mutex
	rows []*row.Row
}

func (g *gatherer) Row(r *row.Row) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rows = append(g.rows, r.Clone())
	return nil
}

func (g *gatherer) End(row.End) error { return nil }

func (g *gatherer) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.rows)
}

// cgroup makes one inside another, with a third beside it.
func cgroup(t *testing.T) *os.File {
	t.Helper()
	root, err := host.Cgroup2()
	if err != nil {
		t.Fatal(err)
	}
	outer := filepath.Join(root, fmt.Sprintf("seine-cli-%d", os.Getpid()))
	inner := filepath.Join(outer, "inner")
	for _, dir := range []string{outer, inner, filepath.Join(outer, "other")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
	}
	f, err := os.Open(inner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// everywhere are filters that any tool may declare. Those that match everything
// leave rows, the others none.
var everywhere = []struct {
	bit tool.Filter
	filter
}{
	{0, filter{"", some}},
	{tool.FilterPID, filter{"--pid=1", 0}},
	{tool.FilterComm, filter{"--comm=*", some}},
	{tool.FilterComm, filter{"--comm=no-such-name", 0}},
	{tool.FilterUID, filter{"--uid=0", some}},
	{tool.FilterUID, filter{"--uid=12345", 0}},
	{tool.FilterCgroup, filter{"--cgroup=/", some}},
	{tool.FilterPort, filter{"--port=1-65535", some}},
	{tool.FilterPort, filter{"--port=1", 0}},
	{tool.FilterLport, filter{"--lport=0-65535", some}},
	{tool.FilterLport, filter{"--lport=1", 0}},
	{tool.FilterRport, filter{"--rport=0-65535", some}},
	{tool.FilterRport, filter{"--rport=1", 0}},
	{tool.FilterAddr, filter{"--addr=0.0.0.0/0,::/0", some}},
	{tool.FilterAddr, filter{"--addr=233.252.0.1", 0}},
	{tool.FilterLaddr, filter{"--laddr=0.0.0.0/0,::/0", some}},
	{tool.FilterLaddr, filter{"--laddr=233.252.0.1", 0}},
	{tool.FilterRaddr, filter{"--raddr=0.0.0.0/0,::/0", some}},
	{tool.FilterRaddr, filter{"--raddr=233.252.0.1", 0}},
	{tool.FilterFamily, filter{"--family=ipx", 0}},
	{tool.FilterProto, filter{"--proto=sctp", 0}},
	{tool.FilterNetns, filter{"--netns=4294967295", 0}},
}

// asksWho reports whether a filter is about the process.
func asksWho(flags string) bool {
	return slices.ContainsFunc([]string{"--pid", "--comm", "--uid", "--cgroup"}, func(f string) bool { return strings.HasPrefix(flags, f) })
}

// cannot is the reason why this kernel cannot run a tool: a point without a
// way.
func cannot(t *testing.T, tl *tool.Tool) error {
	t.Helper()
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := object.Spec(tl.Name)
	if err != nil {
		t.Fatal(err)
	}
	points := tl.AllPoints(spec, tl.NewConfig())
	if m := probe.Missing(points, probe.Predict(k, spec, points, probe.Force{})); len(m) > 0 {
		return &probe.PointError{Choice: m[0]}
	}
	return nil
}

// orphans makes connections that nobody accepts before their listener ends. When they
// close, no process has them.
func orphans(w *lab.World) error {
	const n = 5
	from, to := w.Hosts()[0], w.Hosts()[len(w.Hosts())-1]
	l, err := lab.StartTargets(w, to, "listener", lab.Target{Network: lab.TCP4, Backlog: n})
	if err != nil {
		return err
	}
	attempts := make([]lab.Attempt, n)
	for i := range attempts {
		attempts[i] = lab.Attempt{Network: lab.TCP4, Addr: l.Addrs[0]}
	}
	c, err := lab.StartConnects(w, from, "connector", attempts...)
	if err != nil {
		return err
	}
	_, err = c.Run()
	return errors.Join(err, l.End())
}

// TestEveryFilter runs every tool over its demo, and over orphans, with each filter that it
// declares. A filter that leaves no rows and does not ask for the process leaves no sockets of
// unknown owner either.
func TestEveryFilter(t *testing.T) {
	t.Parallel()
	for _, tl := range tools.All {
		if tools.Demos[tl.Name].Run == nil || tl.Filters&tool.FilterNetns == 0 {
			continue
		}
		t.Run(tl.Name, func(t *testing.T) {
			if why := cannot(t, tl); why != nil {
				t.Skip(why)
			}
			w, err := lab.NewWorld(lab.Options{Hosts: tools.Demos[tl.Name].Hosts})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var only []string
			for _, h := range w.Hosts() {
				only = append(only, fmt.Sprintf("--netns=%d", w.Netns(h)))
			}
			var filters []filter
			for _, f := range everywhere {
				if tl.Filters&f.bit == f.bit {
					filters = append(filters, f.filter)
				}
			}
			for i, got := range watch(t, tl, only, filters, func() {
				if err := errors.Join(tools.Demos[tl.Name].Run(w), orphans(w)); err != nil {
					t.Error(err)
				}
			}) {
				switch n := len(got.rows); {
				case filters[i].want == some && n == 0:
					t.Errorf("%s: no rows, want some", filters[i].flags)
				case filters[i].want == 0 && n > 0:
					t.Errorf("%s: %d rows, want none: %s", filters[i].flags, n, trial.Dump(got.rows[0]))
				case filters[i].want == 0 && got.ownerless > 0 && !asksWho(filters[i].flags):
					t.Errorf("%s: %d sockets of unknown owner, want none", filters[i].flags, got.ownerless)
				}
			}
		})
	}
}
