// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Capture keeps the packets that a device sends over IPv4 to one TCP port. A
// packet socket sees packets behind the queueing discipline, so dropped packets
// are not in it.
type Capture struct {
	fd, port int
}

// Capture starts a capture. From now on TCP timestamps of new connections of the host
// have no random offset: they are the host's clock.
func (w *World) Capture(host, dev string, port int) (*Capture, error) {
	c := &Capture{port: port}
	if err := w.Sysctl(host, "net.ipv4.tcp_timestamps", "2"); err != nil {
		return nil, err
	}
	err := w.Do(host, func() error {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<28),
			unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("lab: capture: %w", err)
	}
	return c, nil
}

// segment is a captured one of the session.
type segment struct {
	seq     uint32
	flags   int
	payload int
	stamp   uint32 // TSval: the sender's clock, in milliseconds
	at      time.Time
}

// Sent ends the capture. It returns the payload bytes that the only session to
// the port sent, each counted once: the distance of the highest sequence number
// from the SYN's.
func (c *Capture) Sent() (bytes int, err error) {
	all, err := c.end()
	var first uint32
	begun := false
	for _, s := range all {
		if s.flags&SYN != 0 {
			s.seq++
			first, begun = s.seq, true
		}
		if begun {
			bytes = max(bytes, int(s.seq-first)+s.payload)
		}
	}
	if err == nil && !begun {
		err = fmt.Errorf("lab: capture: no SYN to port %d", c.port)
	}
	return bytes, err
}

// Waits ends the capture. It returns how long each segment with data took from TCP
// to the device, by TCP's timestamp in it, which counts milliseconds.
func (c *Capture) Waits() (waits []time.Duration, err error) {
	all, err := c.end()
	booted := time.Now().Add(-time.Duration(mono()))
	for _, s := range all {
		if s.payload > 0 {
			at := uint64(s.at.Sub(booted).Microseconds())
			waits = append(waits, time.Duration(int32(uint32(at/1000)-s.stamp))*time.Millisecond+time.Duration(at%1000)*time.Microsecond)
		}
	}
	return waits, err
}

// end reads the captured packets.
func (c *Capture) end() (all []segment, err error) {
	defer unix.Close(c.fd)
	for buf, oob := make([]byte, 128), make([]byte, 128); ; {
		n, control, _, from, err := unix.Recvmsg(c.fd, buf, oob, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("lab: capture: %w", err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype != unix.PACKET_OUTGOING {
			continue
		}
		s, port, ok := parseSegment(buf[:n])
		if !ok || port != c.port {
			continue
		}
		if s.at, err = stampOf(oob[:control]); err != nil {
			return nil, fmt.Errorf("lab: capture: %w", err)
		}
		all = append(all, s)
	}
	lost, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets are missing", lost.Drops)
	}
	if err != nil {
		return nil, fmt.Errorf("lab: capture: %w", err)
	}
	return all, nil
}

// parseSegment reads an IPv4 packet of TCP and its destination port.
func parseSegment(b []byte) (s segment, port int, ok bool) {
	if len(b) < 40 || b[0]>>4 != 4 || b[9] != unix.IPPROTO_TCP {
		return s, 0, false
	}
	ip := 4 * int(b[0]&15)
	if len(b) < ip+20 {
		return s, 0, false
	}
	tcp := b[ip:]
	header := 4 * int(tcp[12]>>4)
	s.seq, s.flags = binary.BigEndian.Uint32(tcp[4:]), int(tcp[13])
	s.payload = int(binary.BigEndian.Uint16(b[2:])) - ip - header
	for o := tcp[20:min(header, len(tcp))]; len(o) > 1 && o[0] != 0; {
		switch {
		case o[0] == 1: // no operation
			o = o[1:]
			continue
		case o[0] == 8 && len(o) >= 10: // timestamps
			s.stamp = binary.BigEndian.Uint32(o[2:])
		}
		o = o[min(max(int(o[1]), 2), len(o)):]
	}
	return s, int(binary.BigEndian.Uint16(tcp[2:])), true
}

// stampOf is the time at which the kernel saw a packet.
func stampOf(control []byte) (t time.Time, err error) {
	all, err := unix.ParseSocketControlMessage(control)
	for _, m := range all {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), err
		}
	}
	return t, errors.Join(err, errors.New("a packet has no time"))
}
