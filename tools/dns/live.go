// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// giveUp is the timeout of queries without an answer. It is long enough for an
// answer that comes while the machine stands still, and shorter than programs wait.
const giveUp = "--timeout=2s"

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodySplit, ask)
	return []trial.Case{
		{Name: "pending", Run: pending},
		{Name: "stream", Run: stream},
		{Name: "dnsmasq", Run: againstLog("")},
		{Name: "dnsmasq-tcp", Run: againstLog("options use-vc\n")},
		{Name: "resolved", Hosts: lab.TwoHosts, Run: resolved},
		{Name: "retries", Run: retries},
		{Name: "unconnected", Run: unconnected},
		{Name: "redirected", Run: redirected},
		{Name: "truncated", Run: overTCP},
		{Name: "second-server", Run: secondServer},
		{Name: "malformed", Run: malformed},
		{Name: "filters", Run: filters},
		{Name: "few", Run: few},
	}
}

// tally counts rows by these columns.
func tally(rows []*row.Row, ids ...string) map[string]int {
	out := map[string]int{}
	for _, r := range rows {
		var key []string
		for _, id := range ids {
			key = append(key, trial.Value(r.Get(id)))
		}
		out[strings.Join(key, " ")]++
	}
	return out
}

func wantTally(x *trial.Trial, got map[string]int, want map[string]int) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.Errorf("rows %v, want %v", got, want)
	}
}

// unconnected: musl asks all servers at once, from one socket, with the same
// numbers.
func unconnected(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Addr: "127.0.0.1"}); err != nil {
		return err
	}
	if _, err := lab.StartDNS(x.World, "", "deaf", lab.DNS{Addr: "127.0.0.3", Delay: time.Hour}); err != nil {
		return err
	}
	return byMusl(x, "nameserver 127.0.0.3\nnameserver 127.0.0.1\n", map[string]int{
		"127.0.0.1 A NOERROR resolve-musl": 1, "127.0.0.1 AAAA NOERROR resolve-musl": 1,
		"127.0.0.3 A TIMEOUT resolve-musl": 1, "127.0.0.3 AAAA TIMEOUT resolve-musl": 1,
	})
}

// redirected: netfilter redirects packets to port 53 to a server on another port,
// and the socket is not connected. The row has the server that the program asked.
func redirected(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Addr: "127.0.0.1", Port: 5301}); err != nil {
		return err
	}
	err := x.World.Redirect("", unix.IPPROTO_UDP, 53, 5301)
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	return byMusl(x, "nameserver 127.0.0.11\n", map[string]int{
		"127.0.0.11 A NOERROR resolve-musl": 1, "127.0.0.11 AAAA NOERROR resolve-musl": 1,
	})
}

func byMusl(x *trial.Trial, resolv string, want map[string]int) error {
	p, err := start(x, lab.Musl, resolv, "getaddrinfo", "a.example")
	if err != nil {
		return err
	}
	if err := x.Attach(giveUp); err != nil {
		return err
	}
	if _, err := lab.Resolve(p, 1); err != nil {
		return err
	}
	x.Await(len(want))
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "raddr", "type", "rcode", "comm"), want)
	return nil
}

// start starts a program of a C library that uses the name servers of resolv.conf.
func start(x *trial.Trial, l lab.LibC, resolv string, calls ...string) (*lab.Proc, error) {
	p, err := l.Start(x.World, map[string]string{"resolv.conf": resolv, "nsswitch.conf": "hosts: dns\n"}, calls...)
	if errors.Is(err, lab.ErrNotSupported) {
		return nil, trial.Skip("%v", err)
	}
	return p, err
}

// overTCP: the program asks again over TCP if an answer is too long.
func overTCP(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	p, err := lab.StartLookups(x.World, "", "gopher", resolv+"options attempts:1\n", "big.example.")
	if err != nil {
		return err
	}
	got, rows, err := looked(x, p, 4)
	if err != nil {
		return err
	}
	if len(got[0].Addrs) != 2 {
		x.Errorf("%d addresses, want 2", len(got[0].Addrs))
	}
	wantTally(x, tally(rows, "proto", "type", "rcode", "answers"), map[string]int{
		"udp A TRUNCATED 0": 1, "udp AAAA TRUNCATED 0": 1, "tcp A NOERROR 1": 1, "tcp AAAA NOERROR 1": 1,
	})
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
	}
	return nil
}

// secondServer: the first server does not answer, the second one does.
func secondServer(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Addr: "127.0.0.1"}); err != nil {
		return err
	}
	if _, err := lab.StartDNS(x.World, "", "deaf", lab.DNS{Addr: "127.0.0.2", Delay: time.Hour}); err != nil {
		return err
	}
	p, err := lab.StartLookups(x.World, "", "gopher", "nameserver 127.0.0.2\nnameserver 127.0.0.1\noptions timeout:4 attempts:1\n", "a.example.")
	if err != nil {
		return err
	}
	_, rows, err := looked(x, p, 4, giveUp)
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "raddr", "type", "rcode", "answers", "pid"), map[string]int{
		fmt.Sprintf("127.0.0.2 A TIMEOUT - %d", p.PID): 1, fmt.Sprintf("127.0.0.2 AAAA TIMEOUT - %d", p.PID): 1,
		fmt.Sprintf("127.0.0.1 A NOERROR 1 %d", p.PID): 1, fmt.Sprintf("127.0.0.1 AAAA NOERROR 1 %d", p.PID): 1,
	})
	for _, r := range rows {
		if unanswered := r.Get("rcode").S == timeout; unanswered != (r.Get("latency_us").Kind == row.Null) {
			x.Errorf("latency of %s", trial.Dump(r))
		}
		x.Want(r, "family", "inet")
		x.Want(r, "laddr", "127.0.0.1")
	}
	return nil
}

// pending: queries that have neither an answer nor timed out.
func pending(x *trial.Trial) error {
	server, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{})
	if err != nil {
		return err
	}
	p, err := lab.StartLookups(x.World, "", "gopher", resolv+"options timeout:30 attempts:1\n", "mute.example.")
	if err != nil {
		return err
	}
	rows, err := x.Unanswered(p, server, 2, "latency_us", "--timeout=1m")
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "rcode", "-")
		x.Want(r, "answers", "-")
		x.Want(r, "raddr", "127.0.0.1")
		x.Want(r, "family", "inet")
	}
	wantTally(x, tally(rows, "name", "type"), map[string]int{"mute.example A": 1, "mute.example AAAA": 1})
	return nil
}

// filters: by port that asked, by server, by protocol.
func filters(x *trial.Trial) error {
	for _, a := range []string{"127.0.0.1", "127.0.0.2"} {
		if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Addr: a}); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		flag string
		want int
	}{{"--raddr=127.0.0.2", 3}, {"--proto=tcp", 2}, {"--rport=54", 0}, {"--comm=first", 6}} {
		first, err := lab.StartLookups(x.World, "", "first", resolv, "a.example.", "big.example.")
		if err != nil {
			return err
		}
		second, err := lab.StartDNSWire(x.World, "", "second", lab.DNSWire{
			Network: "udp", Server: "127.0.0.2:53", Answers: []uint16{1, 2, 3},
			Writes: [][]byte{lab.DNSQuery(1, "b.example"), lab.DNSQuery(2, "c.example"), lab.DNSQuery(3, "d.example")},
		})
		if err != nil {
			return err
		}
		if err := x.Attach(c.flag); err != nil {
			return err
		}
		var got []lab.Lookup
		var port string
		if err := errors.Join(first.Call("go", &got), second.Call("go", &port)); err != nil {
			return err
		}
		x.Await(c.want)
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		if len(rows) != c.want {
			x.Errorf("%s: %d rows, want %d", c.flag, len(rows), c.want)
		}
	}
	return nil
}

const bodySplit = "dns-split"

// splitQueries is how many connections ask at the same time.
const splitQueries = 23

// ask opens connections to the server, sends the length of a query by each, then the
// query by each, and reads the answers.
func ask(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	var conns []net.Conn
	for range splitQueries {
		conn, err := net.Dial("tcp", "127.0.0.1:53")
		if err != nil {
			return err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	query := func(i int) []byte { return lab.DNSQuery(uint16(i+1), fmt.Sprintf("a%d.example", i)) }
	for i, conn := range conns {
		if _, err := conn.Write(binary.BigEndian.AppendUint16(nil, uint16(len(query(i))))); err != nil {
			return err
		}
	}
	for i, conn := range conns {
		if _, err := conn.Write(query(i)); err != nil {
			return err
		}
	}
	for _, conn := range conns {
		var n [2]byte
		if _, err := io.ReadFull(conn, n[:]); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, make([]byte, binary.BigEndian.Uint16(n[:]))); err != nil {
			return err
		}
	}
	return c.Report(true)
}

// few: more connections ask than the map has room for. Each query is shown or counted,
// and connections that end free their entry.
func few(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{}); err != nil {
		return err
	}
	flag, err := x.Few()
	if err != nil {
		return err
	}
	for _, flags := range [][]string{{}, {flag}} {
		var done bool
		rows, err := x.Rows(func() error {
			for range 2 {
				p, err := x.World.Start("", "asker", bodySplit, nil)
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
			x.Want(r, "rcode", "NOERROR")
			x.Want(r, "type", "A")
		}
		lost := int(x.Report.Losses[tool.LossSpan])
		switch {
		case len(flags) == 0:
			x.Fail(trial.RowCount(len(rows), 2*splitQueries))
			x.NoneLost()
		// If a connection is not in the map, its length field and its
		// query are each counted.
		case len(rows) > 2*splitQueries || len(rows)+lost < 2*splitQueries || lost > 4*splitQueries:
			x.Errorf("maps of a few entries: %d shown and %d lost of %d", len(rows), lost, 2*splitQueries)
		case len(rows) < 2:
			x.Errorf("%d shown: connections that have ended did not make room", len(rows))
		}
	}
	return nil
}
