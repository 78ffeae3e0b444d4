// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"os"
	"os/exec"
	"testing"

	"seine/internal/row"
)

func TestStrangers(t *testing.T) {
	here, err := netnsOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	before := exec.Command("sleep", "0")
	if err := before.Run(); err != nil {
		t.Fatal(err)
	}
	since := lastPID()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	dead := exec.Command("sleep", "0")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	inside, outside := strangers{since, []uint32{here}}, strangers{since, []uint32{here + 1}}
	for _, c := range []struct {
		what string
		s    strangers
		pid  int
		want bool
	}{
		{"init", inside, 1, true},
		{"the kernel", inside, 0, true},
		{"one that was gone before", inside, before.Process.Pid, true},
		{"ourselves", outside, os.Getpid(), false},
		{"a child of a child", inside, child.Process.Pid, false},
		{"somebody in another namespace", outside, child.Process.Pid, true},
		{"a child of a child that has gone", inside, dead.Process.Pid, false},
	} {
		if got := c.s.is(c.pid); got != c.want {
			t.Errorf("%s, %d since %d: a stranger is %v, want %v", c.what, c.pid, c.s.since, got, c.want)
		}
	}
}

// A row of the world with the PID of another process is an error. Rows that the
// tool was not told to leave out may belong to any process.
func TestAuditStrangers(t *testing.T) {
	schema := &row.Schema{Columns: []row.Column{{ID: "pid"}}}
	for _, c := range []struct {
		limited bool
		pid     int
		want    int
	}{{true, 1, 1}, {true, os.Getpid(), 0}, {false, 1, 0}} {
		a := auditor{limited: c.limited, strangers: strangers{since: lastPID()}}
		r := schema.New()
		*r.Get("pid") = row.Cell{Kind: row.Uint, N: uint64(c.pid)}
		if got := a.faults(r); len(got) != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
