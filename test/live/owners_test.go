// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

// owning are the tools that ask for the owners of sockets.
func owning(t *testing.T) (out []string) {
	t.Helper()
	for _, tl := range tools.All {
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Maps["owners"] != nil {
			out = append(out, tl.Name)
		}
	}
	return out
}

// inKernel is the number of programs and maps of this process by their name in the
// kernel, found by the files of this process.
func inKernel(t *testing.T) (programs, maps map[string]int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	programs, maps = map[string]int{}, map[string]int{}
	seen := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		if err != nil {
			continue // closed meanwhile
		}
		var id uint32
		for line := range strings.Lines(string(b)) {
			word, number, _ := strings.Cut(line, ":")
			if word != "prog_id" && word != "map_id" || seen[line] {
				continue
			}
			seen[line] = true
			if _, err := fmt.Sscan(number, &id); err != nil {
				t.Fatal(err)
			}
			if word == "map_id" {
				m, err := ebpf.NewMapFromID(ebpf.MapID(id))
				if err != nil {
					continue // a map within a map
				}
				if info, err := m.Info(); err == nil {
					maps[info.Name]++
				}
				m.Close()
				continue
			}
			p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
			if err != nil {
				t.Fatal(err)
			}
			if info, err := p.Info(); err == nil {
				programs[info.Name]++
			}
			p.Close()
		}
	}
	return programs, maps
}

// writers is the number of these programs that record owners.
func writers(programs map[string]int) (n int) {
	for name, many := range programs {
		if strings.HasPrefix(name, "owner_") {
			n += many
		}
	}
	return n
}

// TestOwnersOnce: owners are recorded once, in one map, however many tools need them. The
// rows of all tools are right, also those of a tool that was added later or outlasts
// others.
func TestOwnersOnce(t *testing.T) {
	all := owning(t)
	// These have programs of their own on hooks at which owners are
	// recorded.
	all = slices.DeleteFunc(all, func(name string) bool {
		return slices.Contains([]string{"capture", "flows", "sormem", "tcpsnoop"}, name)
	})
	if lab.Emulated() {
		all = []string{"tcplife", "tcpdrop", "tcptop"}
	}
	all = slices.DeleteFunc(all, func(name string) bool { return name == "tcplife" || name == "tcpstates" })
	w, e, netns := worldOfTools(t)
	before, _ := inKernel(t)
	runs := []*engineRun{start(t, e, "tcplife", netns)}
	one, maps := inKernel(t)
	if writers(before) != 0 || writers(one) == 0 || maps["owners"] != 1 {
		t.Fatalf("%d programs that write owners before, %d with one tool, and %d maps of owners", writers(before), writers(one), maps["owners"])
	}
	for _, name := range all {
		runs = append(runs, start(t, e, name, netns))
	}
	many, maps := inKernel(t)
	if writers(many) != writers(one) || maps["owners"] != 1 {
		t.Errorf("%d programs write owners for %d tools in %d maps, %d do for one in one", writers(many), len(runs), maps["owners"], writers(one))
	}
	if r := e.Owners(); len(r) != 1 || r[0].Tools != len(runs) || len(r[0].Programs) != writers(one) {
		t.Errorf("the engine says %+v of owners", r)
	}
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	// The agent promises 100,000 connections. Listeners are sockets too, and with MPTCP each is two.
	if n := e.Owners()[0].Maps[0].Capacity; k.HasFunc("bpf_mem_alloc_init") && n < 1<<17 {
		t.Errorf("the table has room for %d sockets", n)
	}
	states := start(t, e, "tcpstates", netns)
	if _, maps := inKernel(t); maps["owners"] != 1 || maps["owner_own"] != 1 {
		t.Errorf("%d maps of owners, %d of what tcpstates keeps", maps["owners"], maps["owner_own"])
	}
	life := runs[0]
	check := func(later ...*engineRun) {
		t.Helper()
		if err := attributed(w, append([]*engineRun{life}, later...)...); err != nil {
			t.Error(err)
		}
	}
	check(states)
	for _, r := range runs[1:] {
		if _, err := r.end(); err != nil {
			t.Error(err)
		}
	}
	check(states)
	if _, err := states.end(); err != nil {
		t.Error(err)
	}
	if r := e.Owners(); len(r) != 1 || r[0].Tools != 1 {
		t.Errorf("with one tool left the engine says %+v of owners", r)
	}
	check()
	if _, err := life.end(); err != nil {
		t.Error(err)
	}
	after, maps := inKernel(t)
	if n := writers(after); n != 0 || maps["owners"] != 0 || len(e.Owners()) != 0 {
		t.Errorf("without a tool %d programs are left, and %d maps of owners", n, maps["owners"])
	}
}

// attributed makes sessions and returns the rows with a wrong process.
func attributed(w *lab.World, runs ...*engineRun) error {
	return lab.Undisturbed(func() (wrong []error, err error) {
		const sessions = 101
		had := make([]int, len(runs))
		for i, r := range runs {
			had[i] = r.rows.len()
		}
		tcp, err := lab.StartTCP(w, lab.Sessions{Count: sessions, Send: 100, Recv: 100})
		if err != nil {
			return nil, err
		}
		if _, err := tcp.Run(); err != nil {
			return nil, err
		}
		for i, r := range runs {
			name := r.Schemas()[0].Tool
			least := 2 * sessions // ends
			if name == "tcpstates" {
				least = 2 * sessions * 4 // an end has more changes than these
			}
			r.await(had[i] + least)
			r.Deliver(context.Background())
			r.rows.mu.Lock()
			rows := slices.Clone(r.rows.rows[had[i]:])
			r.rows.mu.Unlock()
			if len(rows) < least {
				wrong = append(wrong, fmt.Errorf("%s: %d rows of %d sessions", name, len(rows), sessions))
			}
			for _, one := range rows {
				// The last row of a session may come only after
				// its process has ended.
				want := tcp.Client
				if trial.Value(one.Get("lport")) == fmt.Sprint(tcp.Port) {
					want = tcp.Server
				}
				if got := trial.Values(one, "pid", "comm"); got != fmt.Sprint(want.PID, " ", want.Comm) {
					wrong = append(wrong, fmt.Errorf("%s: a row of %s, not of %d %s", name, got, want.PID, want.Comm))
				}
			}
		}
		return wrong, nil
	})
}

var sharing = flag.String("shared", "", "TestOwnersShared runs the first case alone, and of tools those whose names match this `expression`")

// TestOwnersShared runs the cases of tools that need owners in an engine for several
// tools, where a separate object records them. The rows must be the same as those of the
// tool alone. The tools of -shared together need everything that a tool can need of the
// table.
func TestOwnersShared(t *testing.T) {
	var all, some uint32
	for _, name := range owning(t) {
		all |= needs(t, name)
		if !match(*sharing, name) {
			continue
		}
		some |= needs(t, name)
		tl := named(t, name)
		t.Run(name, func(t *testing.T) {
			for _, way := range ways(t, tl) {
				beside, as := []string{}, way
				list := slices.DeleteFunc(slices.Clone(casesBy(tl, way)), func(c trial.Case) bool { return c.Slow })
				switch {
				case way != "":
				case name == "tcpsynbl":
					as, beside = "best", []string{"tcpretrans"}
				default: // which needs only listeners: more is attached for the tool
					as, beside = "best", []string{"tcpsynbl"}
				}
				if way != "" || *sharing != "" {
					list = list[:min(1, len(list))]
				}
				t.Run(as, func(t *testing.T) {
					for _, c := range list {
						t.Run(c.Name, func(t *testing.T) {
							until(t, func() (*trial.Trial, error) {
								ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
								defer cancel()
								return trial.RunBeside(ctx, tl, c, way, beside)
							})
						})
					}
				})
			}
		})
	}
	if some != all {
		t.Errorf("tools need %#b of the table, those that run %#b", all, some)
	}
}

// tableOptions is what a tool may need of the table, of enum owner_option in bpf/owner.h: OWNER_LISTENERS,
// OWNER_LISTENERS_ONLY, OWNER_ALL, OWNER_TIMES, OWNER_FINDS, OWNER_OWN. OWNER_ACCEPTS is left out: only flows has
// it, and to verify flows takes up to a minute where the machine is emulated.
const tableOptions = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<9 | 1<<11

// needs is what a tool needs of the table.
func needs(t *testing.T, name string) (n uint32) {
	t.Helper()
	spec, err := object.Spec(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["owner_options"].Get(&n); err != nil {
		t.Fatal(err)
	}
	return n & tableOptions
}

// TestOwnersFull: --memory limits the shared table, and each tool reports what did not
// fit.
func TestOwnersFull(t *testing.T) {
	w, e, netns := worldOfTools(t)
	life := start(t, e, "tcplife", netns, "--memory=64k")
	top := start(t, e, "tcptop", netns)
	const sessions = 401
	tcp, err := lab.StartTCP(w, lab.Sessions{Count: sessions, Send: 100, Recv: 50, Hold: true, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tcp.Open(); err != nil {
		t.Fatal(err)
	}
	if r := e.Owners(); len(r) != 1 || r[0].Memory > 96<<10 || r[0].Maps[0].Used < r[0].Maps[0].Capacity {
		t.Errorf("with 64 KiB for %d sockets the engine says %+v of owners", 2*sessions, r)
	}
	if _, err := tcp.Run(); err != nil {
		t.Fatal(err)
	}
	later := start(t, e, "tcpdrop", netns) // has lost nothing so far
	told := later.Stats().Losses[tool.LossOwnerFull]
	for _, r := range []*engineRun{later, top, life} {
		if _, err := r.end(); err != nil {
			t.Error(err)
		}
	}
	one, other := life.report.Losses[tool.LossOwnerFull], top.report.Losses[tool.LossOwnerFull]
	if one < sessions || other < sessions || one < other {
		t.Errorf("%d owners that did not fit were told to the one tool, %d to the one that came next, of %d sockets", one, other, 2*sessions)
	}
	if told >= other {
		t.Errorf("a tool that came later was told of %d, those before it of %d", told, other)
	}
}

// TestOwnersCgroups: each tool has its own --cgroup, although an entry of the table
// records whether its process is in that cgroup. Tools with the same cgroup share a
// table.
func TestOwnersCgroups(t *testing.T) {
	root, err := host.Cgroup2()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "seine-owners-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) }) // when the world's processes have gone
	w, e, netns := worldOfTools(t)
	const sessions = 31
	tcp, err := lab.StartTCP(w, lab.Sessions{Count: sessions, Send: 100, Recv: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(tcp.Server.PID)), 0); err != nil {
		t.Fatal(err)
	}
	all := start(t, e, "tcplife", netns)
	some := start(t, e, "tcplife", netns, "--cgroup="+dir)
	states := start(t, e, "tcpstates", netns, "--cgroup="+dir)
	if r := e.Owners(); len(r) != 2 {
		t.Errorf("%d tables of owners for two cgroups", len(r))
	}
	if _, err := tcp.Run(); err != nil {
		t.Fatal(err)
	}
	all.await(2 * sessions)
	some.await(sessions)
	for r, want := range map[*engineRun]int{all: 2 * sessions, some: sessions, states: -1} {
		rows, err := r.end()
		if err != nil {
			t.Error(err)
		}
		if want > 0 && len(rows) != want {
			t.Errorf("%d rows of %d sessions, want %d", len(rows), sessions, want)
		}
		for _, one := range rows {
			if r != all && trial.Value(one.Get("pid")) != fmt.Sprint(tcp.Server.PID) {
				t.Errorf("%s shows a row of process %s, which is not in the cgroup", one.Schema.Tool, trial.Value(one.Get("pid")))
			}
		}
	}
	if len(states.rows.rows) == 0 {
		t.Error("tcpstates shows nothing of the cgroup")
	}
}
