// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/lab"
	"seine/internal/record"
	"seine/internal/row"
	model "seine/internal/watch"
)

// session is a row of tcplife or flows.
type session struct {
	PID          int
	Comm         string
	Lport, Rport int
	TX           int     `json:"tx_bytes"`
	RX           int     `json:"rx_bytes"`
	Lived        float64 `json:"duration_ms"`
	Wall         float64 `json:"wall_ms"`
	Losses       *struct{}
}

// sessionsIn reads the rows of a command, by local and remote port.
func sessionsIn(t *testing.T, args ...string) map[[2]int]session {
	t.Helper()
	out := map[[2]int]session{}
	for line := range strings.Lines(run(t, append(args, "-o", "json")...)) {
		var s session
		if decode(t, line, &s); s.Losses != nil { // of other processes' sockets, whose owner is not known
			continue
		}
		key := [2]int{s.Lport, s.Rport}
		if _, twice := out[key]; twice {
			t.Errorf("%v: ports %v twice", args, key)
		}
		out[key] = s
	}
	return out
}

func decode(t *testing.T, line string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), v); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
}

// TestRecordDefault makes the default recording and one of flows --closed over known
// traffic. Both have the sessions with the bytes that were sent. The default one has a
// connection that stays open, and its counters grew by the bytes that were sent.
func TestRecordDefault(t *testing.T) {
	t.Parallel()
	const n, datagrams = 23, 17
	apart, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer apart.Close()
	dir, alone := filepath.Join(t.TempDir(), "rec"), filepath.Join(t.TempDir(), "rec")
	all := start(t, nil, "record", "--dir", dir)
	flows := start(t, nil, "record", "flows --closed", "--dir", alone)
	began := time.Now()
	port := brief(t, n)
	took := float64(time.Since(began)) / float64(time.Millisecond)
	stays := pool(t)
	noPorts(t, apart.Do, datagrams)
	for _, p := range []*process{all, flows} {
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
	}

	only := fmt.Sprint("--port=", port)
	own := sessionsIn(t, "tcplife", "--from", dir, only, hereOnly(t))
	whole := sessionsIn(t, "flows", "--closed", "--from", dir, only, hereOnly(t))
	other := sessionsIn(t, "tcplife", "--from", alone, only, hereOnly(t))
	if len(own) != 2*n || len(whole) != 2*n || len(other) != 2*n {
		t.Errorf("%d connections are %d rows of tcplife, %d of flows, %d of tcplife that flows answers for", n, len(own), len(whole), len(other))
	}
	for ports, s := range own {
		o := other[ports]
		if o.Lived <= 0 || o.Lived > took || whole[ports].Wall <= 0 || whole[ports].Wall > took {
			t.Errorf("%v: lived %v ms by flows, %v by flows of the set; all took %v", ports, o.Lived, whole[ports].Wall, took)
		}
		if s.TX != 5 || s.RX != 5 {
			t.Errorf("%v: %d bytes sent, %d received, want 5", ports, s.TX, s.RX)
		}
		s.Lived, o.Lived = 0, 0
		if s != o {
			t.Errorf("tcplife has %+v, and flows answers %+v", s, o)
		}
	}
	if c := sessionsIn(t, "flows", "--view", "connections", "--from", dir, fmt.Sprint("--port=", stays), hereOnly(t)); len(c) != 2 {
		t.Errorf("the connection that stays has the rows %v, want one of each end", c)
	}
	served := 0
	for line := range strings.Lines(run(t, "flows", "--from", dir, "-o", "json", fmt.Sprint("--lport=", port), hereOnly(t))) {
		var s struct{ Conns int }
		decode(t, line, &s)
		served += s.Conns
	}
	if served < n { // a connection can be in two intervals
		t.Errorf("services have %d connections to port %d, want %d", served, port, n)
	}
	if got := grew(t, dir, apart.Netns(""), "UdpNoPorts"); got != datagrams {
		t.Errorf("UdpNoPorts grew by %d in the recording, want %d", got, datagrams)
	}
}

// pool is the port of a server to which there is one connection, until the test ends.
func pool(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return l.Addr().(*net.TCPAddr).Port
}

// counted adds up a counter of a network namespace.
type counted struct {
	netns uint64
	name  string
	sum   uint64
}

func (c *counted) Row(r *row.Row) error {
	if r.Get("netns").N == c.netns && r.Get("counter").S == c.name {
		c.sum += r.Get("grew").N
	}
	return nil
}
func (*counted) Mark(*record.Schema, *record.Mark) error { return nil }
func (*counted) Idle() error                             { return nil }

// grew is the growth of a counter in the recording.
func grew(t *testing.T, dir string, netns uint32, name string) uint64 {
	t.Helper()
	rec, err := record.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{netns: uint64(netns), name: name}
	into := func(s *record.Schema) *row.Schema {
		if s.Tool != model.Counters {
			return nil
		}
		return model.CounterSchema()
	}
	if err := rec.Play(context.Background(), &record.Query{Into: into}, c); err != nil {
		t.Fatal(err)
	}
	return c.sum
}
