// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		if _, err := lab.StartDNS(w, "", "nameserver", lab.DNS{Delay: 20 * time.Millisecond}); err != nil {
			return err
		}
		p, err := lab.StartLookups(w, "", "client", resolv+"options timeout:1 attempts:1\n", "www.example.", "nx.example.", "big.example.")
		if err != nil {
			return err
		}
		var done []lab.Lookup
		return p.Call("go", &done)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "go4", Run: byGo("127.0.0.1")},
	{Name: "go6", Run: byGo("::1")},
}

const (
	late   = 50 * time.Millisecond
	resolv = "nameserver 127.0.0.1\n"
)

// byGo: a static Go program's lookups.
func byGo(server string) func(*trial.Trial) error {
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
			name := r.Get("name").S
			seen[name+" "+r.Get("type").S]++
			rcode, addrs := "NOERROR", lab.DNSAddr4.String()
			if r.Get("type").S == "AAAA" {
				addrs = lab.DNSAddr6.String()
			}
			answers := 1
			switch {
			case strings.HasPrefix(name, "nx"):
				rcode, answers, addrs = "NXDOMAIN", 0, "-"
			case strings.HasPrefix(name, "empty"):
				answers, addrs = 0, "-"
			}
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", "gopher")
			x.Want(r, "netns", p.Netns)
			x.Want(r, "proto", "udp")
			x.Want(r, "raddr", server)
			x.Want(r, "rport", 53)
			x.Want(r, "retries", 0)
			if r.Get("lport").N == 0 {
				x.Errorf("asked by no port")
			}
			x.Want(r, "rcode", rcode)
			x.Want(r, "answers", answers)
			x.Want(r, "addrs", addrs)
			if ns := int64(r.Get("latency_us").N); ns < int64(late) || ns > took[name] {
				x.Errorf("%s took %d ns, the whole lookup %d", name, ns, took[name])
			}
		}
		for _, n := range names {
			for _, t := range []string{"A", "AAAA"} {
				if k := strings.TrimSuffix(n, ".") + " " + t; seen[k] != 1 {
					x.Errorf("%d rows of %s, want 1", seen[k], k)
				}
			}
		}
		x.NoneLost()
		return nil
	}
}

// looked runs lookups while the tool is attached, until there are n rows.
func looked(x *trial.Trial, p *lab.Proc, n int, flags ...string) ([]lab.Lookup, []*row.Row, error) {
	if err := x.Attach(flags...); err != nil {
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
