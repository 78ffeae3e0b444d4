// SPDX-License-Identifier: Apache-2.0

package front

import (
	"log/slog"
	"maps"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"seine/internal/agent"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/row/rowtest"
	"seine/internal/watch"
)

// A world is a holder with made rows, and a front before it.
type world struct {
	model   *watch.Model
	counts  *agent.Counts
	answers *agent.Answers
	client  *agent.Client
	server  *httptest.Server
}

func newWorld(t *testing.T, with func(*Options)) *world {
	t.Helper()
	meter, err := agent.NewMeter(agent.Limits{}, agent.Table...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{model: watch.New(watch.Options{}), counts: &agent.Counts{Meter: meter}}
	w.answers = &agent.Answers{Model: w.model, Meter: meter, Host: "testhost"}
	w.answers.Fresh = (&agent.Self{Counts: w.counts, Model: w.model, Answers: w.answers, Version: "test"}).Tell
	for _, s := range []string{"flows", "tcpretrans", "soconnect", "tcpsynbl", "soaccept", "tcplife", "dns", "skbdrop", watch.Counters} {
		w.model.Asked(s, "")
	}
	ours, theirs := net.Pipe()
	go agent.Serve(t.Context(), ours, w.answers.Answer)
	w.client = agent.NewClient(theirs)
	o := Options{Client: w.client, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if with != nil {
		with(&o)
	}
	w.server = httptest.NewServer(New(t.Context(), o))
	t.Cleanup(func() {
		theirs.Close()
		w.server.CloseClientConnections()
		w.server.Close()
	})
	return w
}

// row hands a row to the model and to the metrics.
func (w *world) row(tool, view string, at time.Time, values map[string]any) {
	s := rowtest.Schema(tool, view, append(slices.Sorted(maps.Keys(values)), "time")...)
	r := rowtest.At(s, at, values)
	for _, to := range []row.Sink{w.model, w.counts} {
		if err := to.Row(r); err != nil {
			panic(err)
		}
	}
}

// turns is a histogram of n turns that took so long.
func turns(n int, took time.Duration) *kern.Hist {
	h := &kern.Hist{}
	for range n {
		h.Add(uint64(took.Microseconds()))
	}
	return h
}

// hostile is a name that a process may have.
const hostile = `<img src=x onerror=x()>`

// The socket of fill's connects. No two of them took as long: the latest took 2.019 ms.
const (
	connectPID, connectSock = 4711, 9_007_199_254_740_993 // a float64 cannot hold the latter
	lastConnect             = 0.002019
)

// fill has the machine do something for 20 seconds: a server that is slow, its client, one
// elsewhere, and a process with a hostile name.
func (w *world) fill() {
	began := time.Now().Truncate(time.Second).Add(-20 * time.Second)
	w.model.Local(1, netip.MustParseAddr("127.0.0.1"))
	here, far := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.5")
	for i := range 20 {
		at := began.Add(time.Duration(i) * time.Second)
		w.row("flows", "services", at, map[string]any{"side": "in", "comm": "slowd", "netns": 1, "lport": 8080, "conns": 2, "turns": 5, "turn_us": turns(5, 300*time.Millisecond), "app_ms": 1480, "network_ms": 20, "tx_bytes": 5000, "rx_bytes": 500})
		w.row("flows", "services", at, map[string]any{"side": "out", "comm": "client", "netns": 1, "raddr": here, "rport": 8080, "conns": 2, "turns": 5, "turn_us": turns(5, 310*time.Millisecond), "peer_ms": 1500, "tx_bytes": 500, "rx_bytes": 5000})
		w.row("flows", "services", at, map[string]any{"side": "out", "comm": hostile, "netns": 1, "raddr": far, "rport": 5432, "conns": 1, "turns": 7, "turn_us": turns(7, time.Millisecond), "peer_ms": 7, "tx_bytes": 70, "rx_bytes": 700})
		w.row("flows", "connections", at, map[string]any{"comm": "client", "pid": 4711, "netns": 1, "role": "client", "laddr": here, "lport": 40001, "raddr": here, "rport": 8080, "turns": 5, "tx_bytes": 500, "rx_bytes": 5000,
			"older": 1, "retrans_fast": 1, "srtt_us": 150, "min_rtt_us": 100, "wall_ms": 1000, "peer_ms": 900, "idle_ms": 100})
		w.row("soconnect", "", at, map[string]any{"comm": "client", "pid": connectPID, "sock": connectSock, "netns": 1, "raddr": here, "rport": 8080, "proto": "tcp", "latency_us": 2000 + i})
		w.row("tcpretrans", "", at, map[string]any{"comm": "client", "netns": 1, "lport": 40001, "raddr": here, "rport": 8080, "cause": "fast", "segments": 1, "bytes": 100, "state": "ESTABLISHED"})
	}
}
