// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"testing"
)

func TestPingPong(t *testing.T) {
	for name, p := range map[string]PingPong{
		"tcp":      {Requests: many(10007)},
		"parallel": {Requests: many(10007), Parallel: 3, Size: 100, Answer: 5000},
		"tcp6":     {Requests: many(1009), Network: TCP6},
		"unix":     {Requests: many(10007), Network: Unix},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "client", "server")
			r, err := StartPingPong(w, p)
			if errors.Is(err, ErrNotSupported) && !w.Addr6("").IsValid() {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := counters(t, w, "client")
			res, err := r.Run()
			if err != nil {
				t.Fatal(err)
			}
			moved := counters(t, w, "client").Since(before)
			check(t, "asked", res.Client.Requests, p.Requests)
			check(t, "answered", res.Server.Requests, p.Requests)
			// Each request and each answer is at least one segment.
			if n := moved["TcpOutSegs"]; r.PingPong.Network != Unix && n < int64(p.Requests) {
				t.Errorf("%d segments for %d requests", n, p.Requests)
			}
			check(t, "connections opened meanwhile", moved["TcpActiveOpens"], 0)
			if cpu := res.Client.CPU(); cpu <= 0 || int64(cpu) > 8*res.Client.NS {
				t.Errorf("CPU time %v in %d ns", cpu, res.Client.NS)
			}
			t.Logf("%.0f requests a second", float64(p.Requests)/(float64(res.Client.NS)/1e9))
		})
	}
}

func TestPingPongUntilTold(t *testing.T) {
	w := newWorld(t)
	r, err := StartPingPong(w, PingPong{Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(); err == nil {
		t.Error("a load without an end was run to its end")
	}
	before := counters(t, w, "")
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	for counters(t, w, "").Since(before)["TcpOutSegs"] < 1000 { // until it is under way
		continue
	}
	res, err := r.End()
	if err != nil {
		t.Fatal(err)
	}
	check(t, "answered", res.Server.Requests, res.Client.Requests)
	if res.Client.Requests < 500 {
		t.Errorf("%d requests", res.Client.Requests)
	}
}

func TestFlood(t *testing.T) {
	for name, f := range map[string]Flood{
		"read": {Count: many(20011)},
		"ipv6": {Count: 1009, Network: UDP6, Size: 1000},
		"idle": {Count: 1009, Size: 100, RcvBuf: 4096, Idle: true},
	} {
		for _, hosts := range [][]string{{"one"}, {"client", "server"}} {
			t.Run(name+", "+hosts[len(hosts)-1], func(t *testing.T) {
				w := newWorld(t, hosts...)
				x, err := StartFlood(w, f)
				if errors.Is(err, ErrNotSupported) && !w.Addr6("").IsValid() {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				client, server := x.Flood.ClientHost, x.Flood.ServerHost
				before, sbefore := counters(t, w, client), counters(t, w, server)
				r, err := x.Run()
				if err != nil {
					t.Fatal(err)
				}
				out, in := counters(t, w, client).Since(before), counters(t, w, server).Since(sbefore)
				udp := "Udp"
				if f.Network == UDP6 {
					udp = "Udp6"
				}
				check(t, "sent", r.Sent, f.Count)
				check(t, "OutDatagrams", out[udp+"OutDatagrams"], int64(f.Count))
				check(t, "InDatagrams", in[udp+"InDatagrams"], int64(r.Received))
				check(t, "RcvbufErrors", in[udp+"RcvbufErrors"], int64(r.Dropped))
				check(t, "all accounted for", r.Received+r.Dropped+r.Missing, f.Count)
				if f.Idle && (r.Dropped == 0 || r.Received == 0) {
					t.Errorf("a reader that does not read: %+v", r)
				}
				t.Logf("%+v", r)
			})
		}
	}
}

func TestMPTCP(t *testing.T) {
	if err := MPTCPSupported(); errors.Is(err, ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, n := range []Network{MPTCP4, MPTCP6} {
		t.Run(string(n), func(t *testing.T) {
			w := newWorld(t, "client", "server")
			if !w.Addr("", n).IsValid() {
				t.Skip("IPv6 is off")
			}
			before := counters(t, w, "server")
			run(t, w, Sessions{Network: n, Count: 13, Send: 1000, Recv: 3000})
			moved := counters(t, w, "server").Since(before)
			check(t, "MPCapableSYNRX", moved["MPTcpExtMPCapableSYNRX"], 13)
		})
	}
}
