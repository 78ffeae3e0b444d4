// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Capture keeps what a device sends over IPv4 to one TCP port. A packet socket
// sees packets behind the queueing discipline: what that drops is not in it.
type Capture struct {
	fd, port int
}

// Capture begins.
func (w *World) Capture(host, dev string, port int) (*Capture, error) {
	c := &Capture{port: port}
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
			unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}))
	})
	if err != nil {
		return nil, fmt.Errorf("lab: capture: %w", err)
	}
	return c, nil
}

// Sent ends the capture: how many bytes of payload the one session to the port
// sent, each counted once. That is the distance of the highest sequence number
// from the SYN's.
func (c *Capture) Sent() (bytes int, err error) {
	defer unix.Close(c.fd)
	var first uint32
	begun := false
	for buf := make([]byte, 128); ; {
		n, from, err := unix.Recvfrom(c.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			return 0, fmt.Errorf("lab: capture: %w", err)
		}
		if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype != unix.PACKET_OUTGOING || n < 40 || buf[0]>>4 != 4 || buf[9] != unix.IPPROTO_TCP {
			continue
		}
		tcp := buf[4*int(buf[0]&15):]
		if int(binary.BigEndian.Uint16(tcp[2:])) != c.port {
			continue
		}
		seq, flags := binary.BigEndian.Uint32(tcp[4:]), int(tcp[13])
		payload := int(binary.BigEndian.Uint16(buf[2:])) - 4*int(buf[0]&15) - 4*int(tcp[12]>>4)
		if flags&SYN != 0 {
			first, begun = seq+1, true
			seq++
		}
		if begun {
			bytes = max(bytes, int(seq-first)+payload)
		}
	}
	if !begun {
		return 0, fmt.Errorf("lab: capture: no SYN to port %d", c.port)
	}
	lost, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets are missing", lost.Drops)
	}
	if err != nil {
		return 0, fmt.Errorf("lab: capture: %w", err)
	}
	return bytes, nil
}
