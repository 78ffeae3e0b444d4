// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"testing"
)

// run makes the sessions of s in w, and compares the reports of both sides with
// each other and with the kernel's counters.
func run(t *testing.T, w *World, s Sessions) TCPResult {
	t.Helper()
	tcp, err := StartTCP(w, s)
	if err != nil {
		t.Fatal(err)
	}
	s = tcp.Sessions
	before := counters(t, w, s.ClientHost)
	sbefore := counters(t, w, s.ServerHost)
	if s.Hold {
		if err := tcp.Open(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Hold && s.Network != Unix {
		moved := counters(t, w, s.ClientHost).Since(before)
		check(t, "open before the transfers", moved["TcpActiveOpens"], int64(s.Count))
		check(t, "established before the transfers", moved["TcpCurrEstab"] > 0, true)
	}
	res, err := tcp.Run()
	if err != nil {
		t.Fatal(err)
	}
	client := counters(t, w, s.ClientHost).Since(before)
	server := counters(t, w, s.ServerHost).Since(sbefore)
	n := s.Count
	check(t, "client sessions", res.Client.Count, n)
	check(t, "server sessions", res.Server.Count, n)
	opens := int64(n)
	if s.Network == Unix {
		opens = 0
	}
	check(t, "TcpActiveOpens", client["TcpActiveOpens"], opens)
	check(t, "TcpPassiveOpens", server["TcpPassiveOpens"], opens)
	check(t, "TcpAttemptFails", client["TcpAttemptFails"], 0)
	resets := int64(0)
	if s.Close == ByReset {
		resets = int64(n)
		if s.ServerHost == s.ClientHost {
			resets *= 2 // the sending side counts too
		}
	}
	check(t, "TcpEstabResets", server["TcpEstabResets"], resets)
	if !s.Uring {
		check(t, "connects", res.Client.Tally["connect"], Calls{Count: n, Messages: n})
		check(t, "accepts", res.Server.Tally["accept4"], Calls{Count: n, Messages: n})
	}
	check(t, "bytes sent", res.Client.Tally.Sum("write", "uring:send").Bytes, int64(n*s.Send))
	check(t, "bytes answered", res.Server.Tally.Sum("write", "uring:send").Bytes, int64(n*s.Recv))
	check(t, "bytes received by the server", res.Server.Tally.Sum("recvfrom", "uring:recv").Bytes, int64(n*s.Send))
	check(t, "bytes received by the client", res.Client.Tally.Sum("recvfrom", "uring:recv").Bytes, int64(n*s.Recv))
	ports := map[int]bool{}
	for _, x := range res.Client.Sessions {
		ports[x.ClientPort] = true
		if x.ConnectNS <= 0 || x.NS < x.ConnectNS || x.FirstNS > x.NS {
			t.Fatalf("stopwatch: %+v", x)
		}
	}
	for _, x := range res.Server.Sessions {
		if !ports[x.ClientPort] && !(s.Close == ByReset && x.ClientPort == 0) {
			t.Errorf("the server saw port %d, which no client had", x.ClientPort)
		}
	}
	return res
}

func TestTCP(t *testing.T) {
	for name, s := range map[string]Sessions{
		"ipv4":         {Count: 23, Send: 1000, Recv: 5000},
		"ipv6":         {Count: 23, Send: 1000, Recv: 5000, Network: TCP6},
		"server first": {Count: 7, Send: 11, Recv: 13, Close: ByServer},
		"reset":        {Count: 7, Send: 11, Recv: 13, Close: ByReset},
		"parallel":     {Count: 31, Send: 100, Recv: 100, Parallel: 5},
		"large":        {Count: 2, Send: 3 << 20, Recv: 5},
		"no payload":   {Count: 13},
		"held":         {Count: 17, Send: 100, Recv: 200, Hold: true},
		"unix":         {Count: 23, Send: 1000, Recv: 5000, Network: Unix},
		"unix, held":   {Count: 23, Send: 1000, Recv: 5000, Network: Unix, Hold: true, Close: ByServer},
		"held, ipv6":   {Count: 17, Send: 100, Recv: 200, Hold: true, Network: TCP6},
	} {
		for _, hosts := range [][]string{{"one"}, {"client", "server"}} {
			t.Run(name+", "+hosts[len(hosts)-1], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, hosts...)
				if s.Network == TCP6 && !w.Addr6("").IsValid() {
					t.Skip("IPv6 is off")
				}
				run(t, w, s)
			})
		}
	}
}

func TestTCPCallsAreExact(t *testing.T) {
	res := run(t, newWorld(t), Sessions{Count: 19, Send: 1000, Recv: 5000})
	want := Tally{
		"socket":   {Count: 19, Messages: 19},
		"connect":  {Count: 19, Messages: 19},
		"write":    {Count: 19, Messages: 19, Bytes: 19 * 1000},
		"recvfrom": {Count: 19, Messages: 19, Bytes: 19 * 5000},
		"close":    {Count: 19, Messages: 19},
	}
	check(t, "kinds of calls", len(res.Client.Tally), len(want))
	for name, c := range want {
		check(t, name, res.Client.Tally[name], c)
	}
	check(t, "receives of the server", res.Server.Tally["recvfrom"], Calls{Count: 38, Messages: 38, Bytes: 19 * 1000})
}

func TestTCPManySessions(t *testing.T) {
	w := newWorld(t)
	addrs := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"),
	}
	res := run(t, w, Sessions{Count: many(20011), Send: 1, Recv: 1, Parallel: 2, Addrs: addrs, Brief: true})
	t.Logf("%.0f sessions a second", float64(res.Client.Count)/(float64(res.Client.NS)/1e9))
}
