// SPDX-License-Identifier: Apache-2.0

package skbdrop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/trial"
)

// closed is a port without a socket: ports for cases begin at 10000.
const closed = 9

// Functions in which UDP receives. The compiler inlines some of them.
const (
	received4 = "__udp4_lib_rcv udp_rcv udp_queue_rcv_one_skb"
	received6 = "__udp6_lib_rcv udpv6_rcv"
)

// letters sends n datagrams from the client to a port of the server.
func letters(w *lab.World, network lab.Network, port, n, size int) error {
	s, err := lab.StartLetters(w, "client", "sender", lab.Letters{
		Network: network, To: []string{network.At(w.Addr("server", network), port)}, Rounds: n, Size: size,
	})
	if err != nil {
		return err
	}
	_, err = s.Run()
	return errors.Join(err, w.Settle())
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return errors.Join(
			letters(w, lab.UDP4, closed, 23, 100),
			w.Inject("client", slices.Repeat([]lab.Packet{{
				Src: w.Addr4("client"), Dst: w.Addr4("server"), Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed),
			}}, 5)...),
			overflowing(w, 47),
		)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "no-socket", Hosts: lab.TwoHosts, Run: noSocket(lab.UDP4)},
}

// overflowing makes a client send to a server that does not read.
func overflowing(w *lab.World, n int) error {
	f, err := lab.StartFlood(w, lab.Flood{Count: n, Size: 1000, RcvBuf: 8192, Idle: true, ClientHost: "client", ServerHost: "server"})
	if err != nil {
		return err
	}
	_, err = f.Run()
	return err
}

// reasoned reports whether this kernel gives reasons for drops.
func reasoned() bool { return told() > 2 }

// told is the number of arguments of the tracepoint.
func told() int {
	k, err := probe.Running()
	if err != nil {
		return 0
	}
	return len(k.Args("kfree_skb"))
}

// by is the columns that cases group drops by.
const by = "--by=reason,location,kstack,proto,dev,lport,rport,family,dir"

// want is the only group of drops that a case makes, and the kernel's counter
// of them.
type want struct {
	reason   string // a * at the end stands for more
	through  string // the stack has one of these functions
	proto    string
	dev      string
	dir      string // in by default
	lport    string
	rport    string
	count    int
	each     string // counter that moves once for each buffer, if these are fewer
	counters map[string]int
}

// counted runs the traffic of a case and compares.
func counted(x *trial.Trial, traffic func() error, list ...want) error {
	before, err := sentAgain(x.World)
	if err != nil {
		return err
	}
	rows, err := x.Rows(traffic, by)
	if err != nil {
		return err
	}
	after, err := sentAgain(x.World)
	compare(x, rows, after-before, list)
	return err
}

// sentAgain is the number of TCP retransmissions and window probes, as the kernel
// counts them.
func sentAgain(w *lab.World) (n int, err error) {
	for _, h := range w.Hosts() {
		c, err := w.Counters(h)
		if err != nil {
			return 0, err
		}
		n += int(c["TcpRetransSegs"] + c["TcpExtTCPWinProbe"])
	}
	return n, nil
}

// compare records the differences of the rows from the wanted drops. On a busy
// machine TCP retransmits data that has arrived, and the peer drops it; again is
// the limit of such drops.
func compare(x *trial.Trial, rows []*row.Row, again int, list []want) {
	moved := map[string]int{}
	for _, r := range rows {
		if r.Schema.View == "counters" {
			moved[r.Get("counter").S] += int(r.Get("count").N)
		}
	}
	rows = slices.DeleteFunc(rows, func(r *row.Row) bool { return r.Schema.View == "counters" })
	for _, w := range list {
		if !reasoned() {
			w.reason = "unclassified"
		}
		want := w.count
		if w.each != "" {
			want = moved[w.each]
		}
		count, skbs := 0, 0
		rows = slices.DeleteFunc(rows, func(r *row.Row) bool {
			if !w.is(r) {
				return false
			}
			count += int(r.Get("count").N)
			skbs += int(r.Get("skbs").N)
			return true
		})
		if count != w.count || skbs != want {
			x.Errorf("%d packets, %d buffers of %s; want %d, %d", count, skbs, w.reason, w.count, want)
		}
		for name, n := range w.counters {
			if moved[name] != n {
				x.Errorf("%s moved by %d, want %d, among %v", name, moved[name], n, moved)
			}
		}
	}
	for _, r := range rows {
		switch proto := trial.Value(r.Get("proto")); {
		case !reasoned(), proto == "icmpv6": // IPv6's own reports are dropped, because nothing receives them
		case proto == "tcp" && int(r.Get("count").N) <= again:
			again -= int(r.Get("count").N)
		default:
			x.Errorf("a row without a drop: %s %v", trial.Dump(r), frames(r))
		}
	}
}

func (w *want) is(r *row.Row) bool {
	reason, wild := strings.CutSuffix(w.reason, "*")
	got := r.Get("reason").S
	return (got == reason || wild && strings.HasPrefix(got, reason)) && trial.Value(r.Get("proto")) == w.proto &&
		has(r, "lport", w.lport) && has(r, "rport", w.rport) &&
		trial.Value(r.Get("dir")) == cmp.Or(w.dir, "in") && has(r, "dev", w.dev) && slices.ContainsFunc(frames(r), func(f string) bool { return slices.Contains(strings.Fields(w.through), f) })
}

// has reports whether a column has a value; "" stands for any value.
func has(r *row.Row, id, value string) bool { return value == "" || trial.Value(r.Get(id)) == value }

// frames are the functions of a row's stack.
func frames(r *row.Row) (names []string) {
	if st, ok := r.Get("kstack").Ref.(*kern.Stack); ok {
		for _, f := range st.Frames {
			names = append(names, f.Sym)
		}
	}
	return names
}

// noSocket: datagrams to a port without a socket.
func noSocket(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := want{reason: "NO_SOCKET", through: received4, proto: "udp", dev: "eth0", lport: fmt.Sprint(closed), count: 23,
			counters: map[string]int{"UdpNoPorts": 23}}
		if network == lab.UDP6 {
			w.through, w.counters = received6, map[string]int{"Udp6NoPorts": 23}
		}
		return counted(x, func() error { return letters(x.World, network, closed, 23, 100) }, w)
	}
}
