// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"seine/internal/kern"
)

const (
	protoUnix = 0x8000 | unix.AF_UNIX // PROTO_FAMILY of sock.h

	// Attributes of linux/unix_diag.h. The bit of each requests it.
	unixName  = 0
	unixPeer  = 2
	unixQueue = 4
)

// unixRequest is struct unix_diag_req for all sockets, with the attributes above.
type unixRequest struct{}

func (unixRequest) Len() int { return 24 }

func (r unixRequest) Serialize() []byte {
	b := make([]byte, r.Len())
	b[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(b[4:], ^uint32(0)) // states
	binary.NativeEndian.PutUint32(b[12:], 1<<unixName|1<<unixPeer|1<<unixQueue)
	return b
}

// unixSockets asks unix_diag for the UNIX sockets of the thread's network namespace. unix_diag
// knows the length of their queues, and it lists sockets that no process has open. On a kernel
// without it the error is ENOENT.
func unixSockets(add func(*entry)) error {
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	req.AddData(unixRequest{})
	err := req.ExecuteIter(unix.NETLINK_SOCK_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(b []byte) bool {
		if t := unixEntry(b); t != nil {
			add(t)
		}
		return true
	})
	if errors.Is(err, netlink.ErrDumpInterrupted) { // sockets were opened or closed meanwhile
		return nil
	}
	return err
}

// unixEntry reads a struct unix_diag_msg and its attributes. It returns nil if the message is truncated.
func unixEntry(b []byte) *entry {
	const head = 16
	n := binary.NativeEndian
	if len(b) < head {
		return nil
	}
	t := &entry{}
	t.Type, t.State = uint16(b[1]), kern.State(b[2])
	t.Inode, t.Sock = kern.ID(n.Uint32(b[4:])), kern.ID(n.Uint64(b[8:]))
	t.Family, t.Proto = unix.AF_UNIX, protoUnix
	t.Laddr, t.Raddr = kern.NoAddr, kern.NoAddr
	for _, o := range []*kern.Opt{&t.RXQueue, &t.TXQueue, &t.Backlog, &t.BacklogMax, &t.TX, &t.RX, &t.Sent, &t.Received, &t.Waiting, &t.SRTT_us, &t.Cwnd, &t.Retrans, &t.FD} {
		*o = kern.Opt(kern.None)
	}
	for b = b[head:]; len(b) >= unix.SizeofRtAttr; {
		size := int(n.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return nil
		}
		v := b[unix.SizeofRtAttr:size]
		switch kind := n.Uint16(b[2:]); {
		case kind == unixName:
			copy(t.Path[:], v)
		case kind == unixPeer && len(v) >= 4:
			t.PeerInode = kern.ID(n.Uint32(v))
		case kind == unixQueue && len(v) >= 8:
			rx, tx := kern.Opt(n.Uint32(v)), kern.Opt(n.Uint32(v[4:]))
			if t.State == stateListen {
				t.Backlog, t.BacklogMax = rx, tx
			} else {
				t.RXQueue, t.TXQueue = rx, tx
			}
		}
		b = b[min((size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b)):]
	}
	return t
}
