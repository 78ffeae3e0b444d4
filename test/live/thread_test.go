// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

// bodyThread is the name of the thread that does everything in the processes of
// these tests; their first threads only wait.
const bodyThread = "worker-7"

// threadSources are tools for each source of a process that differs by kernel or way:
// an owner, the current task in a tracepoint and in a system call, and a task by its
// pointer.
var threadSources = []string{"tcplife", "socketio", "soconnect", "superping"}

// othersTraffic are the tools whose demo is not made by threads of the lab.
var othersTraffic = []string{"gethostlatency", "ieee80211scan", "ipecn"}

// TestThreads runs each tool's demo in processes that do everything on a named thread:
// comm is the process's name, thread the thread's, and --comm goes by the process. On an
// emulated machine only threadSources run. With -others only they run by other ways than
// the best, and with --comm, which TestEveryFilter tests for all tools.
func TestThreads(t *testing.T) {
	for _, tl := range tools.All {
		by := namedBy(t, tl)
		if by == nil || tools.Demos[tl.Name].Run == nil {
			continue
		}
		source := slices.Contains(threadSources, tl.Name)
		if lab.Emulated() && !source {
			continue
		}
		whole := source || *others == math.MaxInt
		t.Run(tl.Name, func(t *testing.T) {
			for _, way := range ways(t, tl) {
				name := way
				if way == "" {
					name = "best"
				} else if !whole {
					continue
				}
				t.Run(name, func(t *testing.T) {
					all := demoRows(t, tl, way, by)
					seen := map[string]bool{}
					for _, r := range all.rows {
						all.check(t, r)
						if p := all.proc(r); p != nil {
							seen[p.Comm] = true
						}
					}
					if len(seen) == 0 && slices.Contains(othersTraffic, tl.Name) {
						t.Skip("its demo is made by the kernel, or by programs that are not the lab's")
					}
					if len(seen) == 0 {
						t.Fatalf("none of %d rows shows a process of the lab", len(all.rows))
					}
					if way != "" || !whole {
						return
					}
					for _, r := range demoRows(t, tl, way, append([]string{"--comm=" + bodyThread}, by...)).rows {
						t.Errorf("--comm %s shows %s", bodyThread, trial.Dump(r))
					}
					for comm := range seen {
						one := demoRows(t, tl, way, append([]string{"--comm=" + comm}, by...))
						n := 0
						for _, r := range one.rows {
							one.check(t, r)
							if p := one.proc(r); p == nil || p.Comm != comm {
								t.Errorf("--comm %s shows %s", comm, trial.Dump(r))
							}
							n++
						}
						if n == 0 {
							t.Errorf("--comm %s shows nothing", comm)
						}
						break // one is enough
					}
				})
			}
		})
	}
}

// namedBy is the flags with which rows of a tool have their process; nil if
// they never have one.
func namedBy(t *testing.T, tl *tool.Tool) []string {
	t.Helper()
	cfg, o, err := cli.Parse(tl, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tool.Prepare(tl, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	has := func(id string) bool {
		return slices.ContainsFunc(p.Schemas, func(s *row.Schema) bool { return s.Index(id) >= 0 })
	}
	if !has("comm") || !has("pid") {
		return nil
	}
	keys := p.Keys()
	if len(keys) == 0 {
		return []string{}
	}
	var by []string
	for _, id := range []string{"pid", "tid", "comm", "thread"} {
		if slices.Contains(keys, id) {
			by = append(by, id)
		} else if p.Schemas[0].Index(id) >= 0 {
			t.Errorf("%s has %s, and cannot count by it", tl.Name, id)
		}
	}
	return []string{"--by=" + strings.Join(by, ",")}
}

// demoed is the rows of a demo and the processes that made it.
type demoed struct {
	rows  []*row.Row
	procs map[int]*lab.Proc
}

func demoRows(t *testing.T, tl *tool.Tool, way string, flags []string) demoed {
	t.Helper()
	out := demoed{procs: map[int]*lab.Proc{}}
	c := trial.Case{Name: "threads", Hosts: tools.Demos[tl.Name].Hosts, Thread: bodyThread, Run: func(x *trial.Trial) (err error) {
		out.rows, err = x.Rows(func() error {
			if err := tools.Demos[tl.Name].Run(x.World); err != nil {
				return err
			}
			return x.World.Quiet()
		}, flags...)
		for _, p := range x.World.Procs() {
			out.procs[p.PID] = p
		}
		return err
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_, err := trial.RunCase(ctx, tl, c, way)
	if errors.Is(err, probe.ErrNotSupported) || errors.Is(err, trial.ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
	return out
}

// proc is the process of the lab that a row names.
func (d demoed) proc(r *row.Row) *lab.Proc {
	if c := r.Get("pid"); c != nil && c.Kind != row.Null {
		return d.procs[int(c.N)]
	}
	return nil
}

// check compares the names of a row with those of its process and thread.
func (d demoed) check(t *testing.T, r *row.Row) {
	t.Helper()
	p := d.proc(r)
	if p == nil {
		return
	}
	if got := trial.Value(r.Get("comm")); !p.Called(got) {
		t.Errorf("comm is %s, want %s, in %s", got, p.Comm, trial.Dump(r))
	}
	tid, thread := r.Get("tid"), r.Get("thread")
	if (tid == nil) != (thread == nil) {
		t.Fatalf("a row has tid or thread, not both: %s", trial.Dump(r))
	}
	if tid == nil {
		return
	}
	got := trial.Value(thread)
	if tid.N == uint64(p.TID) {
		if got != bodyThread && got != lab.FilesComm {
			t.Errorf("thread is %s, want %s, in %s", got, bodyThread, trial.Dump(r))
		}
		return
	}
	// Threads of Go's runtime have the process's name, workers of io_uring their own.
	if !p.Called(got) && !strings.HasPrefix(got, "iou-wrk-") {
		t.Errorf("thread is %s, want %s, in %s", got, p.Comm, trial.Dump(r))
	}
}
