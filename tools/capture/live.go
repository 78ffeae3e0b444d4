// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "udp", Hosts: lab.TwoHosts, Run: trial.Undisturbed(udp(lab.UDP4))},
		{Name: "udp6", Hosts: lab.TwoHosts, Run: trial.Undisturbed(udp(lab.UDP6))},
		{Name: "handed-rights", Hosts: lab.TwoHosts, Run: trial.Undisturbed(handed("rights"))},
		{Name: "handed-fork", Hosts: lab.TwoHosts, Run: trial.Undisturbed(handed("fork"))},
		{Name: "loopback", Run: trial.Undisturbed(loopback)},
		{Name: "loopback-filter", Run: trial.Undisturbed(loopbackFilter)},
		{Name: "large", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 1, Send: 300007, Recv: 53})},
		{Name: "older", Hosts: lab.TwoHosts, Run: trial.Undisturbed(older)},
		{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Close: lab.ByReset})},
		// A SYN-ACK is sent in softirq, where the client may be the current process, while
		// the server holds the lock on another processor.
		{Name: "locked", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: min(61, 1+60*(runtime.NumCPU()-1)), Send: 101, Recv: 53, Locked: true})},
		{Name: "ping", Hosts: lab.TwoHosts, Run: trial.Undisturbed(ping(lab.Ping4))},
		{Name: "gone", Hosts: lab.TwoHosts, Run: trial.Undisturbed(gone)},
		{Name: "pings", Hosts: lab.TwoHosts, Run: trial.Undisturbed(pings)},
		{Name: "vlan", Hosts: lab.TwoHosts, Run: trial.Undisturbed(vlan)},
		{Name: "vlan-tcp", Hosts: lab.TwoHosts, Run: trial.Undisturbed(vlanTagged)},
		{Name: "vlan-device", Hosts: lab.TwoHosts, Run: trial.Undisturbed(vlanDevice)},
		{Name: "ping-raw", Hosts: lab.TwoHosts, Run: trial.Undisturbed(ping(lab.Raw6))},
		{Name: "nat", Run: trial.Undisturbed(nat)},
		{Name: "frames", Hosts: lab.TwoHosts, Run: trial.Undisturbed(frames)},
		{Name: "snaplen", Hosts: lab.TwoHosts, Run: trial.Undisturbed(snaplen)},
		{Name: "lost", Hosts: lab.TwoHosts, Run: lost},
	}
}

// udp: an outgoing datagram has the process that sent it, an incoming one the process that reads it.
func udp(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		f, err := lab.StartFlood(x.World, lab.Flood{Network: n, Count: 101, Size: 73})
		if err != nil {
			return err
		}
		rows, err := equal(x, func() error { _, err := f.Run(); return err })
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, r := range rows {
			if at := port(r, f.Port); at != "" && r.Get("proto").S == "udp" {
				x.Want(r, "pid", map[string]*lab.Proc{"lport": f.Server, "rport": f.Client}[at].PID)
				seen[at]++
			}
		}
		if seen["lport"] < 101 || seen["rport"] < 101 {
			x.Fail(trial.Fewer(min(seen["lport"], seen["rport"]), 101, "%d datagrams sent and %d received, want 101", seen["rport"], seen["lport"]))
		}
		return nil
	}
}

// handed: one process accepts a connection, and another one sends on it. The packets are the sender's from
// the first one on.
func handed(how string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, err := lab.StartTalks(x.World, "", "", lab.Talk{Turns: 3, Answer: 1009, Hand: how, First: true})
		if err != nil {
			return err
		}
		var said []lab.TalkResult
		rows, err := equal(x, func() error {
			if said, err = t.Run(); err != nil {
				return err
			}
			return x.World.Closed()
		})
		if err != nil {
			return err
		}
		var answers []*row.Row // with data
		for _, r := range rows {
			if port(r, t.Ports[0]) == "lport" && r.Get("dir").S == "out" && payload(r) > 0 {
				answers = append(answers, r)
			}
		}
		if len(answers) < 4 {
			x.Fail(trial.Fewer(len(answers), 4, "%d answers, want 4", len(answers)))
			return nil
		}
		if n := payload(answers[1]); n != 5 {
			x.Errorf("the taker's first packet has %d bytes of data, want 5", n)
		}
		x.Want(answers[0], "pid", t.Server.PID)
		for _, r := range answers[1:] {
			x.Want(r, "pid", said[0].Server.Taker)
			x.Want(r, "comm", lab.HandComm)
		}
		return nil
	}
}

// payload is the number of data bytes of a TCP packet over IPv4 and Ethernet.
func payload(r *row.Row) int {
	f := r.Bytes
	if len(f) < 14+20+20 || f[12] != 8 || f[13] != 0 {
		return 0
	}
	ip := int(f[14]&15) * 4
	return int(binary.BigEndian.Uint16(f[16:])) - ip - int(f[14+ip+12]>>4)*4
}

// gone: a packet that arrives after its socket was closed has the process that had the socket open. The
// connections are older than the tool, and their servers send nothing before they end.
func gone(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Hold: true, Close: lab.ByReset})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	var r lab.TCPResult
	const mark = 0x5e1e0001 // sequence number of the late segments
	rows, err := equal(x, func() error {
		if r, err = t.Run(); err != nil {
			return err
		}
		if err := x.World.Closed(); err != nil {
			return err
		}
		client, server := x.World.Addr4("client"), x.World.Addr4("server")
		for _, s := range r.Client.Sessions {
			to := lab.Packet{Src: client, Dst: server, Proto: unix.IPPROTO_TCP, Payload: lab.TCPHeader(client, server, s.ClientPort, t.Port, mark, tcpACK)}
			back := lab.Packet{Src: server, Dst: client, Proto: unix.IPPROTO_TCP, Payload: lab.TCPHeader(server, client, t.Port, s.ClientPort, mark, tcpACK)}
			if err := errors.Join(x.World.Inject("client", to), x.World.Inject("server", back)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	n := 0
	for _, r := range rows {
		at := port(r, t.Port)
		if at == "" {
			continue
		}
		x.Want(r, "pid", map[string]*lab.Proc{"lport": t.Server, "rport": t.Client}[at].PID)
		if len(r.Bytes) >= 42 && binary.BigEndian.Uint32(r.Bytes[38:]) == mark {
			n++
		}
	}
	x.Fail(trial.Fewer(n, 12, "%d late segments sent and received, want 12", n))
	return nil
}

const tcpACK = 0x10

// loopback: each packet has one row, with its sender and its receiver.
func loopback(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 101, Recv: 53})
	if err != nil {
		return err
	}
	rows, err := exchanged(x, t)
	if err != nil {
		return err
	}
	for _, r := range rows {
		from, to := t.Client, t.Server
		if port(r, t.Port) == "lport" {
			from, to = to, from
		}
		x.Want(r, "dir", "out")
		x.Want(r, "dev", "lo")
		x.Want(r, "pid", from.PID)
		x.Want(r, "to_pid", to.PID)
		x.Want(r, "to_comm", to.Comm)
	}
	if n := len(rows); n < 7*7 {
		x.Errorf("%d packets of 7 sessions, want 49 at least", n)
	}
	return nil
}

// loopbackFilter: a packet passes if its sender or its receiver does. Packets between two other
// processes do not.
func loopbackFilter(x *trial.Trial) error {
	var all []*lab.TCP
	for _, server := range []string{"web", "api"} {
		t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 101, Recv: 53, ClientComm: "browser", ServerComm: server})
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	rows, err := x.Rows(func() error {
		for _, t := range all {
			if _, err := t.Run(); err != nil {
				return err
			}
		}
		return x.World.Closed()
	}, "--comm=web", "--proto=tcp")
	if err != nil {
		return err
	}
	to := map[string]int{}
	for _, r := range rows {
		if port(r, all[0].Port) == "" {
			x.Errorf("neither from nor to web: %s", trial.Dump(r))
		}
		to[r.Get("to_comm").S]++
	}
	if to["web"] < 3*3 || to["browser"] < 3*3 {
		x.Errorf("packets by receiver %v, want 9 at least of 3 sessions to both", to)
	}
	return nil
}

// older: the connections are older than the tool.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 101, Recv: 53, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	rows, err := equal(x, func() error {
		if _, err := t.Run(); err != nil {
			return err
		}
		return x.World.Closed()
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if at := port(r, t.Port); at != "" {
			x.Want(r, "pid", map[string]*lab.Proc{"lport": t.Server, "rport": t.Client}[at].PID)
		}
	}
	return nil
}

// ping: requests and replies have the process that pings. The kernel replies without a process.
func ping(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		e, err := lab.StartEcho(x.World, "client", "pinger", lab.Echo{Network: n, Addr: x.World.Addr("server", n), Count: 7, Ident: 4711})
		if err != nil {
			return err
		}
		rows, err := equal(x, func() error { _, err := e.Run(); return err })
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, r := range rows {
			c := r.Get("netns")
			proto, at := "icmp", 14+20 // offset of the type
			if n == lab.Raw6 || n == lab.Ping6 {
				proto, at = "icmpv6", 14+40
			}
			if r.Get("proto").S != proto || len(r.Bytes) <= at || !slices.Contains([]byte{0, 8, 128, 129}, r.Bytes[at]) {
				continue
			}
			if c.N == uint64(x.World.Netns("client")) {
				x.Want(r, "pid", e.PID)
				seen[r.Get("dir").S]++
			} else {
				x.Want(r, "pid", "-")
			}
		}
		if seen["in"] != 7 || seen["out"] != 7 {
			x.Fail(trial.Fewer(min(seen["in"], seen["out"]), 7, "%d requests and %d answers, want 7", seen["out"], seen["in"]))
		}
		return nil
	}
}

// pings: two processes ping the same host at once, and each reply has the right one. The host does not reply;
// the case replies after both requests.
func pings(x *trial.Trial) error {
	if err := x.World.Sysctl("server", "net.ipv4.icmp_echo_ignore_all", "1"); err != nil {
		return err
	}
	server, client := x.World.Addr4("server"), x.World.Addr4("client")
	var all []*lab.Echoes
	for _, id := range []uint16{4711, 4713} {
		e, err := lab.StartEcho(x.World, "client", fmt.Sprint("pinger-", id), lab.Echo{Network: lab.Raw4, Addr: server, Count: 1, Ident: id})
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	rows, err := equal(x, func() error {
		before, err := x.World.Counters("client")
		if err != nil {
			return err
		}
		for _, e := range all {
			if err := e.Tell("go"); err != nil {
				return err
			}
		}
		for asked := int64(0); asked < 2; time.Sleep(time.Millisecond) {
			now, err := x.World.Counters("client")
			if err != nil {
				return err
			}
			asked = now["IcmpOutEchos"] - before["IcmpOutEchos"]
		}
		for _, e := range all {
			reply := lab.Packet{Src: server, Dst: client, Proto: unix.IPPROTO_ICMP, Payload: lab.EchoReply(e.Echo.Ident, 1)}
			if err := x.World.Inject("server", reply); err != nil {
				return err
			}
			var r lab.EchoResult
			if err := e.Expect(&r); err != nil {
				return err
			}
			if r.NS[0] < 0 {
				return fmt.Errorf("the answer to %d did not come", e.Echo.Ident)
			}
			if err := e.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, r := range rows {
		if r.Get("proto").S != "icmp" || r.Get("netns").N != uint64(x.World.Netns("client")) {
			continue
		}
		for _, e := range all {
			if len(r.Bytes) >= 42 && binary.BigEndian.Uint16(r.Bytes[38:]) == e.Echo.Ident {
				x.Want(r, "pid", e.PID)
				seen[r.Get("dir").S]++
			}
		}
	}
	if seen["in"] != 2 || seen["out"] != 2 {
		x.Fail(trial.Fewer(min(seen["in"], seen["out"]), 2, "%d requests and %d answers, want 2", seen["out"], seen["in"]))
	}
	return nil
}

// vlan: a captured packet has the VLAN tag that it has on the wire, whether the tag is in the data or in the
// skb's own field.
func vlan(x *trial.Trial) error {
	const count, tci = 13, 3<<13 | 1234
	dev := x.World.Dev("client", "server")
	rows, err := equal(x, func() error {
		if _, err := x.World.SendTagged("client", dev, count, 100, tci); err != nil {
			return err
		}
		undo, err := x.World.TagVLAN("client", dev, tci)
		if err != nil {
			return err
		}
		_, err = x.World.SendFrames("client", dev, count, 100)
		return errors.Join(err, undo())
	})
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	seen := map[string]int{} // by length and direction
	for _, r := range rows {
		f := r.Bytes
		if hasTag(f, tci) && f[16] == 0x88 && f[17] == 0xb5 {
			x.Want(r, "bytes", len(f))
			seen[fmt.Sprint(len(f), " ", r.Get("dir").S)]++
		}
	}
	for _, k := range []string{"100 out", "100 in", "104 out", "104 in"} {
		x.Fail(trial.Fewer(seen[k], count, "%d tagged frames of %s bytes, want %d", seen[k], k, count))
	}
	return nil
}

// vlanTagged: all packets of the sessions have a tag on the wire, which the kernel keeps in the skb's own field.
func vlanTagged(x *trial.Trial) error {
	const tci = 3<<13 | 1234
	for _, h := range lab.TwoHosts {
		undo, err := x.World.TagVLAN(h, x.World.Dev(h, other(h)), tci)
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		defer undo()
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 101, Recv: 53})
	if err != nil {
		return err
	}
	rows, err := talked(x, t)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if f := r.Bytes; !hasTag(f, tci) {
			x.Errorf("no tag in %x, by %s", f[:min(len(f), 20)], trial.Dump(r))
		}
	}
	return nil
}

// hasTag reports whether a frame has this VLAN tag.
func hasTag(f []byte, tci uint16) bool {
	return len(f) >= 18 && f[12] == 0x81 && f[13] == 0 && binary.BigEndian.Uint16(f[14:]) == tci
}

// vlanDevice: a packet that a VLAN device sends is captured there without a tag, and at the device below with it.
// A packet that it receives is captured at the device below alone.
func vlanDevice(x *trial.Trial) error {
	const dev, id = "vlan0", 1234
	var addrs []netip.Addr
	for i, h := range lab.TwoHosts {
		addrs = append(addrs, netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}))
		err := x.World.VLAN(h, dev, x.World.Dev(h, other(h)), id, netip.PrefixFrom(addrs[i], 24))
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 101, Recv: 53, Addrs: addrs[1:]})
	if err != nil {
		return err
	}
	rows, err := talked(x, t)
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, r := range rows {
		at, dir, tagged := r.Get("dev").S == dev, r.Get("dir").S, hasTag(r.Bytes, id)
		seen[fmt.Sprintf("%s, at the VLAN device: %v, with a tag: %v", dir, at, tagged)]++
	}
	n := seen["in, at the VLAN device: false, with a tag: true"]
	want := map[string]int{
		"out, at the VLAN device: true, with a tag: false": n,
		"out, at the VLAN device: false, with a tag: true": n,
		"in, at the VLAN device: false, with a tag: true":  n,
	}
	// A session has a handshake, two messages and two FINs.
	if least := 7 * t.Sessions.Count; n < least || !maps.Equal(seen, want) {
		x.Errorf("the packets are %v, want %v, %d at least of each", seen, want, least)
	}
	return nil
}

func other(host string) string {
	if host == lab.TwoHosts[0] {
		return lab.TwoHosts[1]
	}
	return lab.TwoHosts[0]
}

// nat: netfilter rewrites the port, so packets and their socket have different ones.
func nat(x *trial.Trial) error {
	const asked = 4711
	f, err := lab.StartFlood(x.World, lab.Flood{Count: 53, Size: 73})
	if err != nil {
		return err
	}
	if err := x.World.Redirect("", unix.IPPROTO_UDP, asked, uint16(f.Port)); errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	const count = 31
	rows, err := equal(x, func() error {
		if err := x.World.SendUDP("", fmt.Sprint("127.0.0.1:", asked), count); err != nil {
			return err
		}
		_, err := f.Run()
		return err
	})
	if err != nil {
		return err
	}
	mine := 0
	for _, r := range rows {
		if port(r, f.Port) == "rport" && r.Get("pid").N == uint64(os.Getpid()) {
			mine++
			x.Want(r, "to_pid", f.Server.PID)
		}
	}
	x.Fail(trial.Fewer(mine, count, "%d redirected datagrams, want %d", mine, count))
	return nil
}

// frames: packets that are not IP have no process.
func frames(x *trial.Trial) error {
	rows, err := equal(x, func() error {
		_, err := x.World.SendFrames("client", x.World.Dev("client", "server"), 13, 100)
		return err
	})
	if err != nil {
		return err
	}
	n := 0
	for _, r := range rows {
		if len(r.Bytes) == 100 && r.Bytes[12] == 0x88 && r.Bytes[13] == 0xb5 {
			n++
			x.Want(r, "pid", "-")
			x.Want(r, "laddr", "-")
		}
	}
	x.Fail(trial.Fewer(n, 26, "%d frames sent and received, want 26", n))
	return nil
}

// snaplen: a row has the beginning of each packet and its full length.
func snaplen(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 101, Recv: 5003})
	if err != nil {
		return err
	}
	rows, err := equalUpTo(x, 81, func() error { _, err := t.Run(); return err }, "--snaplen=81")
	if err != nil {
		return err
	}
	long := 0
	for _, r := range rows {
		if len(r.Bytes) > 81 {
			x.Errorf("%d bytes are kept, want 81 at the most", len(r.Bytes))
		}
		if r.Get("bytes").N > 81 {
			long++
		}
	}
	if long == 0 {
		x.Errorf("no packet is longer than 81 bytes")
	}
	return nil
}

// lost: packets that did not fit are counted. Rows and lost packets together are all packets.
func lost(x *trial.Trial) error {
	const count = 30011
	f, err := lab.StartFlood(x.World, lab.Flood{Count: count, Size: 73, Idle: true})
	if err != nil {
		return err
	}
	x.Stalled = true
	if err := x.Attach(fmt.Sprint("--port=", f.Port), "--buffer=64k"); err != nil {
		return err
	}
	r, err := f.Run()
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	dropped := x.Report.Losses[0]
	if dropped == 0 {
		x.Errorf("nothing was lost of %d packets", r.Sent)
	}
	sent, received := 0, 0
	for _, r := range rows {
		if r.Get("dir").S == "out" {
			sent++
		} else {
			received++
		}
	}
	// Each sent packet arrives at the other host, unless the backlog queue of a CPU was full.
	all := len(rows) + int(dropped)
	if all > 2*r.Sent || all < 2*r.Sent-r.Missing {
		x.Fail(trial.Fewer(all, 2*r.Sent-r.Missing, "%d sent, %d received, %d lost: want %d to %d in all", sent, received, dropped, 2*r.Sent-r.Missing, 2*r.Sent))
	}
	return nil
}
