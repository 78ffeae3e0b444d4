// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// againstLog: clients of three kinds ask dnsmasq. Its log has the same queries, from the
// same ports, with the same answers.
func againstLog(options string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		server, err := dnsmasq(x)
		if err != nil {
			return err
		}
		defer server.Stop()
		procs, n, err := clients(x, resolv+options, options == "")
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		for _, p := range procs {
			if err := p.run(); err != nil {
				return err
			}
		}
		x.Await(n)
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		x.Fail(trial.RowCount(len(rows), n))
		agrees(x, rows, server.Log())
		asked := map[string]int{}
		for _, r := range rows {
			asked[trial.Value(r.Get("comm"))+fmt.Sprint(r.Get("pid").N)]++
			x.Want(r, "proto", map[bool]string{true: "udp", false: "tcp"}[options == ""])
		}
		for _, p := range procs {
			if got := asked[p.proc.Comm+fmt.Sprint(p.proc.PID)]; got != p.queries {
				x.Errorf("%d queries by %s, want %d", got, p.proc.Comm, p.queries)
			}
		}
		x.NoneLost()
		return nil
	}
}

func dnsmasq(x *trial.Trial) (*lab.Dnsmasq, error) {
	d, err := lab.StartDnsmasq(x.World, "", lab.Dnsmasq{
		Port: 53, Dead: "dead.test", DeadServer: "127.0.0.9#5399",
		Names: map[string]netip.Addr{"www.example": netip.MustParseAddr("192.0.2.7"), "six.example": netip.MustParseAddr("2001:db8::7")},
	})
	if errors.Is(err, lab.ErrNotSupported) {
		return nil, trial.Skip("%v", err)
	}
	return d, err
}

// agrees compares rows with the server's log. A query that was sent again is one
// row, but has one line in the log for each time.
func agrees(x *trial.Trial, rows []*row.Row, log []lab.DNSAsked) {
	if len(log) == 0 {
		x.Errorf("the server's log has no query")
	}
	want, got := map[string]int{}, map[string]int{}
	for _, a := range log {
		rcode, addrs := "NOERROR", "-"
		switch {
		case a.Answer == "":
			rcode = timeout
		case a.Answer == "NXDOMAIN":
			rcode = a.Answer
		default:
			if ip, err := netip.ParseAddr(a.Answer); err == nil {
				addrs = ip.String()
			}
		}
		want[fmt.Sprintf("%s %s from %d: %s %s", a.Type, a.Name, a.Port, rcode, addrs)]++
	}
	for _, r := range rows {
		key := fmt.Sprintf("%s %s from %d: %s %s", trial.Value(r.Get("type")), trial.Value(r.Get("name")), r.Get("lport").N,
			trial.Value(r.Get("rcode")), trial.Value(r.Get("addrs")))
		got[key] += 1 + int(r.Get("retries").N)
	}
	for key := range want {
		if got[key] != want[key] {
			x.Errorf("%s: sent %d times, and the server's log has it %d times", key, got[key], want[key])
		}
	}
	for key := range got {
		if want[key] == 0 {
			x.Errorf("%s is not in the server's log: %v", key, want)
		}
	}
}

// A client is a process that looks up names, and how many queries that takes.
type client struct {
	proc    *lab.Proc
	queries int
	run     func() error
}

// clients are a program of glibc, one of Go and, if it is to use UDP, one of musl.
func clients(x *trial.Trial, resolv string, musl bool) (out []client, queries int, err error) {
	add := func(p *lab.Proc, queries int, run func() error) {
		out = append(out, client{p, queries, run})
	}
	calls := []string{"getaddrinfo", "www.example", "getaddrinfo", "six.example", "gethostbyname", "nobody.example", "gethostbyaddr", "192.0.2.7"}
	libs := []lab.LibC{lab.Glibc}
	if musl {
		libs = append(libs, lab.Musl)
	}
	for _, l := range libs {
		p, err := start(x, l, resolv, calls...)
		if err != nil {
			return nil, 0, err
		}
		add(p, 2+2+1+1, func() error {
			_, err := lab.Resolve(p, len(calls)/2)
			return err
		})
	}
	p, err := lab.StartLookups(x.World, "", "gopher", resolv, "www.example.", "six.example.", "nobody.example.")
	if err != nil {
		return nil, 0, err
	}
	add(p, 6, func() error {
		var got []lab.Lookup
		return p.Call("go", &got)
	})
	for _, c := range out {
		queries += c.queries
	}
	return out, queries, nil
}

// resolved: a program asks systemd-resolved, which asks dnsmasq. Both queries are rows,
// each with its own process and server. dnsmasq's log has the queries of
// systemd-resolved.
func resolved(x *trial.Trial) error {
	server, err := dnsmasq(x)
	if err != nil {
		return err
	}
	defer server.Stop()
	r, err := lab.StartResolved(x.World, "", "127.0.0.1")
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	defer r.Kill()
	p, err := lab.StartLookups(x.World, "", "gopher", "nameserver "+lab.ResolvedStub+"\n", "www.example.", "six.example.")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	var got []lab.Lookup
	if err := p.Call("go", &got); err != nil {
		return err
	}
	x.Await(8)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), 8))
	agrees(x, slices.DeleteFunc(slices.Clone(rows), func(r *row.Row) bool { return r.Get("raddr").IP().String() == lab.ResolvedStub }), server.Log())
	wantTally(x, tally(rows, "pid", "comm", "raddr", "rcode"), map[string]int{
		fmt.Sprintf("%d gopher %s NOERROR", p.PID, lab.ResolvedStub): 4, fmt.Sprintf("%d systemd-resolve 127.0.0.1 NOERROR", r.PID): 4,
	})
	return nil
}

// retries: glibc asks a server that does not answer twice, with the same numbers from
// the same port. That is one row for each of its two questions; the server's log has
// each of them twice.
// Where there is no dnsmasq, a server of our own keeps no log.
func retries(x *trial.Trial) error {
	server, err := dnsmasq(x)
	if errors.Is(err, trial.ErrSkip) {
		_, err = lab.StartDNS(x.World, "", "nameserver", lab.DNS{})
	} else if err == nil {
		defer server.Stop()
	}
	if err != nil {
		return err
	}
	p, err := start(x, lab.Glibc, resolv+"options timeout:1 attempts:2\n", "getaddrinfo", "mute.dead.test")
	if err != nil {
		return err
	}
	if err := x.Attach("--timeout=3s"); err != nil {
		return err
	}
	if _, err := lab.Resolve(p, 1); err != nil {
		return err
	}
	x.Await(2)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "name", "type", "rcode", "retries", "pid"), map[string]int{
		fmt.Sprintf("mute.dead.test A TIMEOUT 1 %d", p.PID): 1, fmt.Sprintf("mute.dead.test AAAA TIMEOUT 1 %d", p.PID): 1,
	})
	if server != nil {
		agrees(x, rows, server.Log())
	}
	return nil
}
