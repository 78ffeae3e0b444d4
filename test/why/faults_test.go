// SPDX-License-Identifier: Apache-2.0

package why

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// A fault is something that is wrong, and the finding that must name it.
type fault struct {
	name  string
	class string
	heavy bool // for -all
	// start starts the processes. It returns a function to run when seine is ready,
	// which returns when enough has happened, and the object.
	start starter
	then  []string // classes that must come later with the first as their cause
	// closer is the tool of the closer look, which must have seen something of the fault. The
	// fault lasts longer than the first look.
	closer string
	rname  string // of a finding's remote address
	// shared: other processes of the machine share the object. Only findings of the
	// class count then.
	shared bool
}

// loses: segments are lost on purpose, or delayed until they are retransmitted.
func (f *fault) loses() bool {
	return strings.HasPrefix(f.class, "loss-") || f.class == "mtu-blackhole"
}

type starter = func(w *lab.World) (begin func() error, object string, err error)

const ms = time.Millisecond

// talk is a client and a server that talk.
func talk(k lab.Talk) starter {
	return func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTalks(w, "why-user", "why-web", k)
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := t.Run(); return err }, fmt.Sprintf("why-web :%d", t.Ports[0]), nil
	}
}

// over is a talk over a path.
func over(p lab.Path, k lab.Talk) starter {
	return func(w *lab.World) (func() error, string, error) {
		x, err := w.OpenPath("client", "server", p)
		if err != nil {
			return nil, "", err
		}
		k.Addr = lab.TCP4.At(x.To, 0)
		begin, object, err := talk(k)(w)
		if err != nil {
			return nil, "", errors.Join(err, x.Close())
		}
		return func() error { return errors.Join(begin(), x.Close()) }, object, nil
	}
}

// of says of the client's end of a talk.
func ofClient(s starter) starter {
	return func(w *lab.World) (func() error, string, error) {
		begin, object, err := s(w)
		_, port, _ := strings.Cut(object, ":")
		return begin, "why-user → " + w.Addr4("server").String() + ":" + port, err
	}
}

// timesOut is a talk that loses segments of the server until n have timed out.
func timesOut(k lab.Talk, l lab.Loss, timeouts int64) starter {
	return func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTalks(w, "why-user", "why-web", k)
		if err != nil {
			return nil, "", err
		}
		l.From, l.Count = t.Ports[0], 1000
		return func() error {
			x, err := lab.StartLoss(l)
			if err != nil {
				return err
			}
			ended := make(chan error, 1)
			go func() { _, err := t.Run(); ended <- err }()
			for n := int64(0); n < timeouts; time.Sleep(20 * ms) {
				c, err := w.Counters("server")
				if err != nil {
					return err
				}
				n = c["TcpExtTCPTimeouts"]
			}
			return errors.Join(x.Close(), <-ended)
		}, fmt.Sprintf("why-web :%d", t.Ports[0]), nil
	}
}

// segment is the payload's length, the flags and the sequence number of a TCP packet; ok says
// whether it is one of IPv4.
func segment(p []byte) (size int, flags byte, seq string, ok bool) {
	if len(p) < 40 || p[0] != 0x45 || p[9] != unix.IPPROTO_TCP {
		return 0, 0, "", false
	}
	return len(p) - 20 - int(p[32]>>4)*4, p[33], string(p[24:28]), true
}

// losing loses segments of the second host: pick chooses them by their number among
// segments that are sent for the first time.
func losing(pick func(n int, flags byte) bool) func(int, []byte) (bool, time.Duration) {
	n, seen := 0, map[string]bool{}
	return func(host int, p []byte) (bool, time.Duration) {
		size, flags, seq, ok := segment(p)
		if host != 1 || !ok || size == 0 || seen[seq] {
			return false, 0
		}
		seen[seq] = true
		n++
		return pick(n, flags), 0
	}
}

// holding holds up each n-th segment with data of the second host.
func holding(each int, hold time.Duration) func(int, []byte) (bool, time.Duration) {
	n := 0
	return func(host int, p []byte) (bool, time.Duration) {
		if size, _, _, ok := segment(p); host == 1 && ok && size > 0 {
			if n++; n%each == 0 {
				return false, hold
			}
		}
		return false, 0
	}
}

// connects is connects to a target with the same result.
func connects(kind lab.Target, n int, a lab.Attempt) starter {
	return func(w *lab.World) (func() error, string, error) {
		kind, a := kind, a // they may be asked for again
		if a.Network = lab.TCP4; a.Addr == "" {
			kind.Network = lab.TCP4
			t, err := lab.StartTargets(w, "server", "why-web", kind)
			if err != nil {
				return nil, "", err
			}
			a.Addr = t.Addrs[0]
		}
		c, err := lab.StartConnects(w, "client", "why-user", slices.Repeat([]lab.Attempt{a}, n)...)
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := c.Run(); return err }, "why-user → " + a.Addr, nil
	}
}

// full is connects to a listener with a small accept queue, which is full after the
// third.
func full(behind lab.Attempt) starter {
	return func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTargets(w, "server", "why-web", lab.Target{Network: lab.TCP4, Backlog: 2})
		if err != nil {
			return nil, "", err
		}
		first := lab.Attempt{Network: lab.TCP4, Addr: t.Addrs[0]}
		behind.Network, behind.Addr = first.Network, first.Addr
		c, err := lab.StartConnects(w, "client", "why-user", first, first, first, behind, behind, behind)
		if err != nil {
			return nil, "", err
		}
		_, port, _ := strings.Cut(t.Addrs[0], ":")
		return func() error { _, err := c.Run(); return err }, "why-web :" + port, nil
	}
}

// names is lookups of names at a server.
func names(d lab.DNS, name string, n int) starter {
	return func(w *lab.World) (func() error, string, error) {
		d.Addr = "127.0.0.1"
		if _, err := lab.StartDNS(w, "client", "why-names", d); err != nil {
			return nil, "", err
		}
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(name, i))
		}
		p, err := lab.StartLookups(w, "client", "why-user", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n", list...)
		if err != nil {
			return nil, "", err
		}
		return func() error { var done []lab.Lookup; return p.Call("go", &done) }, "DNS server 127.0.0.1", nil
	}
}

// serving is users of a service.
func serving(s service, u users) starter { return across(nil, s, u) }

// across is users of a service at the other end of a path.
func across(p *lab.Path, s service, u users) starter {
	return func(w *lab.World) (func() error, string, error) {
		addr, done := w.Addr4("server"), func() error { return nil }
		if p != nil {
			x, err := w.OpenPath("client", "server", *p)
			if err != nil {
				return nil, "", err
			}
			addr, done = x.To, x.Close
		}
		s.Addr = lab.TCP4.At(addr, 0)
		port, err := startService(w, "server", "why-web", s)
		if err != nil {
			return nil, "", errors.Join(err, done())
		}
		u.Addr = lab.TCP4.At(addr, port)
		run, err := startUsers(w, "client", "why-user", u)
		return func() error { return errors.Join(run(), done()) }, itself(port), err
	}
}

func itself(port int) string { return fmt.Sprintf("why-web :%d", port) }

// behind is users of a service that calls another, slow service.
func behind(w *lab.World) (func() error, string, error) {
	addr := w.Addr4("server")
	port, err := startService(w, "server", "why-db", service{Addr: lab.TCP4.At(addr, 0), Waits: []time.Duration{150 * ms}})
	if err != nil {
		return nil, "", err
	}
	front, err := startService(w, "server", "why-web", service{Addr: lab.TCP4.At(addr, 0), Asks: lab.TCP4.At(addr, port)})
	if err != nil {
		return nil, "", err
	}
	run, err := startUsers(w, "client", "why-user", users{Addr: lab.TCP4.At(addr, front), Count: 2, Turns: 15, Writes: 1})
	return run, fmt.Sprintf("why-db :%d", port), err
}

// published is users of a slow server who ask the port of another host. netfilter sends their packets to the server,
// as it does for a published port of a container or for a service of Kubernetes.
func published(w *lab.World) (func() error, string, error) {
	const asked = 8443
	port, err := startService(w, "client", "why-web", service{Addr: "127.0.0.1:0", Waits: []time.Duration{150 * ms}})
	if err != nil {
		return nil, "", err
	}
	if err := w.Redirect("client", unix.IPPROTO_TCP, asked, uint16(port)); err != nil {
		return nil, "", err
	}
	run, err := startUsers(w, "client", "why-user", users{Addr: lab.TCP4.At(w.Addr4("server"), asked), Count: 2, Turns: 15})
	return run, fmt.Sprintf("why-web :%d", port), err
}

// named is a server that thinks. When the closer look has begun, its client names it in a TLS
// handshake.
func named(w *lab.World) (func() error, string, error) {
	begin, object, err := talk(lab.Talk{Turns: 60, Think: 150 * ms})(w)
	if err != nil {
		return nil, "", err
	}
	server, err := lab.StartTLS(w, "server", "why-web", "")
	if err != nil {
		return nil, "", err
	}
	client, err := lab.StartTLSClient(w, "client", "why-user", lab.TLSClient{Addr: server.Addr, Sessions: []lab.TLSSession{{Name: "slow.example"}}})
	if err != nil {
		return nil, "", err
	}
	return func() error {
		ended := make(chan error, 1)
		go func() { ended <- begin() }()
		time.Sleep(6500 * ms)
		var done []lab.TLSSession
		return errors.Join(client.Call("go", &done), <-ended)
	}, object, nil
}

// injected is packets that no socket would send. They arrive at the server's
// only device.
func injected(prepare func(w *lab.World) error, p func(w *lab.World) lab.Packet) starter {
	return func(w *lab.World) (func() error, string, error) {
		if prepare != nil {
			if err := prepare(w); err != nil {
				return nil, "", err
			}
		}
		return func() error { return w.Inject("client", slices.Repeat([]lab.Packet{p(w)}, 30)...) }, w.Dev("server", "client"), nil
	}
}

func toServer(w *lab.World) lab.Packet {
	return lab.Packet{Src: w.Addr4("client"), Dst: w.Addr4("server"), Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, 9)}
}

var faults = []fault{
	{name: "a server that thinks", class: "app-slow", start: talk(lab.Talk{Turns: 25, Think: 150 * ms}), then: []string{"peer-slow"}},
	{name: "a server with a name that thinks", class: "app-slow", heavy: true, rname: "slow.example", start: named, then: []string{"peer-slow"}},
	{name: "a server behind the server that thinks", class: "app-slow", start: behind, then: []string{"peer-slow", "app-slow"}},
	{name: "a server behind another address that thinks", class: "app-slow", heavy: true, start: published, then: []string{"peer-slow"}},
	{name: "some answers take long", class: "app-slow", heavy: true, start: serving(service{Waits: []time.Duration{5 * ms, 5 * ms, 300 * ms}}, users{Count: 6, Turns: 10}), then: []string{"peer-slow"}},
	{name: "a server that reads late", class: "reads-late", start: talk(lab.Talk{Turns: 25, Late: 150 * ms}), then: []string{"peer-slow"}},
	{name: "a client that reads late", class: "reads-late", heavy: true, start: ofClient(talk(lab.Talk{Turns: 22, Answer: 256 << 10, RecvBuf: 16 << 10, Slow: 12 * ms})), then: []string{"peer-window"}},
	{name: "a client with a window that is small for the path", class: "peer-window", heavy: true, start: over(lab.Path{Delay: 10 * ms}, lab.Talk{Turns: 22, Answer: 160 << 10, RecvBuf: 8 << 10})},
	{name: "a client with a small window", class: "peer-window", heavy: true, start: over(lab.Path{Delay: 10 * ms}, lab.Talk{Turns: 22, Answer: 64 << 10, RecvBuf: 4 << 10})},
	{name: "a server with a small send buffer", class: "send-buffer", heavy: true, start: over(lab.Path{Delay: 15 * ms}, lab.Talk{Turns: 60, Answer: 160 << 10, SendBuf: 4 << 10})},
	{name: "a long path", class: "path", start: over(lab.Path{Delay: 80 * ms}, lab.Talk{Turns: 22, Answer: 60_000})},
	{name: "a narrow path", class: "path", heavy: true, start: over(lab.Path{Delay: ms, Rate: 500_000}, lab.Talk{Turns: 22, Answer: 120_000})},
	{name: "one segment in thirty is lost", class: "loss-fast", heavy: true, start: over(lab.Path{Delay: 5 * ms, Fate: losing(func(n int, _ byte) bool { return n%30 == 15 })}, lab.Talk{Turns: 25, Answer: 60_000})},
	{name: "the last segments are lost", class: "loss-tail", heavy: true, start: over(lab.Path{Delay: 5 * ms, Fate: losing(func(n int, flags byte) bool { return n > 8 && n%4 == 0 })}, lab.Talk{Turns: 25, Answer: 5500})},
	{name: "answers are lost until timeouts", class: "loss-timeout", start: timesOut(lab.Talk{Turns: 5, Gap: 20 * ms}, lab.Loss{Data: 500, Skip: 2}, 4)},
	{name: "a path that holds segments up", class: "loss-spurious", heavy: true, start: across(&lab.Path{Delay: ms, Fate: holding(60, 600*ms)}, service{}, users{Count: 30, Turns: 8})},
	{name: "large segments are lost", class: "mtu-blackhole", start: timesOut(lab.Talk{Turns: 3, Answer: 30_000, Gap: 20 * ms}, lab.Loss{Data: 1221}, 4)},
	{name: "a request in two small writes", class: "delayed-ack", start: serving(service{}, users{Count: 1, Turns: 80, Writes: 2})},
	{name: "requests in two small writes for longer", class: "delayed-ack", heavy: true, start: serving(service{}, users{Count: 1, Turns: 300, Writes: 2})},
	{name: "a shaper that drops", class: "local-queue", heavy: true, shared: true, closer: "qdisclat", start: func(w *lab.World) (func() error, string, error) {
		if err := w.Throttle("client"); err != nil {
			return nil, "", err
		}
		f, err := lab.StartFlood(w, lab.Flood{Count: 800, Size: 1000, Burst: 10, Gap: 100 * ms, ClientComm: "why-user", ServerComm: "why-web"})
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := f.Run(); return err }, w.Dev("client", "server"), nil
	}},
	{name: "nobody listens", class: "connect-refused", start: connects(lab.Target{Kind: lab.BoundOnly}, 5, lab.Attempt{Want: unix.ECONNREFUSED})},
	{name: "nobody answers", class: "connect-unanswered", start: connects(lab.Target{Kind: lab.Silent}, 2, lab.Attempt{Want: unix.ETIMEDOUT, Hasty: true})},
	{name: "a firewall drops SYNs", class: "connect-unanswered", heavy: true, start: func(w *lab.World) (func() error, string, error) {
		if err := w.Refuse("server"); err != nil {
			return nil, "", err
		}
		return connects(lab.Target{}, 2, lab.Attempt{Want: unix.ETIMEDOUT, Hasty: true})(w)
	}},
	{name: "a host that is not there", class: "connect-unreachable", heavy: true, start: connects(lab.Target{}, 3, lab.Attempt{Addr: lab.TCP4.At(lab.Unreachable4, 9), Want: unix.EHOSTUNREACH})},
	{name: "no route", class: "connect-unreachable", heavy: true, start: connects(lab.Target{}, 3, lab.Attempt{Addr: "198.51.100.1:9", Want: unix.ENETUNREACH})},
	{name: "a server that does not accept", class: "accept-queue", start: full(lab.Attempt{Mode: lab.Unfollowed, Want: unix.EINPROGRESS})},
	{name: "clients of a server that does not accept", class: "accept-queue", heavy: true, start: full(lab.Attempt{Want: unix.ETIMEDOUT, Hasty: true}), then: []string{"connect-unanswered"}},
	{name: "handshakes that do not end", class: "syn-queue", heavy: true, start: func(w *lab.World) (func() error, string, error) {
		if err := w.Sysctl("server", "net.ipv4.tcp_syncookies", "0"); err != nil {
			return nil, "", err
		}
		t, err := lab.StartTargets(w, "server", "why-web", lab.Target{Network: lab.TCP4, Backlog: 2})
		if err != nil {
			return nil, "", err
		}
		a := lab.Attempt{Network: lab.TCP4, Addr: t.Addrs[0], Mode: lab.Unfollowed, Want: unix.EINPROGRESS}
		c, err := lab.StartConnects(w, "client", "why-user", slices.Repeat([]lab.Attempt{a}, 7)...)
		if err != nil {
			return nil, "", err
		}
		loss, err := lab.StartLoss(lab.Loss{From: t.Port(0), Flags: lab.SYN | lab.ACK, Count: 1000})
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := c.Run(); return errors.Join(err, loss.Close()) }, fmt.Sprintf("why-web :%d", t.Port(0)), nil
	}},
	{name: "four ports for clients", class: "ports-exhausted", heavy: true, start: func(w *lab.World) (func() error, string, error) {
		if err := w.Sysctl("client", "net.ipv4.ip_local_port_range", "40000 40003"); err != nil {
			return nil, "", err
		}
		t, err := lab.StartTargets(w, "server", "why-web", lab.Target{Network: lab.TCP4})
		if err != nil {
			return nil, "", err
		}
		a := lab.Attempt{Network: lab.TCP4, Addr: t.Addrs[0]}
		full := a
		full.Want = unix.EADDRNOTAVAIL
		c, err := lab.StartConnects(w, "client", "why-user", a, a, a, a, full, full)
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := c.Run(); return err }, "why-user → " + t.Addrs[0], nil
	}},
	{name: "no descriptor is left", class: "fds-exhausted", heavy: true, start: func(w *lab.World) (func() error, string, error) {
		p, err := w.Start("client", "why-web", bodyFull, nil)
		if err != nil {
			return nil, "", err
		}
		var port int
		if err := p.Expect(&port); err != nil {
			return nil, "", err
		}
		return func() error { var done bool; return p.Call("go", &done) }, fmt.Sprintf("why-web :%d", port), nil
	}},
	{name: "no descriptor is left for a socket", class: "fds-exhausted", heavy: true, start: func(w *lab.World) (func() error, string, error) {
		p, err := w.StartReady("client", "why-user", bodyNone, nil)
		if err != nil {
			return nil, "", err
		}
		return func() error { var done bool; return p.Call("go", &done) }, "why-user", nil
	}},
	{name: "clients that reset", class: "resets", start: func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTCP(w, lab.Sessions{Count: 12, Send: 100, Recv: 100, Close: lab.ByReset, ClientComm: "why-user", ServerComm: "why-web"})
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := t.Run(); return err }, fmt.Sprintf("why-web :%d", t.Port), nil
	}},
	{name: "a server that closes with bytes unread", class: "resets", heavy: true, start: serving(service{Close: true}, users{Count: 12, Turns: 1, Reset: true})},
	{name: "a name server that is slow", class: "dns-slow", start: names(lab.DNS{Delay: 150 * ms}, "a%d.example.", 6)},
	{name: "a name server that fails", class: "dns-failing", heavy: true, start: names(lab.DNS{}, "fail-%d.example.", 5)},
	{name: "a name server that is mute", class: "dns-failing", heavy: true, start: names(lab.DNS{}, "mute-%d.example.", 3)},
	{name: "a server that does not read datagrams", class: "udp-overflow", heavy: true, closer: "sormem", start: func(w *lab.World) (func() error, string, error) {
		f, err := lab.StartFlood(w, lab.Flood{Count: 8000, RcvBuf: 4096, Idle: true, Burst: 100, Gap: 100 * ms, ClientComm: "why-user", ServerComm: "why-web"})
		if err != nil {
			return nil, "", err
		}
		return func() error { _, err := f.Run(); return err }, fmt.Sprintf("UDP :%d", f.Port), nil
	}},
	{name: "TCP may have half of the memory that it has", class: "memory-pressure", heavy: true, shared: true, closer: "sormem", start: hoards(true)},
	{name: "checksums of IP that are wrong", class: "packets-dropped", heavy: true, shared: true, start: injected(nil, func(w *lab.World) lab.Packet {
		p := toServer(w)
		p.BadSum = true
		return p
	})},
	{name: "checksums of UDP that are wrong", class: "packets-dropped", heavy: true, shared: true, start: injected(nil, toServer)},
	{name: "packets from where no answer would go", class: "packets-dropped", heavy: true, shared: true, start: injected(
		func(w *lab.World) error { return w.Sysctl("server", "net.ipv4.conf.all.rp_filter", "1") },
		func(w *lab.World) lab.Packet {
			p := toServer(w)
			p.Src = netip.MustParseAddr("198.51.100.7")
			return p
		})},
	{name: "a processor that needs long for a packet", class: "softirq-starved", heavy: true, shared: true, start: pours(pour{rounds: 500, flood: trickle, object: anyCPU})},
	{name: "one processor receives all packets", class: "cpu-imbalance", heavy: true, start: pours(pour{rounds: 10, flood: stream, object: oneCPU}), then: []string{"softirq-starved"}},
	{name: "packets that are marked", class: "ecn-marks", heavy: true, shared: true, closer: "ipecn", start: func(w *lab.World) (func() error, string, error) {
		t, err := lab.StartTargets(w, "server", "why-web", lab.Target{Network: lab.UDP4})
		if err != nil {
			return nil, "", err
		}
		m, err := lab.StartMarks(w, "client", "why-user", lab.Marks{Network: lab.UDP4, Addr: t.Addrs[0], CE: 80, Stepwise: true})
		if err != nil {
			return nil, "", err
		}
		return func() error {
			for range 80 {
				if err := m.Step(); err != nil {
					return err
				}
				time.Sleep(100 * ms)
			}
			return m.Wait()
		}, "this machine", nil
	}},
}
