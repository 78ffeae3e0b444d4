// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/why"
	"seine/internal/words"
	"seine/tools"
)

var start = time.Unix(1_700_000_000, 0)

// cells are values by column, in the unit that the id names.
type cells map[string]any

// world feeds a model with rows of the schemas that tools have.
type world struct {
	t *testing.T
	m *watch.Model
}

// asked are the sources of 'seine why'.
var asked = []string{"flows", "tcpretrans", "soconnect", "tcpsynbl", "soaccept", "tcplife", "dns", "skbdrop", watch.Counters}

func newWorld(t *testing.T) *world {
	w := &world{t, watch.New(watch.Options{})}
	for _, s := range asked {
		w.m.Asked(s, "")
	}
	// Ten seconds of a machine that does something.
	for i := range 10 {
		w.at(i, "flows", "services", cells{"side": "in", "comm": "well", "netns": 1, "lport": 22, "conns": 1, "turns": 5, "turn_us": spread(5, time.Millisecond), "app_ms": 5})
	}
	return w
}

func schemaOf(t *testing.T, name, view string) *row.Schema {
	t.Helper()
	i := slices.IndexFunc(tools.All, func(o *tool.Tool) bool { return o.Name == name })
	if i < 0 {
		t.Fatalf("there is no tool %s", name)
	}
	schemas, err := tools.All[i].Schemas(tools.All[i].Views(tools.All[i].NewConfig()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas {
		if s.View == view {
			return s
		}
	}
	t.Fatalf("%s has no view %q", name, view)
	return nil
}

// at adds a row of a second.
func (w *world) at(second int, name, view string, c cells) {
	w.t.Helper()
	s := schemaOf(w.t, name, view)
	r := s.New()
	if r.Get("time") == nil { // what a Snapshot has no column for, the engine adds
		w.t.Fatalf("%s %s has no time", name, view)
	}
	*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(start.Add(time.Duration(second) * time.Second).UnixNano())}
	for id, v := range c {
		to := r.Get(id)
		if to == nil {
			w.t.Fatalf("%s %s has no column %s", name, view, id)
		}
		switch v := v.(type) {
		case int:
			to.SetUint(uint64(v) * max(s.Columns[s.Index(id)].Div, 1))
		case string:
			if a, err := netip.ParseAddr(v); err == nil {
				b := a.As16()
				*to = row.Cell{Kind: row.Addr, S: string(b[:])}
			} else {
				to.SetText(v)
			}
		case bool:
			*to = row.Cell{Kind: row.Bool, N: 1}
		case *kern.Hist:
			*to = row.Cell{Kind: row.Object, Ref: v}
		default:
			w.t.Fatalf("%s: %T", id, v)
		}
	}
	if err := w.m.Row(r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) grows(netns uint32, name string, by int64) {
	w.m.Count(start.Add(5*time.Second), watch.CounterKey{Netns: netns, Name: name}, by)
}

func (w *world) gauge(netns uint32, name string, value float64) {
	w.m.Gauge(start.Add(5*time.Second), watch.CounterKey{Netns: netns, Name: name}, value)
}

// spread is n turns of one duration.
func spread(n int, took time.Duration) *kern.Hist {
	h := &kern.Hist{}
	for range n {
		h.Add(uint64(took.Microseconds()))
	}
	return h
}

// serves adds a second of a service on port 443. Its turns have one duration,
// all of it in one part.
func (w *world) serves(n int, took time.Duration, part string, more cells) {
	ms := int(took.Milliseconds()) * n
	c := cells{"side": "in", "comm": "web", "netns": 1, "lport": 443, "conns": 3, "turns": n, "turn_us": spread(n, took), part + "_ms": ms, "idle_ms": 10 * ms, "tx_bytes": 1000 * n}
	for id, v := range more {
		c[id] = v
	}
	w.at(5, "flows", "services", c)
}

// asks is serves for a client.
func (w *world) asks(n int, took time.Duration, part string, more cells) {
	ms := int(took.Milliseconds()) * n
	c := cells{"side": "out", "comm": "curl", "netns": 1, "raddr": "192.0.2.5", "rport": 5432, "conns": 3, "turns": n, "turn_us": spread(n, took), part + "_ms": ms, "tx_bytes": 1000 * n}
	for id, v := range more {
		c[id] = v
	}
	w.at(5, "flows", "services", c)
}

// times calls f n times.
func times(n int, f func()) {
	for range n {
		f()
	}
}

// A made case is a fault of a class, and a similar view that must not be one.
type madeCase struct {
	class, object string
	severity      why.Severity
	fault         func(w *world)
	well          func(w *world)
}

const ms = time.Millisecond

func (w *world) resends(n int, cause, state string, bytes, attempts int) {
	times(n, func() {
		w.at(5, "tcpretrans", "", cells{"comm": "web", "netns": 1, "cause": cause, "state": state, "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "segments": 1, "bytes": bytes, "attempts": attempts})
	})
}

func (w *world) connects(n int, errno string, more cells) {
	times(n, func() {
		c := cells{"comm": "curl", "netns": 1, "raddr": "192.0.2.5", "rport": 5432, "proto": "tcp", "latency_us": 1000}
		if errno != "" {
			c["errno"] = errno
		}
		for id, v := range more {
			c[id] = v
		}
		w.at(5, "soconnect", "", c)
	})
}

// noSockets is calls of socket that failed.
func (w *world) noSockets(n int, errno, proto string) {
	times(n, func() {
		w.at(5, "soconnect", "", cells{"comm": "curl", "netns": 1, "family": "inet", "proto": proto, "errno": errno, "via": "socket"})
	})
}

func (w *world) ends(n int, by string) {
	times(n, func() {
		c := cells{"comm": "web", "netns": 1, "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "established_ms": 30}
		if by != "" {
			c["reset_by"] = by
		}
		w.at(5, "tcplife", "", c)
	})
}

func (w *world) queries(n int, rcode string, took time.Duration) {
	times(n, func() {
		c := cells{"comm": "curl", "netns": 1, "raddr": "192.0.2.53", "rport": 53, "rcode": rcode, "name": "example.com"}
		if rcode != "TIMEOUT" {
			c["latency_us"] = int(took.Microseconds())
		}
		w.at(5, "dns", "", c)
	})
}

func (w *world) drops(n int, reason, proto string, more cells) {
	c := cells{"reason": reason, "proto": proto, "netns": 1, "count": n}
	for id, v := range more {
		c[id] = v
	}
	w.at(5, "skbdrop", "drops", c)
}

var madeCases = []madeCase{
	{"app-slow", "web :443", why.Warn, func(w *world) { w.serves(50, 300*ms, "app", nil) }, func(w *world) { w.serves(50, 60*ms, "app", nil); w.serves(19, 300*ms, "app", cells{"comm": "few"}) }},
	{"reads-late", "web :443", why.Bad, func(w *world) { w.serves(50, 700*ms, "unread", nil) }, func(w *world) { w.serves(50, 60*ms, "unread", nil) }},
	{"peer-slow", "curl → 192.0.2.5:5432", why.Warn, func(w *world) { w.asks(50, 300*ms, "peer", nil) }, func(w *world) {
		w.asks(50, 60*ms, "peer", nil)
		w.asks(50, 900*ms, "peer", cells{"comm": "fetch", "first_us": spread(50, 5*ms)}) // a download
	}},
	{"peer-window", "web :443", why.Warn, func(w *world) { w.serves(50, 300*ms, "window", nil) }, func(w *world) {
		w.at(5, "flows", "services", cells{"side": "in", "comm": "bulk", "netns": 1, "lport": 80, "window_ms": 5000, "tx_bytes": 1 << 30}) // its window was never probed
	}},
	{"peer-window", "web :443", why.Warn, func(w *world) { // by a sender that paces
		w.serves(50, 300*ms, "window", cells{"window_ms": 6000, "network_ms": 9000})
	}, func(w *world) { w.serves(50, 60*ms, "window", cells{"window_ms": 1200, "network_ms": 1800}) }},
	{"send-buffer", "web :443", why.Warn, func(w *world) { w.serves(50, 300*ms, "buffer", nil) }, func(w *world) { w.serves(50, 60*ms, "buffer", nil) }},
	{"path", "web :443", why.Warn, func(w *world) {
		w.serves(50, 300*ms, "network", cells{"tx_bytes": 50_000_000, "network_ms": 12_000, "window_ms": 3000})
	}, func(w *world) { w.serves(50, 60*ms, "network", cells{"tx_bytes": 50_000_000}) }},
	{"loss-fast", "web :443", why.Warn, func(w *world) { w.resends(30, "fast", "ESTABLISHED", 1448, 0) }, func(w *world) {
		w.resends(9, "fast", "ESTABLISHED", 1448, 0)
		w.at(5, "flows", "services", cells{"side": "in", "comm": "web", "netns": 2, "lport": 443, "conns": 1, "turns": 1, "tx_bytes": 200_000_000})
		times(30, func() { // of 200 MB
			w.at(5, "tcpretrans", "", cells{"comm": "web", "netns": 2, "cause": "fast", "state": "ESTABLISHED", "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "segments": 4, "bytes": 5792})
		})
		w.serves(1, 2*time.Second, "network", cells{"netns": 3}) // resent at once, which takes no time
		times(30, func() {
			w.at(5, "tcpretrans", "", cells{"comm": "web", "netns": 3, "cause": "fast", "state": "ESTABLISHED", "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "segments": 4, "bytes": 5792})
		})
	}},
	{"loss-tail", "web :443", why.Warn, func(w *world) {
		w.resends(10, "tlp", "ESTABLISHED", 100, 0)
		w.resends(12, "fast", "ESTABLISHED", 100, 0)
	}, func(w *world) { w.resends(9, "tlp", "ESTABLISHED", 100, 0) }},
	{"loss-timeout", "web :443", why.Bad, func(w *world) {
		w.resends(4, "rto", "ESTABLISHED", 100, 2)
		w.serves(30, 400*ms, "loss", nil)
	}, func(w *world) { w.resends(30, "rto", "SYN_SENT", 0, 2); w.resends(4, "rto", "ESTABLISHED", 100, 2) }},
	{"loss-spurious", "web :443", why.Warn, func(w *world) {
		w.resends(30, "fast", "ESTABLISHED", 1448, 0)
		w.grows(1, "TcpExtTCPDSACKRecv", 25)
		w.grows(1, "TcpRetransSegs", 30)
	}, func(w *world) {
		w.resends(5, "fast", "ESTABLISHED", 1448, 0)
		w.grows(1, "TcpExtTCPDSACKRecv", 5)
		w.grows(1, "TcpRetransSegs", 5)
	}},
	{"mtu-blackhole", "web :443", why.Bad, func(w *world) {
		w.resends(2, "rto", "ESTABLISHED", 1448, 3)
		w.resends(2, "rto", "ESTABLISHED", 1448, 4)
	}, func(w *world) {
		w.resends(2, "rto", "ESTABLISHED", 1448, 2)
		w.resends(1, "rto", "ESTABLISHED", 20, 3) // small ones are lost too
	}},
	{"delayed-ack", "web :443", why.Warn, func(w *world) { w.serves(50, 42*ms, "network", nil) }, func(w *world) {
		w.serves(50, 20*ms, "network", nil)
		w.serves(50, 42*ms, "network", cells{"comm": "lossy", "retrans": 3})
	}},
	{"local-queue", "eth0", why.Warn, func(w *world) { w.grows(1, watch.QdiscDropped+"eth0", 50) }, func(w *world) {
		w.grows(1, watch.QdiscDropped+"eth0", 9)
		w.gauge(1, watch.QdiscBacklog+"eth0", 100_000)
	}},
	{"connect-refused", "curl → 192.0.2.5:5432", why.Warn, func(w *world) { w.connects(3, "ECONNREFUSED", nil) }, func(w *world) {
		w.connects(2, "ECONNREFUSED", nil)
		w.connects(9, "ECONNREFUSED", cells{"proto": "udp"})
	}},
	{"connect-unanswered", "curl → 192.0.2.5:5432", why.Warn, func(w *world) { w.connects(1, "", cells{"pending": true, "latency_us": 3_000_000}) }, func(w *world) {
		w.connects(1, "", cells{"pending": true, "latency_us": 300_000})
		w.connects(5, "ECANCELED", nil) // abandoned at once, as happy eyeballs does
	}},
	{"connect-unreachable", "curl → 192.0.2.5:5432", why.Bad, func(w *world) { w.connects(20, "EHOSTUNREACH", nil) }, func(w *world) { w.connects(2, "ENETUNREACH", nil) }},
	{"accept-queue", "web :443", why.Bad, func(w *world) {
		w.at(5, "tcpsynbl", "drops", cells{"comm": "web", "netns": 1, "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "queue": "accept", "limit": 16, "at": "SYN"})
	}, func(w *world) {
		w.at(5, "tcpsynbl", "backlog", cells{"comm": "web", "netns": 1, "lport": 443, "metric": "accept", "limit": 16, "used": spread(20, 15*time.Microsecond)})
	}},
	{"syn-queue", "web :443", why.Bad, func(w *world) {
		w.at(5, "tcpsynbl", "drops", cells{"comm": "web", "netns": 1, "lport": 443, "raddr": "192.0.2.5", "rport": 40000, "queue": "syn", "limit": 16, "at": "SYN"})
	}, func(w *world) {
		w.at(5, "tcpsynbl", "backlog", cells{"comm": "web", "netns": 1, "lport": 443, "metric": "syn", "limit": 16, "used": spread(20, 16*time.Microsecond)})
	}},
	{"ports-exhausted", "curl → 192.0.2.5:5432", why.Bad, func(w *world) { w.connects(1, "EADDRNOTAVAIL", nil) }, func(w *world) { w.gauge(1, watch.TCPTimeWait, 20_000); w.gauge(1, watch.PortsMost, 28_000) }},
	{"fds-exhausted", "web :443", why.Bad, func(w *world) {
		w.at(5, "soaccept", "", cells{"comm": "web", "netns": 1, "lport": 443, "errno": "EMFILE"})
	}, func(w *world) {
		w.at(5, "soaccept", "", cells{"comm": "web", "netns": 1, "lport": 443, "errno": "EAGAIN"})
		w.gauge(0, watch.FilesOpen, 900)
		w.gauge(0, watch.FilesMost, 1000)
	}},
	{"fds-exhausted", "curl", why.Bad, func(w *world) { w.noSockets(1, "EMFILE", "tcp"); w.noSockets(2, "EMFILE", "udp") }, func(w *world) {
		w.noSockets(9, "EAFNOSUPPORT", "tcp") // no IPv6
		w.noSockets(9, "EACCES", "icmp")
		w.connects(9, "EMFILE", cells{"raddr": "192.0.2.5"}) // no such result of connect means a descriptor
	}},
	{"resets", "web :443", why.Warn, func(w *world) { w.ends(7, "remote"); w.ends(20, "") }, func(w *world) { w.ends(7, "remote"); w.ends(80, "") }},
	{"dns-slow", "DNS server 192.0.2.53", why.Warn, func(w *world) { w.queries(10, "NOERROR", 150*ms) }, func(w *world) { w.queries(10, "NOERROR", 50*ms); w.queries(30, "NXDOMAIN", 5*ms) }},
	{"dns-failing", "DNS server 192.0.2.53", why.Bad, func(w *world) { w.queries(3, "TIMEOUT", 0); w.queries(2, "NOERROR", ms) }, func(w *world) { w.queries(2, "SERVFAIL", ms); w.queries(50, "NXDOMAIN", ms) }},
	{"udp-overflow", "UDP :5353", why.Warn, func(w *world) { w.drops(50, "SOCKET_RCVBUFF", "UDP", cells{"lport": 5353}) }, func(w *world) { w.grows(1, "UdpRcvbufErrors", 9) }},
	{"memory-pressure", "this machine", why.Bad, func(w *world) { w.grows(1, "TcpExtTCPMemoryPressures", 1) }, func(w *world) {
		w.grows(1, "TcpExtRcvPruned", 9)
		w.gauge(0, watch.TCPMemory, 10)
		w.gauge(0, watch.TCPMemPressure, 11)
	}},
	{"packets-dropped", "eth0", why.Warn, func(w *world) { w.drops(50, "IP_RPFILTER", "TCP", cells{"dev": "eth0"}) }, func(w *world) {
		w.drops(5000, "NO_SOCKET", "UDP", nil)
		w.drops(5000, "TCP_OLD_SEQUENCE", "TCP", nil)
		w.drops(9, "NEIGH_FAILED", "TCP", nil)
	}},
	{"softirq-starved", "this machine", why.Bad, func(w *world) { w.grows(0, watch.SoftnetDropped, 1) }, func(w *world) { w.grows(0, watch.SoftnetSqueezed, 50) }},
	{"cpu-imbalance", "processor 3", why.Warn, func(w *world) {
		w.grows(0, watch.SoftnetProcessed+"3", 990_000)
		w.grows(0, watch.SoftnetProcessed+"1", 10_000)
		w.grows(0, watch.SoftnetSqueezed, 50)
	}, func(w *world) {
		w.grows(0, watch.SoftnetProcessed+"3", 990_000)
		w.grows(0, watch.SoftnetProcessed+"1", 10_000) // it keeps up
	}},
	{"ecn-marks", "this machine", why.Warn, func(w *world) { w.grows(1, "IpExtInCEPkts", 30); w.grows(1, "IpExtInECT0Pkts", 100) }, func(w *world) { w.grows(1, "IpExtInCEPkts", 30); w.grows(1, "IpExtInECT0Pkts", 100_000) }},
}

// contract is the classes that the command line promises.
const contract = `app-slow reads-late peer-slow peer-window send-buffer path loss-fast loss-tail loss-timeout loss-spurious mtu-blackhole delayed-ack local-queue connect-refused connect-unanswered
connect-unreachable accept-queue syn-queue ports-exhausted fds-exhausted resets dns-slow dns-failing udp-overflow memory-pressure packets-dropped softirq-starved cpu-imbalance ecn-marks`

// TestClasses: each class of the contract has one rule, and a case here.
func TestClasses(t *testing.T) {
	var rules, cases []string
	for i := range why.Rules {
		r := &why.Rules[i]
		rules = append(rules, r.Class)
		v := reflect.ValueOf(*r)
		for j := range v.NumField() {
			if f := v.Field(j); f.Kind() == reflect.String && f.String() == "" {
				t.Errorf("%s: %s is empty", r.Class, v.Type().Field(j).Name)
			}
		}
	}
	for _, c := range madeCases {
		cases = append(cases, c.class)
	}
	want := strings.Fields(contract)
	slices.Sort(want)
	slices.Sort(rules)
	slices.Sort(cases)
	if !slices.Equal(rules, want) {
		t.Errorf("rules are %v, want %v", rules, want)
	}
	if cases = slices.Compact(cases); !slices.Equal(cases, want) {
		t.Errorf("cases are %v, want %v", cases, want)
	}
}

// TestRules: each fault is found alone, with its object and severity. The similar view
// has no finding.
func TestRules(t *testing.T) {
	for _, c := range madeCases {
		t.Run(c.class, func(t *testing.T) {
			w := newWorld(t)
			c.fault(w)
			a := why.Judge(w.m.Window(time.Minute), why.Options{})
			if len(a.Unjudged) > 0 {
				t.Errorf("not judged: %v", a.Unjudged)
			}
			if got := told(a); len(got) != 1 || got[0] != c.class+" "+c.object {
				t.Fatalf("found %q, want %q alone", got, c.class+" "+c.object)
			}
			f := a.Findings[0]
			if f.Severity != c.severity {
				t.Errorf("it is %s, want %s", f.Severity, c.severity)
			}
			if f.ID == "" || f.Rank != 1 || f.Confidence == "" || f.Reason == "" || f.Advice == "" || !strings.HasPrefix(f.Next, "seine ") || f.Title == "" || len(f.Evidence) == 0 {
				t.Errorf("something is missing: %+v", f)
			}
			parses(t, f.Next)
			for _, e := range f.Evidence {
				if e.What == "" || e.From == "" || e.Window != 10 {
					t.Errorf("evidence %+v, want 10 s", e)
				}
			}
			w = newWorld(t)
			c.well(w)
			if got := told(why.Judge(w.m.Window(time.Minute), why.Options{})); len(got) != 0 {
				t.Errorf("nothing is wrong, found %q", got)
			}
		})
	}
}

// parses checks that a command names a tool, with flags and filters that the tool has.
func parses(t *testing.T, command string) {
	t.Helper()
	line, err := words.Fields(command)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tools.All, func(o *tool.Tool) bool { return o.Name == line[1] })
	if i < 0 {
		t.Fatalf("%s: there is no such tool", command)
	}
	cfg, o, err := cli.Parse(tools.All[i], line[2:])
	if err == nil {
		_, err = tool.Prepare(tools.All[i], cfg, o)
	}
	if err != nil {
		t.Errorf("%s: %v", command, err)
	}
}

func told(a *why.Answer) (out []string) {
	for _, f := range a.Findings {
		out = append(out, f.Class+" "+f.Object.Name)
	}
	return out
}

// TestCauses: a finding that explains another one comes before it, and the
// other one names it.
func TestCauses(t *testing.T) {
	w := newWorld(t)
	w.m.Local(1, netip.MustParseAddr("192.0.2.5"))
	w.asks(50, 900*ms, "peer", cells{"comm": "front"})
	w.serves(50, 300*ms, "app", cells{"comm": "postgres", "lport": 5432})
	w.serves(50, 950*ms, "app", cells{"comm": "front", "lport": 80})
	w.grows(0, watch.SoftnetSqueezed, 5000)
	a := why.Judge(w.m.Window(time.Minute), why.Options{})
	want := []string{"app-slow postgres :5432", "peer-slow front → 192.0.2.5:5432", "app-slow front :80", "softirq-starved this machine"}
	if got := told(a); !slices.Equal(got, want) {
		t.Fatalf("found %q, want %q", got, want)
	}
	for i, causes := range [][]int{{}, {1}, {2}, {}} {
		if f := a.Findings[i]; !slices.Equal(f.Causes, causes) || f.Rank != i+1 {
			t.Errorf("%s is number %d and explained by %v, want %d and %v", f.Object.Name, f.Rank, f.Causes, i+1, causes)
		}
	}
}

// TestQueueExplains: a full queue explains connects without an answer.
func TestQueueExplains(t *testing.T) {
	w := newWorld(t)
	w.connects(30, "ETIMEDOUT", cells{"raddr": "127.0.0.1"})
	w.at(5, "tcpsynbl", "drops", cells{"comm": "db", "netns": 1, "lport": 5432, "raddr": "127.0.0.1", "rport": 40000, "queue": "accept", "limit": 16})
	a := why.Judge(w.m.Window(time.Minute), why.Options{})
	if got := told(a); len(got) != 2 || got[0] != "accept-queue db :5432" || !slices.Equal(a.Findings[1].Causes, []int{1}) {
		t.Errorf("found %q", got)
	}
}

// TestNoDescriptor: a process that can neither accept nor make sockets is one finding, with the
// evidence of both calls.
func TestNoDescriptor(t *testing.T) {
	w := newWorld(t)
	w.at(5, "soaccept", "", cells{"comm": "curl", "netns": 1, "lport": 443, "errno": "EMFILE"})
	w.noSockets(2, "EMFILE", "tcp")
	w.noSockets(3, "EMFILE", "udp")
	a := why.Judge(w.m.Window(time.Minute), why.Options{})
	if got := told(a); !slices.Equal(got, []string{"fds-exhausted curl :443"}) {
		t.Fatalf("found %q", got)
	}
	var evidence []string
	for _, e := range a.Findings[0].Evidence {
		evidence = append(evidence, fmt.Sprint(e.What, " ", e.Value, " ", e.From))
	}
	want := []string{"accepts that failed with EMFILE 1 soaccept", "calls of socket that failed with EMFILE 5 soconnect"}
	if !slices.Equal(evidence, want) {
		t.Errorf("the evidence is %q, want %q", evidence, want)
	}
}

// TestOneProcessor: one processor that receives everything explains the packets that are
// left, although that finding is worse.
func TestOneProcessor(t *testing.T) {
	w := newWorld(t)
	w.grows(0, watch.SoftnetProcessed+"3", 990_000)
	w.grows(0, watch.SoftnetProcessed+"1", 10_000)
	w.grows(0, watch.SoftnetDropped, 50)
	a := why.Judge(w.m.Window(time.Minute), why.Options{})
	if got := told(a); !slices.Equal(got, []string{"cpu-imbalance processor 3", "softirq-starved this machine"}) || !slices.Equal(a.Findings[1].Causes, []int{1}) {
		t.Errorf("found %q", got)
	}
}

// TestElsewhere: a slow service on the same port of another network namespace
// explains nothing.
func TestElsewhere(t *testing.T) {
	for _, raddr := range []string{"127.0.0.1", "192.0.2.5"} {
		w := newWorld(t)
		w.m.Local(1, netip.MustParseAddr("192.0.2.5"))
		w.m.Local(2, netip.MustParseAddr("192.0.2.6"))
		w.asks(50, 300*ms, "peer", cells{"raddr": raddr})
		w.serves(50, 300*ms, "app", cells{"comm": "here", "lport": 5432})
		w.serves(50, 300*ms, "app", cells{"comm": "there", "lport": 5432, "netns": 2})
		a := why.Judge(w.m.Window(time.Minute), why.Options{})
		for _, f := range a.Findings {
			for _, c := range f.Causes {
				if a.Findings[c-1].Object.Comm != "here" {
					t.Errorf("%s: %s is explained by %s", raddr, f.Object.Name, a.Findings[c-1].Object.Name)
				}
			}
			if f.Class == "peer-slow" && len(f.Causes) != 1 {
				t.Errorf("%s: explained by %v", raddr, f.Causes)
			}
		}
	}
}

// TestRewritten: a client whose destination is rewritten on the way is explained by the server that its connections
// reach, which has another address and port. A server that other connections reach explains nothing.
func TestRewritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		client cells // of the client's connection
		joined bool
	}{
		{"an address of a cluster", cells{"laddr": "192.0.2.7", "lport": 40000, "raddr": "198.51.100.1", "rport": 80}, true},
		{"another connection", cells{"laddr": "192.0.2.7", "lport": 40001, "raddr": "198.51.100.1", "rport": 80}, false},
		{"loopback of another namespace", cells{"laddr": "127.0.0.1", "lport": 40000, "raddr": "127.0.0.1", "rport": 80}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.asks(50, 300*ms, "peer", cells{"comm": "shop", "raddr": c.client["raddr"], "rport": 80})
			w.serves(50, 300*ms, "app", cells{"comm": "web", "netns": 2, "lport": 8080})
			client := cells{"comm": "shop", "netns": 1, "role": "client", "turns": 9}
			for id, v := range c.client {
				client[id] = v
			}
			w.at(5, "flows", "connections", client)
			w.at(5, "flows", "connections", cells{"comm": "web", "netns": 2, "role": "server", "turns": 9, "laddr": "192.0.2.9", "lport": 8080, "raddr": c.client["laddr"], "rport": 40000})
			a := why.Judge(w.m.Window(time.Minute), why.Options{})
			i := slices.IndexFunc(a.Findings, func(f *why.Finding) bool { return f.Class == "peer-slow" })
			if i < 0 || len(a.Findings) != 2 {
				t.Fatalf("found %q", told(a))
			}
			if joined := len(a.Findings[i].Causes) == 1; joined != c.joined {
				t.Errorf("explained by %v, want an explanation: %v", a.Findings[i].Causes, c.joined)
			}
		})
	}
}

// TestUnjudged: a rule whose source was not asked is named with the reason, and finds nothing.
func TestUnjudged(t *testing.T) {
	m := watch.New(watch.Options{})
	m.Asked("dns", "this kernel cannot")
	a := why.Judge(m.Window(time.Minute), why.Options{})
	if len(a.Judged) != 0 || len(a.Unjudged) != len(why.Rules) {
		t.Errorf("judged are %v", a.Judged)
	}
	i := slices.IndexFunc(a.Unjudged, func(u why.Unjudged) bool { return u.Class == "dns-slow" })
	if i < 0 || a.Unjudged[i].Why != "dns: this kernel cannot" {
		t.Errorf("not judged: %v", a.Unjudged)
	}
}

// TestSlow: --slow moves the threshold.
func TestSlow(t *testing.T) {
	w := newWorld(t)
	w.serves(50, 300*ms, "app", nil)
	for slow, want := range map[float64]int{10: 1, 299: 1, 500: 0} {
		if a := why.Judge(w.m.Window(time.Minute), why.Options{Slow: slow}); len(a.Findings) != want {
			t.Errorf("--slow %vms: found %q, want %d", slow, told(a), want)
		}
	}
}

// TestPast: a service that has become three times as slow is a finding even below --slow,
// with its earlier time. A service that was as slow before, has few turns, or is still
// fast, is not.
func TestPast(t *testing.T) {
	for _, c := range []struct {
		before, now time.Duration
		turns, want int
	}{
		{12 * ms, 45 * ms, 50, 1},
		{20 * ms, 45 * ms, 50, 0},
		{12 * ms, 45 * ms, 19, 0},
		{ms, 9 * ms, 50, 0},
		{150 * ms, 150 * ms, 50, 1}, // it is slow in any case
	} {
		past, now := newWorld(t), newWorld(t)
		past.serves(c.turns, c.before, "app", nil)
		now.serves(50, c.now, "app", nil)
		a := why.Judge(now.m.Window(time.Minute), why.Options{Past: past.m.Window(time.Hour)})
		if len(a.Findings) != c.want {
			t.Errorf("%v: found %q, want %d", c, told(a), c.want)
			continue
		}
		if c.want == 0 {
			continue
		}
		e := a.Findings[0].Evidence[0]
		if was := float64(c.before.Milliseconds()); e.What != "p99 of a turn before" || e.Value < 0.9*was || e.Value > 1.1*was || e.Window != 10 || a.Findings[0].Class != "app-slow" {
			t.Errorf("%v: evidence %+v of %s", c, e, a.Findings[0].Class)
		}
	}
}

// TestPatient: services whose answers may wait on purpose are left out, unless they are
// the target. A few answers of a second do not count as on purpose.
func TestPatient(t *testing.T) {
	w := newWorld(t)
	w.serves(50, 1500*ms, "app", nil)
	w.serves(50, 500*ms, "app", cells{"comm": "broker"})
	w.asks(50, 2000*ms, "peer", nil)
	few := spread(70, 150*ms)
	few.Merge(spread(30, 1500*ms))
	w.serves(100, 1500*ms, "app", cells{"comm": "slow", "turn_us": few})
	w.serves(50, 1500*ms, "unread", cells{"comm": "late"})
	a := why.Judge(w.m.Window(time.Minute), why.Options{})
	got := told(a)
	slices.Sort(got)
	if want := []string{"app-slow slow :443", "reads-late late :443"}; !slices.Equal(got, want) || len(a.Patient) != 3 {
		t.Errorf("found %q, want %q; left out %d, want 3", got, want, len(a.Patient))
	}
	a = why.Judge(w.m.Window(time.Minute), why.Options{Patient: true})
	n := 0
	for _, f := range a.Findings {
		if f.Severity == why.Info && f.Confidence == why.Possible {
			n++
		}
	}
	if len(a.Patient) != 0 || len(a.Findings) != 5 || n != 3 {
		t.Errorf("found %q, of them %d that may be so on purpose, want 3 of 5", told(a), n)
	}
}

// TestRest: if a server waits for the rest of requests, delayed acknowledgements are to
// blame only if it delayed some.
func TestRest(t *testing.T) {
	w := newWorld(t)
	w.serves(50, 42*ms, "receiving", nil)
	w.serves(50, 42*ms, "receiving", cells{"comm": "other", "netns": 2})
	w.grows(2, "TcpExtDelayedACKs", 50)
	if got := told(why.Judge(w.m.Window(time.Minute), why.Options{})); len(got) != 1 || got[0] != "delayed-ack other :443" {
		t.Errorf("found %q", got)
	}
}

// TestDeeper: services that spend their time in the network get a closer look by commands
// that can be run, the slowest first and a limited number. The results of the closer look
// count if it saw enough.
func TestDeeper(t *testing.T) {
	w := newWorld(t)
	w.serves(50, 300*ms, "network", cells{"tx_bytes": 5_000_000})
	w.serves(50, 300*ms, "network", cells{"comm": "small", "tx_bytes": 50_000})
	w.serves(50, 300*ms, "app", cells{"comm": "slow", "tx_bytes": 5_000_000})
	w.serves(50, 60*ms, "network", cells{"comm": "quick", "tx_bytes": 5_000_000})
	w.asks(50, 900*ms, "network", cells{"tx_bytes": 5_000_000})
	view := func() *watch.View { return w.m.Window(time.Minute) }
	w.serves(50, 42*ms, "network", cells{"comm": "pieces", "lport": 80})
	want := []string{
		"flows --exact -i 1 --comm curl --raddr 192.0.2.5 --rport 5432", "flows --exact -i 1 --comm web --lport 443", "tcpnagle --view held -i 1 --by comm,raddr,rport,netns --rport 80",
		"sni --raddr 192.0.2.5",
	}
	got := why.Deeper(view(), why.Options{})
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, line := range got {
		parses(t, "seine "+line)
	}
	for i := range 9 {
		w.serves(50, 300*ms, "network", cells{"lport": 100 + i, "tx_bytes": 5_000_000})
	}
	if got := why.Deeper(view(), why.Options{}); len(got) != 5 {
		t.Errorf("%d closer looks, want 4 at services and one for names", len(got))
	}
	for turns, class := range map[int]string{19: "path", 20: "send-buffer"} {
		w, near := newWorld(t), newWorld(t)
		w.serves(50, 300*ms, "network", cells{"tx_bytes": 5_000_000})
		near.serves(turns, 300*ms, "buffer", nil)
		v := w.m.Window(time.Minute)
		why.Adopt(v, near.m.Window(time.Minute))
		if got := told(why.Judge(v, why.Options{})); len(got) != 1 || got[0] != class+" web :443" {
			t.Errorf("%d turns of a closer look: found %q, want %s", turns, got, class)
		}
	}
}

// TestHeld: if a closer look sees writes held back, delayed acknowledgements
// are certain.
func TestHeld(t *testing.T) {
	for n, want := range map[int]why.Confidence{9: why.Possible, 10: why.Certain} {
		w := newWorld(t)
		w.m.Local(1, netip.MustParseAddr("192.0.2.5"))
		w.serves(50, 42*ms, "network", nil)
		w.at(6, "tcpnagle", "held", cells{"comm": "curl", "netns": 2, "raddr": "192.0.2.5", "rport": 443, "metric": "nagle", "held_us": spread(n, 40*ms)})
		w.at(6, "tcpnagle", "held", cells{"comm": "curl", "netns": 2, "raddr": "192.0.2.5", "rport": 443, "metric": "cwnd", "held_us": spread(50, 40*ms)})
		if a := why.Judge(w.m.Window(time.Minute), why.Options{}); len(a.Findings) != 1 || a.Findings[0].Confidence != want {
			t.Errorf("%d writes: found %q, want one that is %s", n, told(a), want)
		}
	}
}

// TestNamed: a closer look for the name of a suspicious server, if its name is not known.
func TestNamed(t *testing.T) {
	w, near := newWorld(t), newWorld(t)
	w.asks(50, 300*ms, "peer", nil)
	w.connects(3, "ECONNREFUSED", cells{"raddr": "192.0.2.6"}) // nothing is said there
	v := w.m.Window(time.Minute)
	if got := why.Deeper(v, why.Options{}); len(got) != 1 || got[0] != "sni --raddr 192.0.2.5" {
		t.Errorf("the closer look is %q", got)
	}
	near.at(6, "sni", "", cells{"comm": "curl", "netns": 1, "raddr": "192.0.2.5", "rport": 443, "name": "db.example"})
	why.Adopt(v, near.m.Window(time.Minute))
	found := why.Judge(v, why.Options{}).Findings
	if len(found) != 2 {
		t.Errorf("%d findings, want 2", len(found))
	}
	for _, f := range found {
		want := map[string]string{"peer-slow": "db.example"}[f.Class]
		if f.Rname != want {
			t.Errorf("%s %s has the name %q, want %q", f.Class, f.Object.Name, f.Rname, want)
		}
	}
	if got := why.Deeper(v, why.Options{}); len(got) != 0 {
		t.Errorf("the name is known, and the closer look is %q", got)
	}
}

// TestCloser: rules that find something in counters ask for a closer look, and its rows become
// evidence: how long packets wait, whose buffer is full, and who sent what was marked.
func TestCloser(t *testing.T) {
	overflow := func(comm, proto string, n int) func(*world) {
		return func(w *world) {
			w.at(6, "sormem", "overflow", cells{"comm": comm, "pid": 7, "netns": 1, "lport": 5353, "proto": proto, "drops": n, "limit_bytes": 4096, "reason": "buffer full", "kind": "receive"})
		}
	}
	marked := func(from, dir string, n int) func(*world) {
		return func(w *world) {
			w.at(6, "ipecn", "", cells{"saddr": from, "dev": "eth0", "dir": dir, "netns": 1, "segs": n})
		}
	}
	queued := func(took time.Duration) func(*world) {
		return func(w *world) {
			w.at(6, "qdisclat", "", cells{"dev": "eth0", "netns": 1, "kind": "tbf", "dequeued": 50, "latency_us": spread(50, took)})
		}
	}
	backlog := func(w *world) { w.gauge(1, watch.QdiscBacklog+"eth0", 300<<10) }
	for _, c := range []struct {
		name, line string
		fault      func(*world)
		seen       []func(*world)
		object     string
		pid        uint32
		sure       why.Confidence
		evidence   why.Evidence // of the closer look, the first one
	}{
		{"a device", "qdisclat -i 1 --by dev,netns --dev eth0", backlog, []func(*world){queued(20 * ms), func(w *world) {
			w.at(6, "qdisclat", "", cells{"dev": "eth0", "netns": 2, "kind": "tbf", "latency_us": spread(50, 900*ms)}) // another device of that name
		}}, "eth0", 0, why.Certain, why.Evidence{What: "p99 of the time that a packet waits", Value: 20, Unit: "ms", From: "qdisclat"}},
		{"a short wait", "qdisclat -i 1 --by dev,netns --dev eth0", backlog, []func(*world){queued(2 * ms)},
			"eth0", 0, why.Likely, why.Evidence{What: "p99 of the time that a packet waits", Value: 2, Unit: "ms", From: "qdisclat"}},
		{"two devices", "qdisclat -i 1 --by dev,netns", func(w *world) { backlog(w); w.gauge(1, watch.QdiscBacklog+"eth1", 300<<10) }, nil, "", 0, "", why.Evidence{}},
		{"a device with a hostile name", "qdisclat -i 1 --by dev,netns", func(w *world) { w.gauge(1, watch.QdiscBacklog+"$(id)", 300<<10) }, nil, "$(id)", 0, why.Likely, why.Evidence{}},
		{"a port", "sormem --view overflow --proto udp --lport 5353", func(w *world) { w.drops(50, "SOCKET_RCVBUFF", "UDP", cells{"lport": 5353}) },
			[]func(*world){overflow("resolver", "udp", 30), overflow("less", "udp", 3), overflow("more", "tcp", 300)},
			"UDP :5353", 7, why.Certain, why.Evidence{What: "times that a buffer of resolver had no room", Value: 30, From: "sormem"}},
		{"a kernel that gives no reasons", "sormem --view overflow --proto udp", func(w *world) { w.grows(1, "UdpRcvbufErrors", 50) },
			[]func(*world){overflow("resolver", "udp", 30)}, "UDP :5353", 7, why.Certain, why.Evidence{What: "datagrams dropped", Value: 30, From: "sormem"}},
		{"memory", "sormem --view overflow --proto tcp", func(w *world) { w.grows(1, "TcpExtTCPMemoryPressures", 1) },
			[]func(*world){overflow("resolver", "udp", 30), overflow("web", "tcp", 3)}, "this machine", 7, why.Certain, why.Evidence{What: "times that a buffer of web had no room", Value: 3, From: "sormem"}},
		{"marks", "ipecn --summary -i 1 --by dir,dev,saddr,netns", func(w *world) { w.grows(1, "IpExtInCEPkts", 30); w.grows(1, "IpExtInECT0Pkts", 100) },
			[]func(*world){marked("192.0.2.9", "in", 20), marked("192.0.2.8", "in", 5), marked("192.0.2.1", "out", 90)},
			"this machine", 0, why.Certain, why.Evidence{What: "of them received on eth0 from 192.0.2.9", Value: 20, From: "ipecn"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, near := newWorld(t), &world{t, watch.New(watch.Options{})}
			near.at(0, "tcpnagle", "held", cells{}) // from then on it looks
			c.fault(w)
			v := w.m.Window(time.Minute)
			if got := why.Deeper(v, why.Options{}); len(got) != 1 || got[0] != c.line {
				t.Fatalf("the closer look is %q, want %s", got, c.line)
			}
			parses(t, "seine "+c.line)
			for _, see := range c.seen {
				see(near)
			}
			why.Adopt(v, near.m.Window(time.Minute))
			found := why.Judge(v, why.Options{}).Findings
			for _, f := range found {
				parses(t, f.Next)
			}
			if c.object == "" {
				return
			}
			if len(found) != 1 {
				t.Fatalf("%d findings", len(found))
			}
			f := found[0]
			i := slices.IndexFunc(f.Evidence, func(e why.Evidence) bool { return e.From == c.evidence.From })
			if c.evidence.From == "" {
				i = -1
			}
			if f.Object.Name != c.object || f.Object.PID != c.pid || f.Confidence != c.sure || i < 0 && c.evidence.From != "" {
				t.Fatalf("found %+v", f)
			}
			if i < 0 {
				return
			}
			got := f.Evidence[i]
			if got.What != c.evidence.What || got.Unit != c.evidence.Unit || got.Value < 0.9*c.evidence.Value || got.Value > 1.1*c.evidence.Value || got.Window != 7 {
				t.Errorf("evidence %+v, want %+v, of 7 seconds", got, c.evidence)
			}
		})
	}
}

// TestStable: ids depend only on class and object.
func TestStable(t *testing.T) {
	ids := map[string]bool{}
	for i := range 3 {
		w := newWorld(t)
		w.connects(3+i, "ECONNREFUSED", nil)
		ids[why.Judge(w.m.Window(time.Minute), why.Options{}).Findings[0].ID] = true
		w = newWorld(t)
		w.connects(3, "ECONNREFUSED", cells{"rport": 80})
		ids[why.Judge(w.m.Window(time.Minute), why.Options{}).Findings[0].ID] = true
	}
	if len(ids) != 2 {
		t.Errorf("two objects have the ids %v", ids)
	}
}
