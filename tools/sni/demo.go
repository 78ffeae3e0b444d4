// SPDX-License-Identifier: Apache-2.0

package sni

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		server, err := lab.StartTLS(w, "server", "web", "")
		if err != nil {
			return err
		}
		p, err := lab.StartTLSClient(w, "client", "browser", lab.TLSClient{Addr: server.Addr, Sessions: []lab.TLSSession{
			{Name: "www.example", ALPN: []string{"h2", "http/1.1"}}, {Name: "api.example", Most: tls.VersionTLS12}, {Name: "192.0.2.2"},
		}})
		if err != nil {
			return err
		}
		var done []lab.TLSSession
		return p.Call("go", &done)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "go", Hosts: lab.TwoHosts, Run: byGo("", 0)},
	{Name: "segments", Hosts: lab.TwoHosts, Run: byGo("", 100)},
}

// byGo: Go's own client writes its ClientHello in pieces of n bytes, after a preface.
// The server reports what it received.
func byGo(preface string, piece int) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		server, err := lab.StartTLS(x.World, "server", "web", preface)
		if err != nil {
			return err
		}
		t := lab.TLSClient{Addr: server.Addr, Sessions: []lab.TLSSession{
			{Name: "www.example", ALPN: []string{"h2", "http/1.1"}},
			{Name: "api.example", Most: tls.VersionTLS12},
			{Name: ""},
			{Name: strings.Repeat("long-name.", 20) + "example", ALPN: []string{"h2"}},
		}}
		if piece == 1 {
			t.Sessions = t.Sessions[:2]
		}
		for i := range t.Sessions {
			t.Sessions[i].Preface, t.Sessions[i].Piece = preface, piece
		}
		p, err := lab.StartTLSClient(x.World, "client", "browser", t)
		if err != nil {
			return err
		}
		var made []lab.TLSSession
		rows, err := shaken(x, len(t.Sessions), func() error { return p.Call("go", &made) })
		if err != nil {
			return err
		}
		for _, r := range rows {
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", "browser")
		}
		x.NoneLost()
		return agree(x, rows, server)
	}
}

// shaken runs clients while the tool is attached, until there are n rows.
func shaken(x *trial.Trial, n int, run func() error) ([]*row.Row, error) {
	if err := x.Attach(); err != nil {
		return nil, err
	}
	if err := run(); err != nil {
		return nil, err
	}
	x.Await(n)
	rows, err := x.Detach()
	if err == nil {
		x.Fail(trial.RowCount(len(rows), n))
	}
	return rows, err
}

// agree compares rows with what the server received from its clients.
func agree(x *trial.Trial, rows []*row.Row, server *lab.TLS) error {
	sessions, err := server.Sessions()
	if err != nil {
		return err
	}
	addr, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		return err
	}
	got := map[uint64]*row.Row{}
	for _, r := range rows {
		got[r.Get("lport").N] = r
		x.Want(r, "raddr", addr)
		x.Want(r, "rport", port)
	}
	if len(sessions) != len(rows) {
		x.Errorf("%d rows, and the server had %d sessions", len(rows), len(sessions))
	}
	absent := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	for _, s := range sessions {
		r := got[uint64(s.Port)]
		if r == nil {
			x.Errorf("no row of the session from port %d: %+v", s.Port, s)
			continue
		}
		x.Want(r, "name", absent(s.Name))
		x.Want(r, "version", fmt.Sprintf("1.%d", s.Most-tls.VersionTLS10))
		x.Want(r, "alpn", absent(strings.Join(s.ALPN, ",")))
	}
	return nil
}
