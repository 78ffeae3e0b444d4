// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Packet is an IP packet that no socket would send.
type Packet struct {
	Src, Dst netip.Addr
	Proto    byte   // IPv6: of the first header after IP's own
	Payload  []byte // from the header of the protocol on
	BadSum   bool   // wrong checksum of the IP header; IPv6 has none
}

// bytes is the packet with its IP header.
func (p Packet) bytes() []byte {
	if p.Src.Is6() {
		h := make([]byte, 40, 40+len(p.Payload))
		h[0], h[6], h[7] = 0x60, p.Proto, 64
		binary.BigEndian.PutUint16(h[4:], uint16(len(p.Payload)))
		copy(h[8:], p.Src.AsSlice())
		copy(h[24:], p.Dst.AsSlice())
		return append(h, p.Payload...)
	}
	h := make([]byte, 20, 20+len(p.Payload))
	h[0], h[8], h[9] = 0x45, 64, p.Proto
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(p.Payload)))
	copy(h[12:], p.Src.AsSlice())
	copy(h[16:], p.Dst.AsSlice())
	sum := checksum(h)
	if p.BadSum {
		sum ^= 0x0bad
	}
	binary.BigEndian.PutUint16(h[10:], sum)
	return append(h, p.Payload...)
}

// UDPHeader is a UDP header without data, with a checksum that is wrong.
func UDPHeader(sport, dport int) []byte {
	h := make([]byte, 8)
	binary.BigEndian.PutUint16(h, uint16(sport))
	binary.BigEndian.PutUint16(h[2:], uint16(dport))
	h[5], h[6] = 8, 0x0b
	return h
}

// TCPHeader is a TCP header without data. Its checksum is right for the two
// addresses, and wrong if they are not valid.
func TCPHeader(src, dst netip.Addr, sport, dport int, seq uint32, flags byte) []byte {
	h := make([]byte, 20)
	binary.BigEndian.PutUint16(h, uint16(sport))
	binary.BigEndian.PutUint16(h[2:], uint16(dport))
	binary.BigEndian.PutUint32(h[4:], seq)
	h[12], h[13] = 5<<4, flags
	pseudo := slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, unix.IPPROTO_TCP, 0, 20}, h)
	sum := checksum(pseudo)
	if !src.IsValid() {
		sum ^= 0x0bad
	}
	binary.BigEndian.PutUint16(h[16:], sum)
	return h
}

// Inject sends packets over the first link of a host to the host at its other
// end.
func (w *World) Inject(host string, packets ...Packet) error {
	err := w.Do(host, func() error {
		l, err := netlink.LinkByName(w.Devs(host)[0])
		if err != nil {
			return err
		}
		from := l.Attrs().HardwareAddr
		to := slices.Clone(from)
		to[4], to[5] = from[5], from[4] // see pair
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range packets {
			kind := uint16(unix.ETH_P_IP)
			if p.Src.Is6() {
				kind = unix.ETH_P_IPV6
			}
			ether := binary.BigEndian.AppendUint16(nil, kind)
			at := &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index, Protocol: binary.NativeEndian.Uint16(ether)}
			frame := slices.Concat(to, from, ether, p.bytes())
			if err := unix.Sendto(fd, frame, 0, at); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("lab: inject: %w", err)
	}
	return nil
}

// Throttle puts a queueing discipline on the first link of a host. It passes
// some 2 KB at once and then 1 KB a second, holds 3 KB, and drops the rest.
func (w *World) Throttle(host string) error {
	return w.Do(host, func() error {
		l, err := netlink.LinkByName(w.Devs(host)[0])
		if err != nil {
			return err
		}
		const rate = 1000
		err = netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       rate, Limit: 3000, Buffer: netlink.Xmittime(rate, 2000),
		})
		if errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("lab: %w: no queueing discipline tbf", ErrNotSupported)
		}
		return err
	})
}

// QdiscDrops is the number of buffers that the root queueing discipline of a
// host's first link has dropped, by its own count.
func (w *World) QdiscDrops(host string) (n uint32, err error) {
	err = w.Do(host, func() error {
		l, err := netlink.LinkByName(w.Devs(host)[0])
		if err != nil {
			return err
		}
		all, err := netlink.QdiscList(l)
		for _, q := range all {
			if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil {
				n = a.Statistics.Queue.Drops
			}
		}
		return err
	})
	return n, err
}

// A Conn is an open TCP connection whose next sequence number is known.
type Conn struct {
	Src, Dst     netip.Addr
	Sport, Dport int
	Seq          uint32 // that the server waits for
	fds          []int

	world *World
	to    string // the server's host
}

// Close ends it.
func (c *Conn) Close() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
}

// CloseApart closes the server's end, and then the client's, late enough that the
// server's connection is in TIME_WAIT by then.
func (c *Conn) CloseApart() error { return errors.Join(c.CloseServer(), c.CloseClient()) }

// CloseServer closes the server's end, and waits until the client has acknowledged it.
func (c *Conn) CloseServer() error {
	server := c.fds[2]
	c.fds = c.fds[:2]
	const acked = "05" // FIN_WAIT2, for which the kernel keeps only a TIME_WAIT socket once the socket is closed
	return errors.Join(Close(server), Until("the client's ACK of the FIN comes", func() (bool, error) {
		all, err := c.world.connections(c.to)
		return slices.ContainsFunc(all, func(o connection) bool {
			return o.state == acked && o.local == c.Dport && o.remote == c.Sport
		}), err
	}))
}

// CloseClient closes the client's end and the listener, after CloseServer.
func (c *Conn) CloseClient() error {
	listener, client := c.fds[0], c.fds[1]
	c.fds = nil
	return errors.Join(Close(client), Close(listener))
}

// Dial makes a TCP connection over IPv4 between two hosts.
func (w *World) Dial(from, to string) (*Conn, error) {
	c := &Conn{Src: w.Addr4(from), Dst: w.Addr4(to), world: w, to: to}
	err := w.Do(to, func() error {
		fd, port, err := Listen(TCP4, TCP4.At(c.Dst, 0), 1)
		c.fds, c.Dport = append(c.fds, fd), port
		return err
	})
	if err == nil {
		err = w.Do(from, c.connect)
	}
	if err == nil {
		var fd int
		fd, err = Accept(c.fds[0])
		c.fds = append(c.fds, fd)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("lab: dial: %w", err)
	}
	return c, nil
}

func (c *Conn) connect() error {
	fd, err := Connect(TCP4, TCP4.At(c.Dst, c.Dport))
	if err != nil {
		return err
	}
	c.fds = append(c.fds, fd)
	if c.Sport, err = LocalPort(fd); err != nil {
		return err
	}
	const sendQueue = 2 // TCP_SEND_QUEUE
	for _, o := range [][2]int{{unix.TCP_REPAIR, 1}, {unix.TCP_REPAIR_QUEUE, sendQueue}} {
		if err := unix.SetsockoptInt(fd, unix.SOL_TCP, o[0], o[1]); err != nil {
			return fmt.Errorf("TCP_REPAIR: %w", err)
		}
	}
	seq, err := unix.GetsockoptInt(fd, unix.SOL_TCP, unix.TCP_QUEUE_SEQ)
	c.Seq = uint32(seq)
	const quietly = -1 // TCP_REPAIR_OFF_NO_WP: no window probe, which the server would drop
	return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, quietly))
}
