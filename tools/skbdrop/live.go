// SPDX-License-Identifier: Apache-2.0

package skbdrop

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "checksum", Hosts: lab.TwoHosts, Run: checksum},
		{Name: "no-socket-ipv6", Hosts: lab.TwoHosts, Run: noSocket(lab.UDP6)},
		{Name: "segments", Hosts: lab.TwoHosts, Run: segments},
		{Name: "receive-buffer", Hosts: lab.TwoHosts, Run: receiveBuffer},
		{Name: "netfilter", Hosts: lab.TwoHosts, Run: netfilter},
		{Name: "protocol", Hosts: lab.TwoHosts, Run: protocol},
		{Name: "extension-headers", Hosts: lab.TwoHosts, Run: extensions},
		{Name: "reset", Hosts: lab.TwoHosts, Run: reset},
		{Name: "qdisc", Hosts: lab.TwoHosts, Run: qdisc},
		{Name: "none", Hosts: lab.TwoHosts, Run: none},
	}
}

// socketTold reports whether the tracepoint also names the socket.
func socketTold() bool { return told() > 3 }

// segments: a buffer of seven datagrams counts as seven. On old kernels veth
// does not keep them together.
func segments(x *trial.Trial) error {
	addr := lab.UDP4.At(x.World.Addr4("server"), closed)
	m, err := lab.StartMarks(x.World, "client", "sender", lab.Marks{Network: lab.UDP4, Addr: addr, None: 1, Segments: 7})
	if err != nil {
		return err
	}
	return counted(x, func() error { return errors.Join(m.Run(), x.World.Settle()) }, want{
		reason: "NO_SOCKET", through: received4, proto: "udp", dev: "eth0", lport: fmt.Sprint(closed), count: 7, each: "UdpNoPorts",
	})
}

// checksum: packets whose checksums are wrong, at three layers.
func checksum(x *trial.Trial) error {
	src, dst := x.World.Addr4("client"), x.World.Addr4("server")
	var all []lab.Packet
	add := func(n int, p lab.Packet) {
		p.Src, p.Dst = src, dst
		all = append(all, slices.Repeat([]lab.Packet{p}, n)...)
	}
	add(13, lab.Packet{Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed)})
	var none = lab.Packet{}.Src
	add(11, lab.Packet{Proto: unix.IPPROTO_TCP, Payload: lab.TCPHeader(none, none, 7, closed, 1, lab.SYN)})
	add(7, lab.Packet{Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed), BadSum: true})
	group := func(reason, through, proto string, n int, counters ...string) want {
		w := want{reason: reason, through: through, proto: proto, dev: "eth0", lport: fmt.Sprint(closed), rport: "7",
			count: n, counters: map[string]int{}}
		for _, c := range counters {
			w.counters[c] = n
		}
		return w
	}
	return counted(x, func() error {
		return errors.Join(x.World.Inject("client", all...), x.World.Settle())
	},
		group("UDP_CSUM", received4, "udp", 13, "UdpInCsumErrors"),
		group("TCP_CSUM", "tcp_v4_rcv", "tcp", 11, "TcpInCsumErrors"),
		group("IP_CSUM", "ip_rcv ip_rcv_core", "udp", 7, "IpExtInCsumErrors", "IpInHdrErrors"),
	)
}

// receiveBuffer: a server that does not read. The socket counts its drops.
func receiveBuffer(x *trial.Trial) error {
	f, err := lab.StartFlood(x.World, lab.Flood{Count: 101, Size: 1000, RcvBuf: 8192, Idle: true, ClientHost: "client", ServerHost: "server"})
	if err != nil {
		return err
	}
	var r lab.FloodResult
	rows, err := x.Rows(func() error {
		r, err = f.Run()
		return errors.Join(err, x.World.Settle())
	}, by)
	if err != nil {
		return err
	}
	if r.Dropped < 50 || r.Missing != 0 {
		return fmt.Errorf("%+v: want more than 50 of 101 dropped, and none missing", r)
	}
	compare(x, rows, 0, []want{{
		reason: "SOCKET_RCVBUFF", through: received4, proto: "udp", lport: fmt.Sprint(f.Port), count: r.Dropped,
		counters: map[string]int{"UdpRcvbufErrors": r.Dropped},
	}})
	return nil
}

// netfilter: a chain whose policy is to drop.
func netfilter(x *trial.Trial) error {
	if err := x.World.Refuse("server"); errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	return counted(x, func() error { return letters(x.World, lab.UDP4, closed, 23, 100) },
		want{reason: "NETFILTER_DROP", through: "nf_hook_slow", proto: "udp", dev: "eth0", lport: fmt.Sprint(closed), count: 23})
}

// protocol: packets of an unknown protocol (RFC 3692).
func protocol(x *trial.Trial) error {
	p := lab.Packet{Src: x.World.Addr4("client"), Dst: x.World.Addr4("server"), Proto: 253, Payload: make([]byte, 20)}
	return counted(x, func() error {
		return errors.Join(x.World.Inject("client", slices.Repeat([]lab.Packet{p}, 19)...), x.World.Settle())
	}, want{reason: "IP_NOPROTO", through: "ip_protocol_deliver_rcu ip_local_deliver_finish", proto: "253", dev: "eth0", count: 19, counters: map[string]int{"IpInUnknownProtos": 19}})
}

// extensions: headers after an IPv6 extension header are found. If the packet ends
// within an extension header, nothing is read.
func extensions(x *trial.Trial) error {
	const options = 60 // for the destination
	packet := func(payload ...[]byte) lab.Packet {
		return lab.Packet{Src: x.World.Addr6("client"), Dst: x.World.Addr6("server"), Proto: options, Payload: slices.Concat(payload...)}
	}
	// The next header, how many times 8 bytes there are after the first 8, and an
	// option of 12 bytes for experiments, which is to be skipped (RFC 4727).
	long := []byte{unix.IPPROTO_UDP, 1, 0x1e, 12, 15: 0}
	all := slices.Repeat([]lab.Packet{packet(long, lab.UDPHeader(7, closed))}, 13)
	all = append(all, slices.Repeat([]lab.Packet{packet([]byte{unix.IPPROTO_UDP, 0, 0, 0})}, 11)...)
	return counted(x, func() error {
		return errors.Join(x.World.Inject("client", all...), x.World.Settle())
	},
		want{reason: "UDP_CSUM", through: received6, proto: "udp", dev: "eth0", lport: fmt.Sprint(closed), rport: "7", count: 13,
			counters: map[string]int{"Udp6InCsumErrors": 13}},
		want{reason: "*", through: "ipv6_destopt_rcv ip6_protocol_deliver_rcu", proto: fmt.Sprint(options), dev: "eth0", count: 11,
			counters: map[string]int{"Ip6InHdrErrors": 11}},
	)
}

// reset: RSTs within the window but not at the next byte, as an attacker would
// guess (RFC 5961), are ignored by TCP.
func reset(x *trial.Trial) error {
	if !reasoned() {
		return trial.Skip("without reasons a TCP socket drops without a word: tcpdrop knows how to see it")
	}
	c, err := x.World.Dial("client", "server")
	if err != nil {
		return err
	}
	defer c.Close()
	var all []lab.Packet
	for i := range uint32(17) {
		all = append(all, lab.Packet{Src: c.Src, Dst: c.Dst, Proto: unix.IPPROTO_TCP,
			Payload: lab.TCPHeader(c.Src, c.Dst, c.Sport, c.Dport, c.Seq+100+i, lab.RST)})
	}
	return counted(x, func() error {
		return errors.Join(x.World.Inject("client", all...), x.World.Settle())
	}, want{reason: "TCP_RESET", through: "tcp_v4_rcv", proto: "tcp", lport: fmt.Sprint(c.Dport), rport: fmt.Sprint(c.Sport), count: 17})
}

// qdisc: more than a queue holds. The queueing discipline counts its drops.
func qdisc(x *trial.Trial) error {
	if err := x.World.Throttle("client"); err != nil {
		return err
	}
	t, err := lab.StartTargets(x.World, "server", "holder", lab.Target{Network: lab.UDP4})
	if err != nil {
		return err
	}
	var dropped uint32
	var moved lab.Counters
	rows, err := x.Rows(func() (err error) {
		moved, err = x.World.Counted("client", func() error {
			before, err := x.World.QdiscDrops("client")
			if err != nil {
				return err
			}
			if err := letters(x.World, lab.UDP4, t.Port(0), 101, 100); err != nil {
				return err
			}
			dropped, err = x.World.QdiscDrops("client")
			dropped -= before
			return err
		})
		return err
	}, by)
	if err != nil {
		return err
	}
	// The queue may also drop IPv6's own reports.
	errs := moved["UdpSndbufErrors"]
	if n := int64(dropped) - errs; errs < 50 || n < 0 || n > moved["Ip6OutRequests"] {
		return fmt.Errorf("the queue has dropped %d of 101 and of %d of IPv6, UDP says %d: want more than 50", dropped, moved["Ip6OutRequests"], errs)
	}
	compare(x, rows, 0, []want{{
		reason: "QDISC_*", through: "__dev_queue_xmit", proto: "udp", dev: "eth0", dir: "out", rport: fmt.Sprint(t.Port(0)), count: int(errs),
		counters: map[string]int{"UdpSndbufErrors": int(errs), "IpOutDiscards": int(errs)},
	}})
	return nil
}

// none: packets that reach their receivers. If the kernel gives reasons, the
// tool counts none of them.
func none(x *trial.Trial) error {
	if !reasoned() {
		return trial.Skip("this kernel gives no reasons: packets that were used may be among what it frees")
	}
	if err := x.World.PinChildren(); err != nil { // a packet that was overtaken may be dropped
		return err
	}
	s, err := lab.StartTCP(x.World, lab.Sessions{Count: 23, Send: 100000, Recv: 1000})
	if err != nil {
		return err
	}
	s6, err := lab.StartTCP(x.World, lab.Sessions{Count: 5, Send: 1000, Recv: 1000, Network: lab.TCP6})
	if err != nil {
		return err
	}
	f, err := lab.StartFlood(x.World, lab.Flood{Count: 23, ClientHost: "client", ServerHost: "server"})
	if err != nil {
		return err
	}
	c, err := x.World.Dial("client", "server")
	if err != nil {
		return err
	}
	defer c.Close()
	return counted(x, func() error {
		if socketTold() {
			if err := c.CloseApart(); err != nil {
				return err
			}
		}
		if _, err := s.Run(); err != nil {
			return err
		}
		if _, err := s6.Run(); err != nil {
			return err
		}
		_, err := f.Run()
		return errors.Join(err, x.World.Settle())
	})
}
