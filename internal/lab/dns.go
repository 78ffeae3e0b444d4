// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DNS is a name server on port 53 of 127.0.0.1 and ::1, or of one address. It
// answers by the first label of the name that is asked for, up to a digit or a
// dash:
//
//	nx     there is no such name
//	empty  the name has no such record
//	fail   the server cannot tell
//	mute   no answer; the server reports the name
//	big    over UDP a truncated answer, the whole one over TCP
//
// and anything else with its address in Names or, if it has none, with DNSAddr4,
// DNSAddr6 or the name "host.example".
type DNS struct {
	Addr    string // empty: 127.0.0.1 and ::1
	Port    int    // 0: 53
	Cut     bool   // over TCP, the length of an answer is written separately
	Names   map[string]netip.Addr
	Delay   time.Duration // before each answer
	Forward string        // a name server, over UDP, that gives the answers instead of this one
	// Together makes each answer wait until this many names have been asked
	// for.
	Together int

	report func(v any) error
	asked  *askedFor
}

// askedFor is the names that were asked for.
type askedFor struct {
	mu    sync.Mutex
	names map[string]bool
	all   chan struct{} // closed when there are enough
}

// wait returns when n names have been asked for, of which this is one.
func (a *askedFor) wait(name string, n int) {
	a.mu.Lock()
	if before := len(a.names); before < n {
		a.names[name] = true
		if len(a.names) == n {
			close(a.all)
		}
	}
	a.mu.Unlock()
	<-a.all
}

// The addresses of names that are not in Names.
var (
	DNSAddr4 = netip.MustParseAddr("192.0.2.53")
	DNSAddr6 = netip.MustParseAddr("2001:db8::53")
)

const bodyDNS = "dns"

func init() { Register(bodyDNS, dnsBody) }

// StartDNS starts a name server in a host.
func StartDNS(w *World, host, comm string, d DNS) (*Proc, error) {
	return w.StartReady(host, comm, bodyDNS, d)
}

func dnsBody(c *Child) error {
	var d DNS
	if err := c.Arg(&d); err != nil {
		return err
	}
	d.report = c.Report
	d.asked = &askedFor{names: map[string]bool{}, all: make(chan struct{})}
	addrs := []string{d.Addr}
	if d.Addr == "" {
		addrs = []string{"127.0.0.1", "::1"}
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	for _, a := range addrs {
		at := net.JoinHostPort(a, strconv.Itoa(cmp.Or(d.Port, 53)))
		udp, err := lc.ListenPacket(context.Background(), "udp", at)
		if err != nil {
			return err
		}
		tcp, err := lc.Listen(context.Background(), "tcp", at)
		if err != nil {
			return err
		}
		go d.serveUDP(udp)
		go d.serveTCP(tcp)
	}
	if err := c.Report(true); err != nil {
		return err
	}
	return c.Await("end")
}

func (d DNS) serveUDP(conn net.PacketConn) {
	for {
		buf := make([]byte, 1500)
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		go func() {
			if a := d.answer(buf[:n], false); a != nil {
				conn.WriteTo(a, from)
			}
		}()
	}
}

func (d DNS) serveTCP(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var size [2]byte
			for {
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				msg := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(conn, msg); err != nil {
					return
				}
				a := d.answer(msg, true)
				if a == nil {
					continue
				}
				a = DNSOverTCP(a)
				if d.Cut {
					conn.Write(a[:2])
					a = a[2:]
				}
				conn.Write(a)
			}
		}()
	}
}

// answer makes the answer to a query after the delay; nil: none.
func (d DNS) answer(query []byte, tcp bool) []byte {
	time.Sleep(d.Delay)
	if d.Forward != "" {
		a, err := forward(d.Forward, query)
		if err != nil {
			return nil
		}
		return a
	}
	end := 12
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	if end += 5; end > len(query) || query[12] == 0 {
		return nil
	}
	if d.Together > 0 {
		d.asked.wait(dotted(query[12:]), d.Together)
	}
	label := string(query[13 : 13+query[12]])
	rule, _, _ := strings.Cut(strings.TrimRight(label, "0123456789"), "-")
	a := append([]byte{}, query[:end]...) // header and question
	copy(a[6:12], make([]byte, 6))
	a[2], a[3] = 0x81, 0x80
	records := map[uint16][]byte{1: DNSAddr4.AsSlice(), 28: DNSAddr6.AsSlice(), 12: []byte("\x04host\x07example\x00")}
	if addr, ok := d.Names[dotted(query[12:])]; ok {
		records = map[uint16][]byte{1: addr.AsSlice()}
		if addr.Is6() {
			records = map[uint16][]byte{28: addr.AsSlice()}
		}
	}
	record := records[binary.BigEndian.Uint16(query[end-4:])]
	switch {
	case rule == "mute":
		_ = d.report(dotted(query[12:])) // fails only once the test has ended
		return nil
	case rule == "nx":
		a[3] |= 3
	case rule == "fail":
		a[3] |= 2
	case rule == "big" && !tcp:
		a[2] |= 2
	case rule != "empty" && record != nil:
		a[7] = 1
		a = append(a, 0xc0, 12, query[end-4], query[end-3], 0, 1, 0, 0, 0, 60, 0, byte(len(record)))
		a = append(a, record...)
	}
	return a
}

// dotted is the name whose labels are at the start of b. They are known to be
// complete.
func dotted(b []byte) string {
	var labels []string
	for b[0] != 0 {
		labels = append(labels, string(b[1:1+b[0]]))
		b = b[1+b[0]:]
	}
	return strings.Join(labels, ".")
}

// forward asks another server.
func forward(server string, query []byte) ([]byte, error) {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	return buf[:n], err
}

// StartNames starts a server on port 53 of a host's 127.0.0.1 that knows these
// names: dnsmasq where there is one, else our own. Whoever starts it calls stop.
func StartNames(w *World, host string, names map[string]netip.Addr) (stop func(), err error) {
	d, err := StartDnsmasq(w, host, Dnsmasq{Port: 53, Names: names})
	if err == nil {
		return d.Stop, nil
	}
	if !errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	p, err := StartDNS(w, host, "nameserver", DNS{Names: names})
	if err != nil {
		return nil, err
	}
	return p.Kill, nil
}

// Lookup is a name that Go's own resolver looked up, and the result.
type Lookup struct {
	Host     string
	NS       int64 // that it took
	Addrs    []netip.Addr
	NotFound bool
	Timeout  bool
	Error    string // of the lookup, or of the connection
}

const bodyLookups = "lookups"

func init() { Register(bodyLookups, lookupsBody) }

// StartLookups starts a process that looks up hosts one after the other, by Go's
// own resolver and the name servers of resolv.conf's text. If a host has a port,
// as in www.example.:80, the process then connects to each address. Call "go"
// gives the []Lookup.
func StartLookups(w *World, host, comm, resolv string, names ...string) (*Proc, error) {
	return w.StartIn(host, comm, Mounts{
		Etc: map[string]string{"resolv.conf": resolv, "nsswitch.conf": "hosts: dns\n"}, Body: bodyLookups, Arg: names,
	})
}

func lookupsBody(c *Child) error {
	var names []string
	if err := c.Arg(&names); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	r := net.Resolver{PreferGo: true}
	var out []Lookup
	for _, name := range names {
		l := Lookup{Host: name}
		bare, port, connect := strings.Cut(name, ":")
		start := time.Now()
		addrs, err := r.LookupNetIP(context.Background(), "ip", bare)
		l.NS, l.Addrs = int64(time.Since(start)), addrs
		var de *net.DNSError
		if errors.As(err, &de) {
			l.NotFound, l.Timeout, l.Error = de.IsNotFound, de.IsTimeout, err.Error()
		} else if err != nil {
			return err
		}
		for _, a := range addrs {
			if !connect {
				break
			}
			d := net.Dialer{}
			d.SetMultipathTCP(false)
			conn, err := d.Dial("tcp", net.JoinHostPort(a.Unmap().String(), port))
			if err != nil {
				l.Error = err.Error()
				continue
			}
			conn.Close()
		}
		out = append(out, l)
	}
	return c.Report(out)
}
