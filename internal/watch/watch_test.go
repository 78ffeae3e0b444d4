// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/row/rowtest"
)

var start = time.Unix(1_700_000_000, 0)

func turns(us ...uint64) *kern.Hist {
	h := &kern.Hist{}
	for _, v := range us {
		h.Add(v)
	}
	return h
}

var (
	serviceRows = rowtest.Schema("flows", "services", "time", "side", "comm", "container", "netns", "lport", "raddr", "rport", "conns", "turns", "turn_us", "first_us",
		"connect_ms", "accept_ms", "app_ms", "unread_ms", "peer_ms", "receiving_ms", "window_ms", "buffer_ms", "loss_ms", "network_ms", "idle_ms", "closing_ms", "unknown_ms",
		"overlaps", "tx_bytes", "rx_bytes", "retrans")
	retransRows = rowtest.Schema("tcpretrans", "", "time", "comm", "netns", "cause", "state", "laddr", "lport", "raddr", "rport", "bytes", "segments", "attempts")
	connRows    = rowtest.Schema("flows", "connections", "time", "comm", "netns", "pid", "laddr", "lport", "raddr", "rport", "role", "turns", "tx_bytes", "rx_bytes")
)

// TestServices: rows of a service add up over a window, and only over it.
func TestServices(t *testing.T) {
	m := New(Options{})
	for i := range 20 {
		m.Row(rowtest.At(serviceRows, start.Add(time.Duration(i)*time.Second), map[string]any{
			"side": "in", "comm": "web", "netns": 7, "lport": 443, "conns": 3 + i%2, "turns": 10, "turn_us": turns(1000, uint64(1000*(i+1))), "app_ms": 5, "idle_ms": 100, "tx_bytes": 11,
		}))
	}
	all := m.Window(time.Minute)
	if len(all.Services) != 1 {
		t.Fatalf("%d services, want 1", len(all.Services))
	}
	s := all.Services[0]
	if s.Turns != 200 || s.Conns != 4 || s.TX != 220 || s.Turn.Count != 40 || s.Turn.Max != 20_000 || s.Parts[App] != 100 || s.Seconds != 20 {
		t.Errorf("all: %d turns, %d connections, %d bytes, %d in the histogram up to %d us, app %v ms, %d s", s.Turns, s.Conns, s.TX, s.Turn.Count, s.Turn.Max, s.Parts[App], s.Seconds)
	}
	if got := s.Parts.Share(App); got != 1 {
		t.Errorf("app is %v of the time of turns, want all: idleness is none of it", got)
	}
	if got := s.String(); got != "web :443" {
		t.Errorf("it is called %q", got)
	}
	if s := m.Window(5 * time.Second).Services[0]; s.Turns != 50 || s.Turn.Min != 1000 || s.Seconds != 5 {
		t.Errorf("five seconds: %d turns in %d s", s.Turns, s.Seconds)
	}
}

// TestSides: a retransmission is told of the port that is served or the address that is
// asked, whichever side this machine is; ports of clients do not make tallies of their own.
func TestSides(t *testing.T) {
	m := New(Options{})
	far := netip.MustParseAddr("192.0.2.9")
	m.Row(rowtest.At(serviceRows, start, map[string]any{"side": "in", "comm": "web", "netns": 7, "lport": 50000}))
	for i := range 30 {
		m.Row(rowtest.At(retransRows, start, map[string]any{"comm": "web", "netns": 7, "cause": "rto", "lport": 50000, "raddr": far, "rport": 20000 + i, "segments": 1, "bytes": 1400}))
		m.Row(rowtest.At(retransRows, start, map[string]any{"comm": "curl", "netns": 7, "cause": "fast", "lport": 40000 + i, "raddr": far, "rport": 443, "segments": 2, "bytes": 200}))
	}
	got := map[string]uint64{}
	for _, y := range m.Window(time.Minute).Tallies {
		got[y.Service().String()+" "+y.What] += y.Count
	}
	if want := map[string]uint64{"web :50000 rto": 30, "curl → 192.0.2.9:443 fast": 30}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSidesLater: a service that is told of in the next second says which side the events
// of this one are on, also where the server has the greater port.
func TestSidesLater(t *testing.T) {
	m := New(Options{})
	far := netip.MustParseAddr("192.0.2.9")
	m.Row(rowtest.At(retransRows, start, map[string]any{"comm": "web", "netns": 7, "cause": "rto", "lport": 50000, "raddr": far, "rport": 20000, "segments": 1, "bytes": 1400}))
	m.Row(rowtest.At(serviceRows, start.Add(time.Second), map[string]any{"side": "in", "comm": "web", "netns": 7, "lport": 50000}))
	if v := m.view(start.Unix(), start.Unix()); len(v.Tallies) != 1 || v.Tallies[0].Service().String() != "web :50000" {
		t.Errorf("got %v, want one of web :50000", v.Tallies[0].Service())
	}
}

// TestDeterministic: the order in which rows come does not matter.
func TestDeterministic(t *testing.T) {
	var rows []*row.Row
	for i := range 400 {
		rows = append(rows, rowtest.At(serviceRows, start.Add(time.Duration(i%20)*time.Second), map[string]any{
			"side": "in", "comm": fmt.Sprint("s", i%7), "netns": i % 3, "lport": 80, "turns": i, "turn_us": turns(uint64(i)), "app_ms": i,
		}), rowtest.At(retransRows, start.Add(time.Duration(i%20)*time.Second), map[string]any{
			"comm": fmt.Sprint("s", i%7), "netns": i % 3, "cause": "rto", "lport": 80, "raddr": netip.MustParseAddr("192.0.2.1"), "rport": 1000 + i, "segments": 1,
		}))
	}
	view := func() *View {
		m := New(Options{})
		for _, r := range rows {
			m.Row(r)
		}
		v := m.Window(time.Minute)
		v.Conns, v.Name = nil, nil
		return v
	}
	want := view()
	for range 5 {
		rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if got := view(); !reflect.DeepEqual(got, want) {
			t.Fatal("the same rows in another order make another view")
		}
	}
}

// TestBounds: a million connections and fifty thousand services are within the bounds, what
// has no room is counted, and what stays is right.
func TestBounds(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := New(Options{})
	const services, connections = 50_000, 1_000_000
	for i := range services {
		m.Row(rowtest.At(serviceRows, start.Add(time.Duration(i%60)*time.Second), map[string]any{
			"side": "in", "comm": fmt.Sprint("service", i), "netns": 7, "lport": 80, "turns": 1, "turn_us": turns(uint64(i)),
		}))
	}
	r := rowtest.At(connRows, start, map[string]any{"comm": "web", "netns": 7, "laddr": netip.MustParseAddr("192.0.2.1"), "lport": 80, "role": "server"})
	for i := range connections {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).As16()
		*r.Get("raddr") = row.Cell{Kind: row.Addr, S: string(a[:])}
		m.Row(r)
	}
	v := m.Window(5 * time.Minute)
	if len(v.Services) > 10_000 {
		t.Errorf("%d services are kept, want 10,000 at most", len(v.Services))
	}
	if lost := uint64(services - len(v.Services)); v.Bounds.Evicted+v.Bounds.Refused != lost {
		t.Errorf("%d services are missing, %d evicted and %d refused", lost, v.Bounds.Evicted, v.Bounds.Refused)
	}
	n, last := 0, netip.Addr{}
	v.Conns(func(c *Conn) {
		if n == 0 {
			last = c.Raddr
		}
		n++
	})
	if n != 100_000 || v.Bounds.Conns != connections-100_000 {
		t.Errorf("%d connections are kept and %d evicted, want 100,000 and the others", n, v.Bounds.Conns)
	}
	if want := netip.AddrFrom4([4]byte{10, 0x0f, 0x42, 0x3f}); last != want {
		t.Errorf("the last connection to say something is %v, want %v", last, want)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 150<<20 {
		t.Errorf("the model takes %d MB, want 150 at most", grown>>20)
	}
	runtime.KeepAlive(m)
}

// TestExpires: what is older than the model goes back is gone, and rows from then are counted.
func TestExpires(t *testing.T) {
	m := New(Options{Keep: 10 * time.Second})
	for i := range 60 {
		m.Row(rowtest.At(serviceRows, start.Add(time.Duration(i)*time.Second), map[string]any{"side": "in", "comm": fmt.Sprint("s", i), "lport": 80}))
	}
	m.Row(rowtest.At(serviceRows, start, map[string]any{"side": "in", "comm": "late", "lport": 80}))
	v := m.Window(time.Hour)
	if len(v.Services) != 10 || v.Services[0].Comm != "s50" || v.Bounds.Late != 1 || v.Bounds.Evicted != 0 {
		t.Errorf("%d services from %s on, %d late, %d evicted; want 10 from s50 on, 1, 0", len(v.Services), v.Services[0].Comm, v.Bounds.Late, v.Bounds.Evicted)
	}
}

// TestQuiet: a connection whose end is lost does not stay in the model as an open one. One that says
// something once in a while stays, and counters are enough to see that time has passed.
func TestQuiet(t *testing.T) {
	m := New(Options{Quiet: 10 * time.Second})
	conn := func(second, port int) {
		m.Row(rowtest.At(connRows, start.Add(time.Duration(second)*time.Second), map[string]any{"comm": "web", "netns": 7, "lport": 80, "rport": port}))
	}
	ports := func() (out []uint16) {
		m.Window(time.Minute).Conns(func(c *Conn) { out = append(out, c.Rport) })
		return out
	}
	conn(0, 1)
	conn(0, 2)
	conn(5, 2)
	conn(10, 3)
	if got := ports(); !slices.Equal(got, []uint16{3, 2, 1}) {
		t.Errorf("after 10 s: %v", got)
	}
	conn(11, 3)
	if got := ports(); !slices.Equal(got, []uint16{3, 2}) {
		t.Errorf("after 11 s: %v", got)
	}
	m.Count(start.Add(16*time.Second), CounterKey{Name: "TcpInSegs"}, 1)
	if got := ports(); !slices.Equal(got, []uint16{3}) {
		t.Errorf("after 16 s: %v", got)
	}
	m.Count(start.Add(22*time.Second), CounterKey{Name: "TcpInSegs"}, 1)
	if got := ports(); got != nil || m.conns.newest != nil || m.conns.oldest != nil || m.Window(time.Second).Bounds.Conns != 0 {
		t.Errorf("after 22 s: %v", got)
	}
	conn(23, 4)
	if got := ports(); !slices.Equal(got, []uint16{4}) {
		t.Errorf("after 23 s: %v", got)
	}
}

// TestSources: what was asked and said nothing differs from what was not asked.
func TestSources(t *testing.T) {
	m := New(Options{})
	m.Asked("dns", "")
	m.Asked("tcplife", "no BTF")
	m.End(row.End{Tool: "dns", Losses: []row.Loss{{Kind: row.RingFull, N: 3}, {Kind: row.OwnerUnknown, N: 2}}})
	m.Dropped("dns", 4)
	v := m.Window(time.Minute)
	if !v.Asked("dns") || v.Asked("tcplife") || v.Asked("flows") || v.Sources["dns"] != (Source{Name: "dns", Lost: 7, Nameless: 2}) {
		t.Errorf("sources are %+v", v.Sources)
	}
}

// TestCounters: counters of namespaces are told apart, those of skbdrop give way to a
// Sampler's, which has them all.
func TestCounters(t *testing.T) {
	rows := rowtest.Schema("skbdrop", "counters", "time", "netns", "counter", "count")
	told := rowtest.At(rows, start, map[string]any{"netns": 7, "counter": "UdpRcvbufErrors", "count": 5})
	m := New(Options{})
	m.Row(told)
	if n := m.Window(time.Minute).Grown("UdpRcvbufErrors"); n != 5 {
		t.Errorf("skbdrop tells of 5, there are %d", n)
	}
	m = New(Options{})
	m.Count(start, CounterKey{7, "UdpRcvbufErrors"}, 5)
	m.Count(start.Add(time.Second), CounterKey{8, "UdpRcvbufErrors"}, 6)
	m.Row(told)
	m.Gauge(start, CounterKey{Name: TCPMemory}, 9)
	m.Gauge(start.Add(time.Second), CounterKey{Name: TCPMemory}, 4)
	v := m.Window(time.Minute)
	if n := v.Grown("UdpRcvbufErrors"); n != 11 || v.Counters[CounterKey{8, "UdpRcvbufErrors"}] != 6 {
		t.Errorf("there are %d, of 7 and 8: %v", n, v.Counters)
	}
	if g := v.Gauges[CounterKey{Name: TCPMemory}]; g.Last != 4 || g.Most != 9 {
		t.Errorf("the gauge is %+v", g)
	}
}

// TestSampler: this machine's counters move as /proc says, and its own address is known.
func TestSampler(t *testing.T) {
	m := New(Options{})
	s := NewSampler()
	defer s.Close()
	s.Sample(m, start)
	s.Sample(m, start.Add(time.Second))
	v := m.Window(time.Minute)
	if v.Gauges[CounterKey{Name: TCPMemMost}].Last == 0 || v.Gauges[CounterKey{Name: FilesOpen}].Last == 0 {
		t.Errorf("gauges of the machine are missing: %v", v.Gauges)
	}
	if v.Local[netip.MustParseAddr("127.0.0.1")] == nil {
		t.Errorf("127.0.0.1 is not among this machine's addresses: %v", v.Local)
	}
}

// TestNames: an address goes by the name that the process was told last, else by the one
// that its network namespace was; by none where there were two at a time.
func TestNames(t *testing.T) {
	query := rowtest.Schema("dns", "", "time", "netns", "comm", "container", "raddr", "rport", "rcode", "name", "addrs")
	hello := rowtest.Schema("sni", "", "time", "netns", "comm", "container", "raddr", "rport", "name")
	a, b := netip.MustParseAddr("192.0.2.80"), netip.MustParseAddr("2001:db8::1")
	rows := []*row.Row{
		rowtest.At(query, start, map[string]any{"netns": 7, "comm": "curl", "rcode": "NOERROR", "name": "www.example.com", "addrs": "192.0.2.80,2001:db8::1"}),
		rowtest.At(query, start.Add(time.Second), map[string]any{"netns": 7, "comm": "wget", "rcode": "NOERROR", "name": "ftp.example.com", "addrs": "2001:db8::1"}),
		rowtest.At(query, start, map[string]any{"netns": 7, "comm": "curl", "rcode": "NXDOMAIN", "name": "nothing.example.com"}),
		rowtest.At(hello, start, map[string]any{"netns": 8, "comm": "curl", "raddr": a, "name": "tls.example.com"}),
		rowtest.At(hello, start.Add(time.Hour), map[string]any{"netns": 8, "comm": "curl", "raddr": a, "name": "later.example.com"}),
	}
	for _, shuffled := range []bool{false, true} {
		m := New(Options{})
		for i := range rows {
			if shuffled {
				i = len(rows) - 1 - i
			}
			m.Row(rows[i])
		}
		for _, c := range []struct {
			who  Who
			addr netip.Addr
			want string
		}{
			{Who{Comm: "curl", Netns: 7}, a, "www.example.com"},
			{Who{Comm: "curl", Netns: 7}, b, "www.example.com"},
			{Who{Comm: "wget", Netns: 7}, b, "ftp.example.com"},
			{Who{Comm: "nginx", Netns: 7}, a, "www.example.com"},
			{Who{Comm: "nginx", Netns: 7}, b, ""}, // two
			{Who{Comm: "curl", Netns: 8}, a, "later.example.com"},
			{Who{Comm: "curl", Netns: 9}, a, ""},
			{Who{Comm: "curl", Netns: 7}, netip.MustParseAddr("192.0.2.81"), ""},
		} {
			if got := m.Window(time.Hour).Name(c.who, c.addr); got != c.want {
				t.Errorf("shuffled %v: %v knows %v as %q, want %q", shuffled, c.who, c.addr, got, c.want)
			}
			m.Row(rowtest.At(connRows, start.Add(time.Hour), map[string]any{"netns": int(c.who.Netns), "comm": c.who.Comm, "raddr": c.addr, "rport": 443}))
			m.Window(time.Hour).Conns(func(x *Conn) {
				if x.Raddr == c.addr && x.Who == c.who && x.Rname != c.want {
					t.Errorf("shuffled %v: a connection of %v to %v has %q, want %q", shuffled, c.who, c.addr, x.Rname, c.want)
				}
			})
		}
	}
}

// TestManyNames: there are no more than the bound, and what was told last is among them.
func TestManyNames(t *testing.T) {
	m := New(Options{Names: 1000})
	for i := range 10_000 {
		m.names.tell(int64(i), Who{Comm: "curl", Netns: 1}, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), fmt.Sprint("host", i))
	}
	if n := len(m.names.young) + len(m.names.old); n > 1000 {
		t.Errorf("%d names, want 1000 at most", n)
	}
	if got := m.Name(Who{Comm: "curl", Netns: 1}, netip.AddrFrom4([4]byte{10, 0, 9999 >> 8, 9999 & 255})); got != "host9999" {
		t.Errorf("the last one is %q", got)
	}
}

// both hands counters to two.
type both struct{ a, b Counts }

func (t both) Count(at time.Time, k CounterKey, by int64)  { t.a.Count(at, k, by); t.b.Count(at, k, by) }
func (t both) Gauge(at time.Time, k CounterKey, v float64) { t.a.Gauge(at, k, v); t.b.Gauge(at, k, v) }
func (t both) Local(netns uint32, addrs ...netip.Addr) {
	t.a.Local(netns, addrs...)
	t.b.Local(netns, addrs...)
}

// TestCounterRows: counters that have been rows make the same model.
func TestCounterRows(t *testing.T) {
	live, again := New(Options{}), New(Options{})
	s := NewSampler()
	defer s.Close()
	rows := NewCounterRows(CounterSchema(), again)
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3 {
		rows.now = start.Add(time.Duration(i) * time.Second)
		s.Sample(both{live, rows}, rows.now)
		if _, err := c.WriteTo([]byte("x"), c.LocalAddr()); err != nil { // counters grow
			t.Fatal(err)
		}
	}
	v, w := live.Window(time.Minute), again.Window(time.Minute)
	if v.Grown("UdpOutDatagrams") < 2 {
		t.Errorf("UdpOutDatagrams grew by %d, and two were sent", v.Grown("UdpOutDatagrams"))
	}
	if !reflect.DeepEqual(v.Counters, w.Counters) || !reflect.DeepEqual(v.Gauges, w.Gauges) || !reflect.DeepEqual(v.Local, w.Local) {
		t.Errorf("by rows: %v %v %v, without: %v %v %v", w.Counters, w.Gauges, w.Local, v.Counters, v.Gauges, v.Local)
	}
	if v.Sources[Counters].Rows == 0 || w.Sources[Counters].Rows < v.Sources[Counters].Rows {
		t.Errorf("the sources are %+v and %+v", v.Sources[Counters], w.Sources[Counters])
	}
}
