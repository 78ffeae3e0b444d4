// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/row"
)

// CallKey is struct call_count_key of callkey.h: the possible keys of counts of
// socket calls.
type CallKey struct {
	Cgroup     uint64    `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID        ID32      `col:"pid,width=7,key" help:"process"`
	TID        ID32      `col:"tid,width=7,key" help:"thread id"`
	UID        uint32    `col:"uid,width=5,key" help:"user"`
	Op         CallOp    `col:"op,width=10,key" help:"connect, accept, bind, socket, listen, send, receive or socketpair"`
	Comm       Comm      `col:"comm,width=16,key" help:"process name"`
	Thread     Comm      `col:"thread,width=16,key" help:"thread name"`
	Prot       Prot      `col:"prot,width=11,key" help:"the kernel's name of the protocol: TCP, TCPv6, UNIX-STREAM"`
	Family     uint16    `col:"family,width=6,key" help:"address family, by number; 0: the call failed without a socket"`
	FamilyName FamilyAF  `col:"family_name,width=12,key" help:"address family, by name"`
	Proto      uint16    `col:"proto,width=5,key" help:"protocol, by number"`
	CPU        uint16    `col:"-"`
	ProtoName  ProtoFull `col:"proto_name,width=16,key" help:"protocol, by name: IPPROTO_TCP, NETLINK_ROUTE; absent for families without protocol numbers"`
	Netns      ID32      `col:"netns,width=10,key" help:"network namespace, by inode"`
}

// CallCount is struct call_count of callcount.h.
type CallCount struct {
	Count  uint64 `col:"count,width=8,sum" help:"calls"`
	Errors uint64 `col:"errors,width=6,sum" help:"of them, calls that failed; EAGAIN is not counted at all, a connect in progress has not failed"`
}

// CallOp is a socket call: enum call_op of sockcall.h.
type CallOp uint32

var callOps = [...]string{"connect", "accept", "bind", "socket", "listen", "send", "receive", "socketpair"}

// Kind says that a CallOp is shown by name.
func (CallOp) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (o *CallOp) Cell(c *row.Cell) { c.SetWord(uint64(*o), callOps[:]) }

// Prot is the kernel's name of a protocol.
type Prot [32]byte

// Kind says that a Prot is text.
func (Prot) Kind() row.Kind { return row.Text }

// Cell gives the name up to its NUL.
func (p *Prot) Cell(c *row.Cell) { text(p[:], c) }

// FamilyAF is an address family, shown as C spells it: AF_INET.
type FamilyAF uint16

// Kind says that a FamilyAF is shown by name.
func (FamilyAF) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (f *FamilyAF) Cell(c *row.Cell) { c.SetText("AF_" + strings.ToUpper(Family(*f).String())) }

// ProtoFull is a protocol with its family in the high half, shown as C spells
// it.
type ProtoFull uint32

var netlinks = [...]string{
	"ROUTE", "1", "USERSOCK", "FIREWALL", "SOCK_DIAG", "NFLOG", "XFRM", "SELINUX", "ISCSI", "AUDIT", "FIB_LOOKUP",
	"CONNECTOR", "NETFILTER", "IP6_FW", "DNRTMSG", "KOBJECT_UEVENT", "GENERIC", "17", "SCSITRANSPORT", "ECRYPTFS",
	"RDMA", "CRYPTO", "SMC",
}

// Kind says that a ProtoFull is shown by name.
func (ProtoFull) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (p *ProtoFull) Cell(c *row.Cell) {
	proto := Proto(*p)
	switch family := *p >> 16; {
	case (family == unix.AF_INET || family == unix.AF_INET6) && proto == 0:
		c.SetText("IPPROTO_IP")
	case family == unix.AF_INET || family == unix.AF_INET6:
		c.SetText("IPPROTO_" + strings.ToUpper(proto.String()))
	case family == unix.AF_NETLINK && int(proto) < len(netlinks):
		c.SetText("NETLINK_" + netlinks[proto])
	default:
		*c = row.Cell{}
	}
}
