// SPDX-License-Identifier: Apache-2.0

// Package kern has the Go side of the headers in bpf/: structs with the same
// bytes, and value types that know how they print.
package kern

import (
	"strconv"
	"unsafe"

	"seine/internal/row"
)

func init() {
	row.Register[Mono]()
	row.Register[Nanos]()
	row.Register[Opt]()
	row.Register[ID]()
	row.Register[ID32]()
	row.Register[ID16]()
	row.Register[Addr]()
	row.Register[Comm]()
	row.Register[Family]()
	row.Register[Proto]()
	row.Register[State]()
	row.Register[Result]()
	row.Register[SockOptions]()
}

// None is the value of a number that is not known: NONE in kernel.h.
const None = ^uint64(0)

// Mono is a time of the kernel's monotonic clock, in nanoseconds.
type Mono uint64

// Kind says that a Mono is shown as wall-clock time.
func (Mono) Kind() row.Kind { return row.Time }

// Cell gives the wall-clock time.
func (m *Mono) Cell(c *row.Cell) { *c = row.Cell{Kind: row.Time, N: uint64(WallNanos(*m))} }

// Nanos is a span of time; None is absent.
type Nanos uint64

// Kind says that Nanos are numbers.
func (Nanos) Kind() row.Kind { return row.Uint }

// Cell gives the nanoseconds, which the column's div turns into its unit.
func (n *Nanos) Cell(c *row.Cell) { optional(uint64(*n), None, c) }

// Opt is a number that may be absent: None.
type Opt uint64

// Kind says that an Opt is a number.
func (Opt) Kind() row.Kind { return row.Uint }

// Cell gives the number, if it is known.
func (o *Opt) Cell(c *row.Cell) { optional(uint64(*o), None, c) }

// ID is a number that is absent when 0: a PID, a port, a socket cookie.
type ID uint64

// Kind says that an ID is a number.
func (ID) Kind() row.Kind { return row.Uint }

// Cell gives the number, if there is one.
func (i *ID) Cell(c *row.Cell) { optional(uint64(*i), 0, c) }

// ID32 is an ID of 32 bits.
type ID32 uint32

// Kind says that an ID32 is a number.
func (ID32) Kind() row.Kind { return row.Uint }

// Cell gives the number, if there is one.
func (i *ID32) Cell(c *row.Cell) { optional(uint64(*i), 0, c) }

// ID16 is an ID of 16 bits.
type ID16 uint16

// Kind says that an ID16 is a number.
func (ID16) Kind() row.Kind { return row.Uint }

// Cell gives the number, if there is one.
func (i *ID16) Cell(c *row.Cell) { optional(uint64(*i), 0, c) }

func optional(n, absent uint64, c *row.Cell) {
	if n == absent {
		*c = row.Cell{}
		return
	}
	c.SetUint(n)
}

// Ptr is an address in the kernel, shown in hexadecimal; absent when 0.
type Ptr uint64

// Kind says that a Ptr is text.
func (Ptr) Kind() row.Kind { return row.Text }

// Cell gives the address without 0x, as the kernel prints its own.
func (p *Ptr) Cell(c *row.Cell) {
	if *p == 0 {
		*c = row.Cell{}
		return
	}
	c.SetText(strconv.FormatUint(uint64(*p), 16))
}

// Addr is an IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. All ones is absent:
// the socket is not an IP one.
type Addr [16]byte

// NoAddr is an absent one.
var NoAddr = Addr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Kind says that an Addr is an address.
func (Addr) Kind() row.Kind { return row.Addr }

// Cell gives the raw bytes.
func (a *Addr) Cell(c *row.Cell) {
	if *a == NoAddr {
		*c = row.Cell{}
		return
	}
	*c = row.Cell{Kind: row.Addr, S: unsafe.String(&a[0], 16)}
}

// CommLen is the size of the name of a task or a device in the kernel.
const CommLen = 15

// Comm is a task's name as the kernel keeps it; empty is absent.
type Comm [CommLen + 1]byte

// Most is its greatest length.
func (Comm) Most() int { return CommLen }

// Kind says that a Comm is text.
func (Comm) Kind() row.Kind { return row.Text }

// Cell gives the name up to its NUL.
func (m *Comm) Cell(c *row.Cell) { text(m[:], c) }

// text gives the bytes of b up to the first NUL, without copying.
func text(b []byte, c *row.Cell) {
	n := 0
	for n < len(b) && b[n] != 0 {
		n++
	}
	if n == 0 {
		*c = row.Cell{}
		return
	}
	c.SetText(unsafe.String(&b[0], n))
}

// Path is the name of a UNIX socket: NUL-terminated, or abstract with a
// leading NUL that is shown as @.
type Path [108]byte

// Kind says that a Path is text.
func (Path) Kind() row.Kind { return row.Text }

// Cell gives the path; abstract names start with @ in place of the NUL.
func (p *Path) Cell(c *row.Cell) {
	if p[0] == 0 && p[1] != 0 {
		text(p[1:], c)
		c.S = "@" + c.S
		return
	}
	text(p[:], c)
}

// Who is struct who of event.h: the process on a row. All zero is unknown.
type Who struct {
	Cgroup uint64 `col:"cgroup,as=cgroup;container,as=container" help:"control group of the process; container name where known"`
	PID    ID32   `col:"pid,width=7,key" help:"process"`
	TID    ID32   `col:"tid,width=7,key" help:"thread id"`
	UID    uint32 `col:"uid,width=5,key" help:"user"`
	Flags  uint32 `col:"-"`
	Comm   Comm   `col:"comm,width=16,key" help:"process name"`
	Thread Comm   `col:"thread,width=16,key" help:"thread name"`
}

// Head is struct head of event.h: what every event begins with.
type Head struct {
	TS    Mono   `col:"time,width=8" help:"when it happened"`
	View  uint16 `col:"-"`
	Tool  uint16 `col:"-"`
	Netns ID32   `col:"netns,width=10" help:"network namespace, by inode"`
	Who
}

// Tuple is struct tuple of sock.h: the two ends of a socket.
type Tuple struct {
	Laddr  Addr   `col:"laddr,width=15,key" help:"local address"`
	Raddr  Addr   `col:"raddr,width=15,key" help:"remote address"`
	Lport  uint16 `col:"lport,width=5,key" help:"local port"`
	Rport  uint16 `col:"rport,width=5,key" help:"remote port"`
	Family Family `col:"family,key;ip,as=ip,width=2,key" help:"address family; version of IP: 4 or 6"`
	Proto  Proto  `col:"proto,width=7,key" help:"protocol"`
	Sock   ID     `col:"sock" help:"stable id of the socket (its cookie)"`
}

// NoEnd removes an end that a socket does not have: the port if it is 0, and then
// the address if it is the wildcard address.
func NoEnd(r *row.Row, addr, port string) {
	p, a := r.Get(port), r.Get(addr)
	if p != nil && p.Kind != row.Null {
		if p.N != 0 {
			return
		}
		*p = row.Cell{}
	}
	if a != nil && a.Kind == row.Addr && a.IP().IsUnspecified() {
		*a = row.Cell{}
	}
}

// Count is struct count of count.h.
type Count struct {
	Count uint64 `col:"count,width=8,sum" help:"how many"`
	Bytes uint64 `col:"bytes,width=10,sum" help:"bytes moved"`
}
