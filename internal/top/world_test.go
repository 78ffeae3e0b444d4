// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/watch"
	"seine/internal/why"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

var start = time.Date(2026, 11, 16, 3, 0, 0, 0, time.UTC)

func hist(us ...uint64) watch.Hist {
	var h kern.Hist
	for _, v := range us {
		h.Add(v)
	}
	return watch.NewHist(&h)
}

func many(n int, us, slow uint64) watch.Hist {
	var h kern.Hist
	for i := range n {
		if i%50 == 0 {
			h.Add(slow)
			continue
		}
		h.Add(us)
	}
	return watch.NewHist(&h)
}

// world is a machine with all that is hard to show: names that want to move the cursor, long
// addresses, large and small numbers, and so many connections.
func world(conns int) *Snapshot {
	web := watch.Who{Comm: "nginx", Netns: 4026531840}
	shop := watch.Who{Comm: "shop", Container: "shop-7d9c", Netns: 4026532001}
	evil := watch.Who{Comm: "a\x1b[31mb\u202ec\r\n", Netns: 4026531840}
	wide := watch.Who{Comm: "名前e\u0301\u0301", Netns: 4026531840}
	v6 := netip.MustParseAddr("2001:db8:85a3:1234:5678:8a2e:370:7334")
	db := netip.MustParseAddr("10.0.0.5")
	to := start.Add(10 * time.Second)
	last := to.Unix() - 1
	services := []*watch.Service{
		{ServiceKey: watch.ServiceKey{Who: web, Lport: 443}, Conns: 212, Turns: 18_400, TX: 31_000_000, RX: 2_400_000, Turn: many(18_400, 2_000, 480_000),
			Parts: watch.Parts{watch.App: 9100, watch.Network: 400, watch.Unread: 500, watch.Idle: 90000}, Seconds: 10},
		{ServiceKey: watch.ServiceKey{Who: shop, Out: true, Raddr: db, Rport: 5432}, Conns: 12, Turns: 700, TX: 70_000, RX: 1_400_000, Turn: many(700, 9_000, 430_000),
			Parts: watch.Parts{watch.Peer: 960, watch.Receiving: 40}, Seconds: 10},
		{ServiceKey: watch.ServiceKey{Who: shop, Out: true, Raddr: v6, Rport: 65535}, Conns: 1, Turns: 3, TX: 900, RX: 12, Turn: hist(85, 90, 99), Retrans: 7,
			Parts: watch.Parts{watch.Loss: 900}, Seconds: 4},
		{ServiceKey: watch.ServiceKey{Who: evil, Lport: 31337}, Conns: 3, Turns: 2, Overlaps: 4000, TX: 9_100_000_000, RX: 3, Seconds: 10},
		{ServiceKey: watch.ServiceKey{Who: wide, Lport: 80}, Conns: 123_456, Turns: 12_345_678, TX: 1, RX: 1, Turn: many(300, 40, 50), Seconds: 10,
			Parts: watch.Parts{watch.App: 1, watch.Network: 1}},
		{ServiceKey: watch.ServiceKey{Lport: 22}, Conns: 1, Seconds: 1},
	}
	tallies := []*watch.Tally{
		{TallyKey: watch.TallyKey{Kind: watch.Connecting, What: "ECONNREFUSED", Note: "tcp", Who: shop, Raddr: db, Rport: 6379}, Out: true, Count: 13, Took: hist(40, 60, 900), PID: 4218, Seconds: 3, Last: last},
		{TallyKey: watch.TallyKey{Kind: watch.Closed, Note: "closed", Who: web, Lport: 443}, Count: 10_000, Bytes: 12_000_000, Took: hist(1, 1, 2), PID: 812, Seconds: 9, Last: last},
		{TallyKey: watch.TallyKey{Kind: watch.Closed, What: "peer", Note: "reset", Who: shop, Raddr: v6, Rport: 65535}, Out: true, Count: 2, Took: hist(60_000), PID: 4218, Seconds: 1, Last: last - 3},
		{TallyKey: watch.TallyKey{Kind: watch.Retransmit, What: "timeout", Note: "ESTABLISHED", Who: shop, Raddr: v6, Rport: 65535}, Out: true, Count: 7, PID: 4218, Seconds: 2, Last: last - 1},
		{TallyKey: watch.TallyKey{Kind: watch.Drop, What: "NO_SOCKET", Note: "udp", Who: evil, Lport: 31337, Dev: "eth0"}, Count: 101, Example: "__udp4_lib_rcv+0x1", Seconds: 10, Last: last},
		{TallyKey: watch.TallyKey{Kind: watch.Query, What: "NXDOMAIN", Note: "udp", Who: shop, Raddr: netip.MustParseAddr("10.0.0.2"), Rport: 53}, Out: true, Count: 5, Example: "db.prod\x1b]0;x\a.internal", Took: hist(5_000_000), PID: 4218, Seconds: 1, Last: last - 240},
	}
	v := &watch.View{
		From: start, To: to, Services: services, Tallies: tallies,
		Counters: map[watch.CounterKey]int64{{Netns: 1, Name: "IpExtInOctets"}: 24_000_000, {Netns: 1, Name: "IpExtOutOctets"}: 310_000_000, {Netns: 1, Name: "TcpRetransSegs"}: 7},
		Sources:  map[string]watch.Source{watch.Counters: {Name: watch.Counters, Rows: 9}, "flows": {Name: "flows", Rows: 9}, "skbdrop": {Name: "skbdrop"}, "tcplife": {Name: "tcplife", Lost: 1204}},
	}
	rnames := map[netip.Addr]string{db: "db.prod.internal", v6: "evil\x1b]0;x\a.example"}
	v.Name = func(_ watch.Who, a netip.Addr) string { return rnames[a] }
	long := *v
	long.From = start.Add(10*time.Second - Long)
	v.Conns = func(do func(*watch.Conn)) {
		for i := range conns {
			c := watch.Conn{Who: web, PID: 812, Role: "server", Last: last, WallMS: 1000, TX: uint64(i) * 7919 % 1_000_003, RX: uint64(i), SRTT: 85 + uint64(i)%1000, MinRTT: 40, Turns: uint64(i % 5),
				ConnKey: watch.ConnKey{Netns: 4026531840, Laddr: netip.MustParseAddr("10.0.0.1"), Lport: 443, Raddr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Rport: uint16(20000 + i>>16)}}
			c.Parts[watch.App] = 910
			c.Parts[watch.Idle] = 90
			switch {
			case i%11 == 1:
				c.Who, c.PID, c.Role, c.Raddr, c.Rport, c.Lport, c.Laddr = shop, 4218, "client", v6, 65535, uint16(30000+i%30000), netip.MustParseAddr("2001:db8::1")
				c.Rname, c.RTO = rnames[v6], 2
			case i%11 == 2:
				c.Last -= 65
			case i%11 == 3:
				c.Closed = true
			case i%11 == 4:
				c.Who = evil
			}
			do(&c)
		}
	}
	answer := &why.Answer{Judged: []string{"app-slow", "peer-slow", "resets"}, Unjudged: []why.Unjudged{{Class: "dns-slow", Why: "dns: this kernel cannot"}}, Findings: []*why.Finding{
		{ID: "1", Rank: 1, Class: "peer-slow", Severity: why.Bad, Confidence: why.Certain, Reason: "the request had been delivered", Title: "waits for the peer: p99 of a turn is 430 ms",
			Object:   why.Object{Name: "shop → 10.0.0.5:5432 in shop-7d9c", Who: shop, Raddr: db, Rport: 5432},
			Evidence: []why.Evidence{{What: "p99 of a turn", Value: 430, Unit: "ms", From: "flows", Window: 10}, {What: "turns", Value: 700, From: "flows", Window: 10}},
			Advice:   "look at 10.0.0.5:5432, not at shop or the network", Next: "seine flows --view connections --raddr 10.0.0.5 --rport 5432", Rule: "flows: p99 of turns above 100 ms, most of it the peer's"},
		{ID: "2", Rank: 2, Class: "app-slow", Severity: why.Warn, Confidence: why.Likely, Title: "is slow: p99 of a turn is 480 ms, 91 % of it in the application",
			Object: why.Object{Name: "nginx :443", Who: web, Lport: 443}, Advice: "profile it", Next: "seine profile --comm nginx", Causes: []int{1}},
	}}
	if conns == 0 {
		v.Services, v.Tallies, long.Tallies, answer.Findings = nil, nil, nil, nil
	}
	return &Snapshot{
		Host: "web1", At: time.Unix(last, 0), View: v, Events: &long, Answer: answer, Conns: true,
		Self:    Self{CPU: 0.012, Memory: 48_000_000, Known: true},
		History: past,
	}
}

// past is a history with all parts and with gaps.
func past(watch.ConnKey) (out []watch.Moment) {
	for i := range int64(70) {
		if i%17 == 3 {
			continue
		}
		m := watch.Moment{At: start.Unix() + 9 - i, TX: uint64(i * i), RX: uint64(70 - i)}
		m.Parts[watch.App] = float64(i)
		m.Parts[watch.Network] = 30
		m.Parts[watch.Idle] = float64(70 - i)
		if i%5 == 0 {
			m.Parts[watch.Loss] = 40
		}
		out = append([]watch.Moment{m}, out...)
	}
	return out
}

// press sends keys, each a word; what is in quotes is typed.
func press(s *State, snap *Snapshot, keys ...string) (last Action) {
	for _, k := range keys {
		text := ""
		if len([]rune(k)) == 1 {
			text = k
		}
		last = s.Key(k, text, snap)
		Draw(s, snap, 80, 24, Look{})
	}
	return last
}

func typeIn(s *State, snap *Snapshot, text string) {
	for _, r := range text {
		press(s, snap, string(r))
	}
}

func (p pane) String() string { return fmt.Sprint(p.at, p.top, p.matched, p.total) }
