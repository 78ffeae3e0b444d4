// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"fmt"
	"slices"
	"time"

	"seine/internal/lab"
	"seine/internal/trial"
)

// stream: messages over TCP, however they are cut into segments, in both directions.
func stream(x *trial.Trial) error {
	query := func(id uint16, name string) []byte { return lab.DNSOverTCP(lab.DNSQuery(id, name)) }
	apart := query(4, "apart.example")
	split := query(5, "split.example")
	for _, c := range []struct {
		name   string
		cut    bool // the server writes the length of each answer separately
		nagle  bool
		ids    []uint16
		writes [][]byte
		want   []string
	}{
		{name: "one a segment", ids: []uint16{1, 2}, writes: [][]byte{query(1, "a.example"), query(2, "b.example")}, want: []string{"a.example", "b.example"}},
		{name: "several in one", ids: []uint16{1, 2, 3}, writes: [][]byte{slices.Concat(query(1, "a.example"), query(2, "b.example"), query(3, "nx.example"))},
			want: []string{"a.example", "b.example", "nx.example"}},
		{name: "length apart", cut: true, ids: []uint16{4, 6}, writes: [][]byte{apart[:2], apart[2:], query(6, "f.example")}, want: []string{"apart.example", "f.example"}},
		{name: "the next begins in the same segment", cut: true, ids: []uint16{1, 4}, writes: [][]byte{slices.Concat(query(1, "a.example"), apart[:2]), apart[2:]},
			want: []string{"a.example", "apart.example"}},
		{name: "cut", ids: []uint16{1, 5}, writes: [][]byte{split[:20], slices.Concat(split[20:], query(1, "a.example"))}, want: []string{"a.example", "split.example"}},
		{name: "held back", nagle: true, ids: []uint16{1, 2, 3}, writes: [][]byte{query(1, "a.example"), query(2, "b.example"), query(3, "c.example")},
			want: []string{"a.example", "b.example", "c.example"}},
	} {
		server, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Cut: c.cut})
		if err != nil {
			return err
		}
		w := lab.DNSWire{Network: "tcp", Server: "127.0.0.1:53", Writes: c.writes, Answers: c.ids, Nagle: c.nagle}
		if !c.nagle {
			w.Pause = 20 * time.Millisecond // so that each write is a segment
		}
		p, err := lab.StartDNSWire(x.World, "", "wire", w)
		if err != nil {
			return err
		}
		var port string
		rows, err := x.Rows(func() error {
			if err := p.Call("go", &port); err != nil {
				return err
			}
			x.Await(len(c.want))
			return nil
		})
		if err != nil {
			return err
		}
		server.Kill()
		want := map[string]int{}
		for _, name := range c.want {
			rcode := "NOERROR"
			if name == "nx.example" {
				rcode = "NXDOMAIN"
			}
			want[fmt.Sprintf("%s A %s tcp %d wire %s", name, rcode, p.PID, port)] = 1
		}
		if got := tally(rows, "name", "type", "rcode", "proto", "pid", "comm", "lport"); fmt.Sprint(got) != fmt.Sprint(want) {
			x.Errorf("%s: rows %v, want %v", c.name, got, want)
		}
	}
	return nil
}

// malformed: messages that are not a query with one question are not shown. A broken
// name is shown up to its defect. Later queries are shown as usual.
func malformed(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{}); err != nil {
		return err
	}
	with := func(at int, bytes ...byte) []byte {
		q := lab.DNSQuery(0x7777, "bad.example")
		copy(q[at:], bytes)
		return q
	}
	seed := uint32(1)
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			seed = seed*1664525 + 1013904223
			b[i] = byte(seed >> 24)
		}
		return b
	}
	junk := [][]byte{
		{}, {0}, make([]byte, 11), // shorter than a header
		make([]byte, 12),         // no question
		with(4, 0xff, 0xff),      // 65535 questions
		with(2, 0x81, 0x80),      // an answer
		with(2, 0x29, 0x00),      // a notification
		lab.DNSQuery(1, "")[:12], // ends after the header, which announces one question
	}
	for i := range 60 {
		b := random(13 + 20*i)
		b[2] |= 0x78 // an opcode other than a query's
		junk = append(junk, b)
	}
	broken := [][]byte{
		with(12, 0xc0, 0x0c), // a name that points to itself
		with(12, 63),         // a label beyond the end
		lab.DNSQuery(0x7778, "cut.example")[:17],
	}
	good := []string{"a.example", "b.example", "c.example"}
	for _, network := range []string{"udp", "tcp"} {
		writes := slices.Concat(junk, broken)
		for i, name := range good {
			writes = append(writes, lab.DNSQuery(uint16(100+i), name))
		}
		if network == "tcp" {
			writes = slices.DeleteFunc(writes, func(b []byte) bool { return len(b) == 0 })
			for i := range writes {
				writes[i] = lab.DNSOverTCP(writes[i])
			}
		}
		p, err := lab.StartDNSWire(x.World, "", "wire", lab.DNSWire{Network: network, Server: "127.0.0.1:53", Writes: writes, Answers: []uint16{100, 101, 102}, Pause: time.Millisecond})
		if err != nil {
			return err
		}
		if err := x.Attach(giveUp); err != nil {
			return err
		}
		var port string
		if err := p.Call("go", &port); err != nil {
			return err
		}
		n := len(good) + len(broken) + 1
		x.Await(n)
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		got := tally(rows, "name", "rcode")
		for _, name := range good {
			if got[name+" NOERROR"] != 1 {
				x.Errorf("%s: %d rows of %s, want 1: %v", network, got[name+" NOERROR"], name, got)
			}
		}
		if len(rows) != n {
			x.Errorf("%s: %d rows, want %d: %v", network, len(rows), n, got)
		}
	}
	return nil
}
