// SPDX-License-Identifier: Apache-2.0

package sni

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"seine/internal/lab"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodySplit, greet)
	return []trial.Case{
		{Name: "bytes", Hosts: lab.TwoHosts, Run: byGo("", 1)},
		{Name: "proxy", Hosts: lab.TwoHosts, Run: byGo("CONNECT www.example:443 HTTP/1.1\r\n\r\n", 7)},
		{Name: "openssl", Run: openssl},
		{Name: "curl", Run: curl},
		{Name: "other", Run: other},
		{Name: "few", Run: few},
	}
}

// commands: programs of the machine make one session each.
func commands(x *trial.Trial, list func(host, port string) [][]string) error {
	server, err := lab.StartTLS(x.World, "", "web", "")
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		return err
	}
	var procs []*lab.Proc
	for _, c := range list(host, port) {
		p, err := lab.StartCommand(x.World, "", c...)
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		procs = append(procs, p)
	}
	pids := map[uint64]string{}
	rows, err := shaken(x, len(procs), func() error {
		for _, p := range procs {
			pids[uint64(p.PID)] = p.Comm
			if err := p.Tell("go"); err != nil {
				return err
			}
			p.Wait() // it does not report its end as our own children do
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if comm := pids[r.Get("pid").N]; comm == "" || comm != trial.Value(r.Get("comm")) {
			x.Errorf("%s, want one of %v", trial.Dump(r), pids)
		}
	}
	return agree(x, rows, server)
}

func openssl(x *trial.Trial) error {
	return commands(x, func(host, port string) [][]string {
		to := []string{"openssl", "s_client", "-connect", host + ":" + port}
		return [][]string{
			append(to, "-servername", "www.example", "-alpn", "h2,http/1.1"),
			append(to, "-servername", "old.example", "-tls1_2"),
			append(to, "-noservername"),
		}
	})
}

func curl(x *trial.Trial) error {
	return commands(x, func(host, port string) [][]string {
		get := func(name string, more ...string) []string {
			url := "https://" + name + ":" + port + "/"
			return append([]string{"curl", "-sk", "--max-time", "120", "--resolve", name + ":" + port + ":" + host, url}, more...)
		}
		return [][]string{get("www.example"), get("api.example", "--http1.1"), get("tls12.example", "--tls-max", "1.2")}
	})
}

// other: data that is not TLS, or only looks like it, gives no row. A TLS session after
// it gives one.
func other(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 5000, Recv: 100})
	if err != nil {
		return err
	}
	server, err := lab.StartTLS(x.World, "", "web", "")
	if err != nil {
		return err
	}
	long, err := clientHello("long.example")
	if err != nil {
		return err
	}
	long = append(long, make([]byte, 8192)...)
	long[6] = 1 // 64 KiB more than a ClientHello may have
	var wires []*lab.Proc
	for _, b := range [][]byte{{22}, {22, 3}, []byte("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"), []byte("\x16\x03\x01\xff\xff\x01\xff\xff\xff\x00"), long} {
		w, err := lab.StartDNSWire(x.World, "", "wire", lab.DNSWire{Network: "tcp", Server: server.Addr, Writes: [][]byte{b}})
		if err != nil {
			return err
		}
		wires = append(wires, w)
	}
	p, err := lab.StartTLSClient(x.World, "", "browser", lab.TLSClient{Addr: server.Addr, Sessions: []lab.TLSSession{{Name: "www.example"}}})
	if err != nil {
		return err
	}
	rows, err := shaken(x, 1, func() error {
		if _, err := t.Run(); err != nil {
			return err
		}
		for _, w := range wires {
			var port string
			if err := w.Call("go", &port); err != nil {
				return err
			}
		}
		var made []lab.TLSSession
		return p.Call("go", &made)
	})
	if err != nil {
		return err
	}
	return agree(x, rows, server)
}

const bodySplit = "sni-split"

// splitHellos is how many connections say hello at the same time.
const splitHellos = 23

// clientHello is a ClientHello made by Go.
func clientHello(name string) ([]byte, error) {
	client, server := net.Pipe()
	go tls.Client(client, &tls.Config{ServerName: name}).Handshake()
	defer client.Close()
	defer server.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(server, b); err != nil {
		return nil, err
	}
	rest := make([]byte, binary.BigEndian.Uint16(b[3:]))
	_, err := io.ReadFull(server, rest)
	return append(b, rest...), err
}

// greet opens connections to itself, sends the first half of a ClientHello on each, then
// the second half, and closes them. Connections with odd numbers never send the second
// half.
func greet(c *lab.Child) error {
	b, err := clientHello("www.example")
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	if err := c.Await("go"); err != nil {
		return err
	}
	var conns []net.Conn
	for range splitHellos {
		conn, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		if _, err := conn.Write(b[:len(b)/2]); err != nil {
			return err
		}
	}
	for i, conn := range conns {
		if i%2 == 0 {
			if _, err := conn.Write(b[len(b)/2:]); err != nil {
				return err
			}
		}
	}
	for _, conn := range conns {
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			return err
		}
		conn.Close()
	}
	return c.Report(true)
}

// few: more connections begin a ClientHello than the map has room for. Each is shown
// or counted. Connections that end in the middle of one free their entry.
func few(x *trial.Trial) error {
	flag, err := x.Few()
	if err != nil {
		return err
	}
	for _, flags := range [][]string{{}, {flag}} {
		var done bool
		rows, err := x.Rows(func() error {
			for range 2 {
				p, err := x.World.Start("", "greeter", bodySplit, nil)
				if err != nil {
					return err
				}
				if err := errors.Join(p.Call("go", &done), p.Wait()); err != nil {
					return err
				}
			}
			return nil
		}, flags...)
		if err != nil {
			return err
		}
		for _, r := range rows {
			x.Want(r, "name", "www.example")
			x.Want(r, "comm", "greeter")
		}
		const whole = splitHellos/2 + 1
		lost := int(x.Report.Losses[tool.LossSpan])
		switch {
		case len(flags) == 0:
			x.Fail(trial.RowCount(len(rows), 2*whole))
			x.NoneLost()
		case len(rows) > 2*whole || len(rows)+lost < 2*whole || lost > 2*splitHellos:
			x.Errorf("maps of a few entries: %d shown and %d lost of %d", len(rows), lost, 2*whole)
		case len(rows) < 2:
			x.Errorf("%d shown: connections that have ended did not make room", len(rows))
		}
	}
	return nil
}
