// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// qdiscs reads the queueing disciplines of a network namespace: that of the thread that
// opened it.
type qdiscs struct{ fd int }

// qdiscCount holds the kernel's counters of a device's disciplines. Roots include their
// children.
type qdiscCount struct{ dropped, overlimits, backlog uint32 }

func openQdiscs() (*qdiscs, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	timeout := unix.NsecToTimeval(int64(1e9))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &qdiscs{fd}, nil
}

func (q *qdiscs) close() {
	if q != nil {
		unix.Close(q.fd)
	}
}

// read returns the counters by device, nil if the kernel does not give them. buf is for messages.
func (q *qdiscs) read(buf []byte) map[string]qdiscCount {
	if q == nil {
		return nil
	}
	names := map[int32]string{}
	err := q.dump(buf, unix.RTM_GETLINK, unix.SizeofIfInfomsg, func(body []byte) {
		index := int32(binary.NativeEndian.Uint32(body[4:]))
		attrs(body[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			if kind == unix.IFLA_IFNAME {
				names[index] = unix.ByteSliceToString(value)
			}
		})
	})
	if err != nil {
		return nil
	}
	const tcmsg, root = 20, 0xffffffff
	out := map[string]qdiscCount{}
	err = q.dump(buf, unix.RTM_GETQDISC, tcmsg, func(body []byte) {
		name := names[int32(binary.NativeEndian.Uint32(body[4:]))]
		if binary.NativeEndian.Uint32(body[12:]) != root || name == "" {
			return
		}
		attrs(body[tcmsg:], func(kind uint16, value []byte) {
			if kind != 7 { // TCA_STATS2
				return
			}
			attrs(value, func(kind uint16, value []byte) {
				if kind == 3 && len(value) >= 20 { // TCA_STATS_QUEUE: length, backlog, drops, requeues, overlimits
					word := func(i int) uint32 { return binary.NativeEndian.Uint32(value[4*i:]) }
					out[name] = qdiscCount{dropped: word(2), overlimits: word(4), backlog: word(1)}
				}
			})
		})
	})
	if err != nil {
		return nil
	}
	return out
}

// dump requests all objects of a kind. head is the length of their message header. buf has room for
// 64 KiB.
func (q *qdiscs) dump(buf []byte, kind uint16, head int, do func(body []byte)) error {
	msg := make([]byte, unix.SizeofNlMsghdr+head)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], kind)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(q.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(q.fd, buf, 0)
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(rest))
			if size < unix.SizeofNlMsghdr || size > len(rest) {
				return errors.New("netlink: a message that is too short")
			}
			body := rest[unix.SizeofNlMsghdr:size]
			switch binary.NativeEndian.Uint16(rest[4:]) {
			case unix.NLMSG_DONE:
				return nil
			case unix.NLMSG_ERROR:
				return errors.New("netlink: refused")
			}
			if len(body) >= head {
				do(body)
			}
			rest = rest[min((size+3)&^3, len(rest)):]
		}
	}
}

// attrs calls do with each attribute.
func attrs(b []byte, do func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		do(binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED, b[4:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}
