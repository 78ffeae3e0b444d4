// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

// relays says whether the table of owners calls programs of others here.
func relays(t *testing.T) bool {
	t.Helper()
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	return k.Args("sock_send_length") != nil && !host.TracepointsPreempt()
}

// runs is how often programs of a point have run.
func (r *engineRun) runs(t *testing.T, point string) (n uint64) {
	t.Helper()
	for _, p := range r.Stats().Programs {
		if strings.HasPrefix(p.Name, point+"__") {
			n += p.Runs
		}
	}
	return n
}

// TestRelay: beside a tool that needs owners, programs of udplife at sends and receives are called by
// those of the table, and its rows are the same. A second udplife has programs of its own. The first one
// goes on when the other tool has ended.
func TestRelay(t *testing.T) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	w, e, netns := worldOfTools(t)
	life := start(t, e, "tcplife", netns)
	first, second := start(t, e, "udplife", netns), start(t, e, "udplife", netns)
	if r := e.Owners(); len(r) != 1 || r[0].Tools != 1 {
		t.Errorf("the engine says %+v of owners", r)
	}
	move := func() {
		t.Helper()
		o, err := lab.StartIO(w, "", "mover", lab.Load{Network: lab.UDP4, Count: 23, Size: 101})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Run(); err != nil {
			t.Fatal(err)
		}
		if err := lab.RunTCP(w, lab.Sessions{Count: 7, Send: 100, Recv: 100}); err != nil {
			t.Fatal(err)
		}
	}
	move()
	if _, err := life.end(); err != nil {
		t.Fatal(err)
	}
	if r := e.Owners(); relays(t) != (len(r) == 1) {
		t.Errorf("after the other tool has ended, the engine says %+v of owners", r)
	}
	move()
	if n, m := first.runs(t, "io"), second.runs(t, "io"); relays(t) && (n != 0 || m < 2*2*23) {
		t.Errorf("programs that are called ran %d times by themselves, others %d times", n, m)
	}
	third := start(t, e, "tcplife", netns) // it finds the table
	move()
	for _, r := range []*engineRun{first, second} {
		r.await(6)
		rows, err := r.end()
		if err != nil {
			t.Fatal(err)
		}
		var sent, received uint64
		for _, one := range rows {
			sent += one.Get("tx_datagrams").N
			received += one.Get("rx_datagrams").N
		}
		if len(rows) != 6 || sent != 3*23 || received != 3*23 || r.report.Lost() != 0 {
			t.Errorf("%d rows of %d datagrams sent and %d received, %d lost, want 6 rows of %d", len(rows), sent, received, r.report.Lost(), 3*23)
		}
	}
	if _, err := third.end(); err != nil {
		t.Error(err)
	}
	if r := e.Owners(); len(r) != 0 {
		t.Errorf("after the last tool has ended, the engine says %+v of owners", r)
	}
}

// TestRelayCases: the cases of udplife beside a tool that needs owners.
func TestRelayCases(t *testing.T) {
	tl := named(t, "udplife")
	list := slices.DeleteFunc(slices.Clone(casesBy(tl, "")), func(c trial.Case) bool { return c.Slow })
	for _, c := range list {
		t.Run(c.Name, func(t *testing.T) {
			until(t, func() (*trial.Trial, error) { return trial.RunBeside(t.Context(), tl, c, "", []string{"tcplife"}) })
		})
	}
}
