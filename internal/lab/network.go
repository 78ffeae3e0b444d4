// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Network is a kind of socket.
type Network string

// The networks. TCP is plain TCP: Go's own listeners are MPTCP ones.
const (
	TCP4       Network = "tcp4"
	TCP6       Network = "tcp6"
	MPTCP4     Network = "mptcp4"
	MPTCP6     Network = "mptcp6"
	UDP4       Network = "udp4"
	UDP6       Network = "udp6"
	Unix       Network = "unix"       // stream
	UnixDgram  Network = "unixgram"   // datagrams
	UnixPacket Network = "unixpacket" // SOCK_SEQPACKET
	Raw4       Network = "raw4"       // ICMP by a raw socket
	Raw6       Network = "raw6"
	Ping4      Network = "ping4" // ICMP echo by a datagram socket
	Ping6      Network = "ping6"
)

var networks = map[Network]struct{ family, kind, proto int }{
	TCP4:       {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP},
	TCP6:       {unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP},
	MPTCP4:     {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
	MPTCP6:     {unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP},
	UDP4:       {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
	UDP6:       {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
	Unix:       {unix.AF_UNIX, unix.SOCK_STREAM, 0},
	UnixDgram:  {unix.AF_UNIX, unix.SOCK_DGRAM, 0},
	UnixPacket: {unix.AF_UNIX, unix.SOCK_SEQPACKET, 0},
	Raw4:       {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
	Raw6:       {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	Ping4:      {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
	Ping6:      {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
}

// Family is AF_INET, AF_INET6 or AF_UNIX.
func (n Network) Family() int { return networks[n].family }

// Stream reports whether data have no message boundaries.
func (n Network) Stream() bool { return networks[n].kind == unix.SOCK_STREAM }

// tcp reports whether this is plain TCP.
func (n Network) tcp() bool { return networks[n].proto == unix.IPPROTO_TCP }

// listens reports whether a socket of this kind can listen and accept.
func (n Network) listens() bool {
	return networks[n].kind == unix.SOCK_STREAM || networks[n].kind == unix.SOCK_SEQPACKET
}

// At writes an address of an Internet network, as Listen and Connect take it.
func (n Network) At(addr netip.Addr, port int) string {
	return netip.AddrPortFrom(addr, uint16(port)).String()
}

// Addr is the address of a host for this network.
func (w *World) Addr(host string, n Network) netip.Addr {
	if n.Family() == unix.AF_INET6 {
		return w.Addr6(host)
	}
	return w.Addr4(host)
}

// Sockaddr reads an address: "192.0.2.1:80", "[::1]:80", or for UNIX sockets a
// path, or "@name" for an abstract name, which lives in the network namespace.
func (n Network) Sockaddr(addr string) (unix.Sockaddr, error) {
	if n.Family() == unix.AF_UNIX {
		return &unix.SockaddrUnix{Name: addr}, nil
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%s address: %w", n, err)
	}
	switch {
	case n.Family() == unix.AF_INET && ap.Addr().Is4():
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
	case n.Family() == unix.AF_INET6 && ap.Addr().Is6():
		return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}, nil
	}
	return nil, fmt.Errorf("%s address: %s is of another family", n, addr)
}

// addrOf is the address without the port.
func addrOf(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

// portOf is the port of an Internet address, 0 for any other.
func portOf(sa unix.Sockaddr) int {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return sa.Port
	case *unix.SockaddrInet6:
		return sa.Port
	}
	return 0
}
