// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"fmt"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// packets: a static Go program's lookups.
func packets(server string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
			return err
		}
		var names []string
		for i := range 9 {
			names = append(names, fmt.Sprintf("a%d.example.", i))
		}
		names = append(names, "nx.example.", "empty.example.")
		p, err := lab.StartLookups(x.World, "", "gopher", "nameserver "+server+"\noptions attempts:1\n", names...)
		if err != nil {
			return err
		}
		got, rows, err := looked(x, p, 2*len(names))
		if err != nil {
			return err
		}
		took := map[string]int64{}
		for _, l := range got {
			took[strings.TrimSuffix(l.Host, ".")] = l.NS
		}
		seen := map[string]int{}
		for _, r := range rows {
			host := r.Get("host").S
			seen[host+" "+r.Get("type").S]++
			result, records := "NOERROR", 1
			switch {
			case strings.HasPrefix(host, "nx"):
				result, records = "NXDOMAIN", 0
			case strings.HasPrefix(host, "empty"):
				records = 0
			}
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", "gopher")
			x.Want(r, "netns", p.Netns)
			x.Want(r, "proto", "udp")
			x.Want(r, "raddr", server)
			x.Want(r, "rport", 53)
			if r.Get("lport").N == 0 {
				x.Errorf("asked by no port")
			}
			x.Want(r, "result", result)
			x.Want(r, "answers", records)
			if ns := int64(r.Get("latency_us").N); ns < int64(late) || ns > took[host] {
				x.Errorf("%s took %d ns, the whole lookup %d", host, ns, took[host])
			}
		}
		for _, n := range names {
			for _, t := range []string{"A", "AAAA"} {
				if k := strings.TrimSuffix(n, ".") + " " + t; seen[k] != 1 {
					x.Errorf("%d rows of %s, want 1", seen[k], k)
				}
			}
		}
		return nil
	}
}

// looked runs lookups under the tool's eyes until there are n rows.
func looked(x *trial.Trial, p *lab.Proc, n int, flags ...string) ([]lab.Lookup, []*row.Row, error) {
	x.Way = "" // packets have one
	if err := x.Attach(append(flags, "--packets")...); err != nil {
		return nil, nil, err
	}
	var got []lab.Lookup
	if err := p.Call("go", &got); err != nil {
		return nil, nil, err
	}
	x.Await(n)
	rows, err := x.Detach()
	if err != nil {
		return nil, nil, err
	}
	x.Fail(trial.RowCount(len(rows), n))
	return got, rows, nil
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
	p, err := musl.start(x, map[string]string{"resolv.conf": "nameserver 127.0.0.3\nnameserver 127.0.0.1\n"}, "getaddrinfo", "a.example")
	if err != nil {
		return err
	}
	x.Way = ""
	if err := x.Attach("--packets", "--timeout=500ms"); err != nil {
		return err
	}
	if _, err := run(p, 1); err != nil {
		return err
	}
	x.Await(4)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "raddr", "type", "result", "comm"), map[string]int{
		"127.0.0.1 A NOERROR resolve-musl": 1, "127.0.0.1 AAAA NOERROR resolve-musl": 1,
		"127.0.0.3 A TIMEOUT resolve-musl": 1, "127.0.0.3 AAAA TIMEOUT resolve-musl": 1,
	})
	return nil
}

// overTCP: answers that are too long are asked for again over TCP.
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
	wantTally(x, tally(rows, "proto", "type", "result", "answers"), map[string]int{
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
	p, err := lab.StartLookups(x.World, "", "gopher", "nameserver 127.0.0.2\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n", "a.example.")
	if err != nil {
		return err
	}
	_, rows, err := looked(x, p, 4, "--timeout=500ms")
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "raddr", "type", "result", "answers", "pid"), map[string]int{
		fmt.Sprintf("127.0.0.2 A TIMEOUT - %d", p.PID): 1, fmt.Sprintf("127.0.0.2 AAAA TIMEOUT - %d", p.PID): 1,
		fmt.Sprintf("127.0.0.1 A NOERROR 1 %d", p.PID): 1, fmt.Sprintf("127.0.0.1 AAAA NOERROR 1 %d", p.PID): 1,
	})
	for _, r := range rows {
		if unanswered := r.Get("result").S == "TIMEOUT"; unanswered != (r.Get("latency_us").Kind == row.Null) {
			x.Errorf("latency of %s", trial.Dump(r))
		}
	}
	return nil
}

// askedAgain: glibc asks a server that does not answer twice, with the same
// numbers from the same port.
func askedAgain(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	files := map[string]string{"resolv.conf": resolv + "options timeout:1 attempts:2\n", "nsswitch.conf": etc["nsswitch.conf"]}
	p, err := glibc.start(x, files, "getaddrinfo", "mute.example")
	if err != nil {
		return err
	}
	x.Way = ""
	if err := x.Attach("--packets", "--timeout=2s"); err != nil {
		return err
	}
	if _, err := run(p, 1); err != nil {
		return err
	}
	x.Await(4)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	wantTally(x, tally(rows, "host", "type", "result"), map[string]int{"mute.example A TIMEOUT": 2, "mute.example AAAA TIMEOUT": 2})
	return nil
}
