// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w, lab.Sessions{Send: 100, Recv: 5000, ClientComm: "browser", ServerComm: "web"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53})},
	{Name: "ipv6", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Network: lab.TCP6})},
}

// sessions: the packets are those that packet sockets see, and each has the process of its host.
func sessions(s lab.Sessions) func(*trial.Trial) error {
	return trial.Undisturbed(func(x *trial.Trial) error {
		t, err := lab.StartTCP(x.World, s)
		if err != nil {
			return err
		}
		_, err = talked(x, t)
		return err
	})
}

// exchanged runs prepared sessions and returns their packets.
func exchanged(x *trial.Trial, t *lab.TCP) ([]*row.Row, error) {
	rows, err := equal(x, func() error {
		if _, err := t.Run(); err != nil {
			return err
		}
		return x.World.Closed()
	})
	return slices.DeleteFunc(rows, func(r *row.Row) bool { return port(r, t.Port) == "" }), err
}

// talked is exchanged between two hosts. It checks that each packet has the process of its host.
func talked(x *trial.Trial, t *lab.TCP) ([]*row.Row, error) {
	rows, err := exchanged(x, t)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		p := map[string]*lab.Proc{"lport": t.Server, "rport": t.Client}[port(r, t.Port)]
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
	}
	// A session has a handshake, two messages and two FINs. Both hosts see each packet.
	n, least := len(rows), 14*t.Sessions.Count
	if n < least {
		x.Errorf("%d packets of %d sessions, want %d at least", n, t.Sessions.Count, least)
	}
	return rows, nil
}

// port returns the column that has port n: lport, rport, or none.
func port(r *row.Row, n int) string {
	for _, id := range []string{"lport", "rport"} {
		if c := r.Get(id); c.Kind != row.Null && c.N == uint64(n) {
			return id
		}
	}
	return ""
}

// packet describes a packet by the values that packet sockets and the tool both have.
func packet(host string, ifindex int, out bool, length int, frame []byte) string {
	return fmt.Sprintf("%s, device %d, out %v, %d bytes: %x", host, ifindex, out, length, frame)
}

// cut returns the bytes of a frame that a case compares: the tool keeps at most these of a sent packet.
func cut(frame []byte, snaplen int) []byte { return frame[:min(len(frame), snaplen)] }

// equal runs traffic and compares the tool's packets with those of a packet socket in each host, byte
// by byte. It returns the rows.
func equal(x *trial.Trial, traffic func() error, flags ...string) ([]*row.Row, error) {
	return equalUpTo(x, most, traffic, flags...)
}

func equalUpTo(x *trial.Trial, snaplen int, traffic func() error, flags ...string) ([]*row.Row, error) {
	if err := x.Attach(flags...); err != nil {
		return nil, err
	}
	sniffs := map[string]*lab.Sniff{}
	for _, h := range x.World.Hosts() {
		s, err := x.World.Sniff(h)
		if err != nil {
			return nil, err
		}
		sniffs[h] = s
	}
	if err := traffic(); err != nil {
		return nil, err
	}
	want := map[string]int{}
	hosts := map[uint64]string{}
	from, to := map[string]time.Time{}, map[string]time.Time{}
	for h, s := range sniffs {
		all, since, until, err := s.End()
		if err != nil {
			return nil, err
		}
		from[h], to[h] = since, until
		hosts[uint64(x.World.Netns(h))] = h
		for _, p := range all {
			want[packet(h, p.Ifindex, p.Out, len(p.Frame), cut(p.Frame, snaplen))]++
		}
	}
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		h, at := hosts[r.Get("netns").N], time.Unix(0, int64(r.Get("time").N))
		length := int(r.Get("bytes").N)
		// A received packet may be longer than a sent one by its link-layer header, which the tool reads apart.
		p := packet(h, int(r.Get("ifindex").N), r.Get("dir").S == "out", length, cut(r.Bytes, snaplen))
		if want[p] > 0 {
			want[p]--
		} else if at.After(from[h]) && at.Before(to[h]) {
			x.Errorf("no packet socket saw %s", short(p))
		}
		if kept := int(r.Get("kept_bytes").N); kept != len(r.Bytes) || kept < min(length, snaplen) {
			x.Errorf("%d of %d bytes are kept, and %d are there", kept, length, len(r.Bytes))
		}
	}
	for p, n := range want {
		if n > 0 {
			x.Fail(trial.Fewer(0, n, "%d times missing: %s", n, short(p)))
		}
	}
	return rows, nil
}

func short(p string) string { return string(bytes.TrimSpace([]byte(p[:min(len(p), 300)]))) }
