// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/row"
)

// Family is an address family, shown by name.
type Family uint16

// Families are the names of address families, as --family takes them.
var Families = map[Family]string{
	unix.AF_UNSPEC: "unspec", unix.AF_UNIX: "unix", unix.AF_INET: "inet", unix.AF_AX25: "ax25", unix.AF_IPX: "ipx",
	unix.AF_APPLETALK: "appletalk", unix.AF_INET6: "inet6", unix.AF_KEY: "key", unix.AF_NETLINK: "netlink",
	unix.AF_PACKET: "packet", unix.AF_RDS: "rds", unix.AF_PPPOX: "pppox", unix.AF_LLC: "llc", unix.AF_IB: "ib",
	unix.AF_MPLS: "mpls", unix.AF_CAN: "can", unix.AF_TIPC: "tipc", unix.AF_BLUETOOTH: "bluetooth",
	unix.AF_IUCV: "iucv", unix.AF_RXRPC: "rxrpc", unix.AF_ISDN: "isdn", unix.AF_PHONET: "phonet",
	unix.AF_IEEE802154: "ieee802154", unix.AF_CAIF: "caif", unix.AF_ALG: "alg", unix.AF_NFC: "nfc",
	unix.AF_VSOCK: "vsock", unix.AF_KCM: "kcm", unix.AF_QIPCRTR: "qipcrtr", unix.AF_SMC: "smc", unix.AF_XDP: "xdp",
}

func (f Family) String() string {
	if s, ok := Families[f]; ok {
		return s
	}
	return strconv.Itoa(int(f))
}

// Kind says that a Family is shown by name.
func (Family) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (f *Family) Cell(c *row.Cell) { c.SetText(f.String()) }

// Proto is a protocol of a socket, shown by name.
type Proto uint16

// Protos are the names of protocols, as --proto takes them.
var Protos = map[Proto]string{
	unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_IGMP: "igmp", unix.IPPROTO_IPIP: "ipip", unix.IPPROTO_TCP: "tcp",
	unix.IPPROTO_EGP: "egp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_DCCP: "dccp", unix.IPPROTO_IPV6: "ipv6",
	unix.IPPROTO_RSVP: "rsvp", unix.IPPROTO_GRE: "gre", unix.IPPROTO_ESP: "esp", unix.IPPROTO_AH: "ah",
	unix.IPPROTO_ICMPV6: "icmpv6", unix.IPPROTO_PIM: "pim", unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_L2TP: "l2tp",
	unix.IPPROTO_UDPLITE: "udplite", unix.IPPROTO_RAW: "raw", unix.IPPROTO_MPTCP: "mptcp",
}

// protoFamily marks sockets of other families than IP. They have no protocol worth a name, and
// are shown by their family. PROTO_FAMILY of sock.h.
const protoFamily = 0x8000

func init() {
	for f, name := range Families {
		if f != unix.AF_INET && f != unix.AF_INET6 {
			Protos[protoFamily|Proto(f)] = name
		}
	}
}

func (p Proto) String() string {
	if s, ok := Protos[p]; ok {
		return s
	}
	return strconv.Itoa(int(p))
}

// OfIP reports whether it is a protocol over IP, not a family.
func (p Proto) OfIP() bool { return p&protoFamily == 0 }

// Kind says that a Proto is shown by name.
func (Proto) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (p *Proto) Cell(c *row.Cell) { c.SetText(p.String()) }

// State is a TCP state.
type State uint8

// The states of a session before its handshake is complete.
const (
	StateSynSent State = 2
	StateSynRecv State = 3
)

var states = [...]string{
	"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE",
	"CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV", "BOUND_INACTIVE",
}

// Kind says that a State is shown by name.
func (State) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (s *State) Cell(c *row.Cell) { c.SetWord(uint64(*s), states[:]) }

// Reset is the side that reset a session: RESET_* of tcplife.bpf.c.
type Reset uint8

// Who reset it.
const (
	ResetRemote Reset = 1
	ResetLocal  Reset = 2
)

var resets = [...]string{"", "remote", "local"}

// Kind says that a Reset is shown by name.
func (Reset) Kind() row.Kind { return row.Text }

// Cell gives the name; absent when nobody did.
func (r *Reset) Cell(c *row.Cell) { c.SetWord(uint64(*r), resets[:]) }

// Dir is the direction of a transfer: enum io_dir of sockio.h.
type Dir uint32

var dirs = [...]string{"read", "write"}

// Kind says that a Dir is shown by name.
func (Dir) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (d *Dir) Cell(c *row.Cell) { c.SetWord(uint64(*d), dirs[:]) }

// Packet is the direction of a packet: enum packet_dir of skb.h.
type Packet uint32

var packets = [...]string{"in", "out"}

// Kind says that a Packet is shown by name.
func (Packet) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (p *Packet) Cell(c *row.Cell) { c.SetWord(uint64(*p), packets[:]) }

// Result is what a call returned: 0 or more, or a negative errno. Its columns
// are named by "result" and "errno".
type Result int32

// Kind says that a Result is a number until it is named.
func (Result) Kind() row.Kind { return row.Int }

// Cell gives the number.
func (r *Result) Cell(c *row.Cell) { c.SetInt(int64(*r)) }

// nameErrno gives ECONNREFUSED for -111; absent for success.
func nameErrno(_ *row.Row, c *row.Cell) {
	if n := int64(c.N); n < 0 {
		c.SetText(ErrnoName(int(-n)))
		return
	}
	*c = row.Cell{}
}

// nameResult gives "Connection refused" for -111, as the C library words it.
func nameResult(_ *row.Row, c *row.Cell) {
	n := int64(c.N)
	if n >= 0 {
		c.SetText("Success")
		return
	}
	c.SetText(ErrnoText(int(-n)))
}

// ErrnoText is "Connection refused" for 111.
func ErrnoText(e int) string {
	s := unix.Errno(e).Error()
	if strings.HasPrefix(s, "errno ") {
		return ErrnoName(e)
	}
	if e == int(unix.EINPROGRESS) {
		return "In progress"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Errno16 is an error number, absent when 0, shown by its name.
type Errno16 uint16

// Kind says that an Errno16 is shown by name.
func (Errno16) Kind() row.Kind { return row.Text }

// Cell gives the name.
func (e *Errno16) Cell(c *row.Cell) {
	if *e == 0 {
		*c = row.Cell{}
		return
	}
	c.SetText(ErrnoName(int(*e)))
}

// ErrnoName is ECONNREFUSED for 111.
func ErrnoName(e int) string {
	if e == int(unix.EOPNOTSUPP) { // ENOTSUP is the same number; of sockets it is this one
		return "EOPNOTSUPP"
	}
	if s := unix.ErrnoName(unix.Errno(e)); s != "" {
		return s
	}
	// The kernel uses these between a system call and its restart; programs never see them.
	switch e {
	case 512, 513, 514, 516:
		return "ERESTART"
	}
	return fmt.Sprintf("errno %d", e)
}

// Namers make the names that need only the row itself.
func Namers() map[string]row.Namer {
	return map[string]row.Namer{
		"ip": nameIP, "errno": nameErrno, "result": nameResult, "connect": nameConnect,
		"local": nameEnd("laddr", "lport"), "remote": nameEnd("raddr", "rport"),
	}
}

// nameEnd is one end of a socket as address and port: 192.0.2.1:80,
// [2001:db8::1]:80.
func nameEnd(addr, port string) row.Namer {
	return func(r *row.Row, c *row.Cell) {
		a, p := r.Get(addr), r.Get(port)
		if a == nil || a.Kind != row.Addr || p == nil {
			*c = row.Cell{}
			return
		}
		c.SetText(netip.AddrPortFrom(a.IP(), uint16(p.N)).String())
	}
}

// nameIP gives 4 or 6 by the addresses: an IPv6 socket may talk IPv4.
func nameIP(r *row.Row, c *row.Cell) {
	a := r.Get("raddr")
	if a == nil {
		a = r.Get("daddr") // of a packet that has no local side
	}
	if a == nil || a.Kind != row.Addr {
		a = r.Get("laddr") // there is but one end
	}
	if a == nil || a.Kind != row.Addr {
		*c = row.Cell{}
		return
	}
	if a.IP().Is4() {
		c.SetText("4")
	} else {
		c.SetText("6")
	}
}

// TCPFlags are the flags of a TCP header, shown as tcpdump does.
type TCPFlags uint8

const flagLetters = "FSRP.UEW"

func (f TCPFlags) String() string {
	var b []byte
	for _, i := range []int{1, 0, 2, 3, 5, 6, 7, 4} { // the acknowledgement comes last
		if f>>i&1 != 0 {
			b = append(b, flagLetters[i])
		}
	}
	return string(b)
}

// Kind says that TCPFlags are text.
func (TCPFlags) Kind() row.Kind { return row.Text }

// Cell gives the letters; none is "none".
func (f *TCPFlags) Cell(c *row.Cell) {
	if *f == 0 {
		c.SetText("none")
		return
	}
	c.SetText(f.String())
}
