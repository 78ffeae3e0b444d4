// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Sniff is a packet socket on all devices of a host.
type Sniff struct {
	fd    int
	lo    int          // number of the loopback device
	vlans map[int]bool // numbers of the devices for VLANs
	since time.Time
}

// Sniffed is one packet.
type Sniffed struct {
	Ifindex int
	Out     bool
	Frame   []byte // with its VLAN tag, as libpcap puts it back
}

// Sniff begins.
func (w *World) Sniff(host string) (*Sniff, error) {
	s := &Sniff{fd: -1, vlans: map[int]bool{}}
	err := w.Do(host, func() error {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return err
		}
		s.lo = lo.Index
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			s.vlans[l.Attrs().Index] = l.Type() == "vlan"
		}
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		return errors.Join(
			unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<28),
			unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all}))
	})
	if err != nil {
		return nil, fmt.Errorf("lab: sniff: %w", err)
	}
	s.since = time.Now()
	return s, nil
}

// End returns the packets and the time span. The socket sees a packet of the loopback
// device when it is sent and when it is received; the result has it once, as sent. The socket
// sees a packet that a VLAN device receives at the device below too; the result has it there.
func (s *Sniff) End() (all []Sniffed, from, to time.Time, err error) {
	defer unix.Close(s.fd)
	to = time.Now()
	for buf, oob := make([]byte, 1<<20), make([]byte, 128); ; {
		n, control, flags, addr, err := unix.Recvmsg(s.fd, buf, oob, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			return nil, from, to, fmt.Errorf("lab: sniff: %w", err)
		}
		l, ok := addr.(*unix.SockaddrLinklayer)
		if !ok || flags&unix.MSG_TRUNC != 0 {
			return nil, from, to, fmt.Errorf("lab: sniff: %d bytes of %T", n, addr)
		}
		out := l.Pkttype == unix.PACKET_OUTGOING
		if l.Ifindex == s.lo {
			if out {
				continue
			}
			out = true
		}
		if !out && s.vlans[l.Ifindex] {
			continue
		}
		frame, err := tagged(buf[:n], oob[:control])
		if err != nil {
			return nil, from, to, fmt.Errorf("lab: sniff: %w", err)
		}
		all = append(all, Sniffed{l.Ifindex, out, frame})
	}
	lost, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("lab: sniff: %d packets are missing", lost.Drops)
	}
	return all, s.since, to, err
}

// auxdata is struct tpacket_auxdata.
type auxdata struct {
	Status, Len, Snaplen   uint32
	Mac, Net, Tci, VlanTPI uint16
}

// tagged returns a copy of a packet with the VLAN tag that the kernel keeps beside it.
func tagged(frame, control []byte) ([]byte, error) {
	msgs, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	out := append([]byte(nil), frame...)
	for _, m := range msgs {
		var aux auxdata
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < int(unsafe.Sizeof(aux)) {
			continue
		}
		aux = *(*auxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 || len(frame) < 12 {
			continue
		}
		tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, aux.VlanTPI), aux.Tci)
		out = append(append(append(out[:0:0], frame[:12]...), tag...), frame[12:]...)
	}
	return out, nil
}

// SendUDP sends datagrams of 30 bytes from a host to an address, in this
// process.
func (w *World) SendUDP(host, addr string, count int) error {
	return w.Do(host, func() error {
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		for range count {
			if _, err := c.Write(make([]byte, 30)); err != nil && !errors.Is(err, unix.ECONNREFUSED) { // an ICMP error of an earlier datagram
				return err
			}
		}
		return nil
	})
}
