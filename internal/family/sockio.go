// SPDX-License-Identifier: Apache-2.0

// Package family has what tools of one kind share in Go: the counterparts of sockio.h,
// sockcall.h, opener.h, irq.h, drop.h and dnsquery.h.
package family

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/probe"
	"seine/internal/tool"
)

// SockIO are the points of sockio.h: each send and receive on any socket. Best
// first: the tracepoints are exact and cheap; the system calls are exact. There
// is no way by __sock_sendmsg and sock_recvmsg: parts of the kernel inline them.
var SockIO = []probe.Point{
	{Name: "io", Ways: slices.Concat(
		udpOnly(func(k *probe.Kernel) error {
			return fmt.Errorf("%w: functions of UDP, for --proto udp alone", probe.ErrNotSupported)
		}),
		[]probe.Way{
			{Name: "btf", Programs: []string{"io__btf__*"}, Fits: probe.HasTracepoint("sock_send_length", 3)},
			{Name: "raw", Programs: []string{"io__raw__*"}, Fits: probe.HasTracepoint("sock_send_length", 3)},
		},
		ioCalls("tp", "iocall__tp__*", "every read and write of the machine pays for it"),
		ioCalls("sys", "iocall__btf__*", "every system call of the machine pays for it"),
	)},
	{Name: "splice", Optional: true, Misses: "splice from a socket"},
}

// SockRecv is SockIO without sends: no program runs on the tracepoint of sends.
var SockRecv = []probe.Point{
	{Name: "io", Ways: slices.Concat(
		[]probe.Way{
			{Name: "btf", Programs: []string{"io__btf__recv"}, Fits: probe.HasTracepoint("sock_recv_length", 3)},
			{Name: "raw", Programs: []string{"io__raw__recv"}, Fits: probe.HasTracepoint("sock_recv_length", 3)},
		},
		ioCalls("tp", "iocall__tp__*", "every read and write of the machine pays for it"),
		ioCalls("sys", "iocall__btf__*", "every system call of the machine pays for it"),
	)},
	SockIO[1],
}

// NotTCP are these points for a tool to which TCP's sockets do not matter.
func NotTCP(points []probe.Point) []probe.Point {
	points = slices.Clone(points)
	for i := range points {
		points[i].NotTCP = true
	}
	return points
}

// udpOnly are the ways that see UDP alone, if alone lets them.
func udpOnly(alone func(*probe.Kernel) error) []probe.Way {
	var ways []probe.Way
	for _, args := range []int{4, 5, 6} {
		fits := probe.HasArgs(args, "udp_recvmsg", "udpv6_recvmsg")
		ways = append(ways, probe.Way{
			Name: "fexit", Programs: []string{"udp__fexit__send*", fmt.Sprintf("udp__fexit__args%d*", args)},
			Misses: "sendfile and splice to UDP before 6.5",
			Fits: func(k *probe.Kernel) error {
				if err := alone(k); err != nil {
					return err
				}
				return fits(k)
			},
		})
	}
	return ways
}

// NarrowIO makes SockIO use UDP's own functions if only UDP is asked for, so that sends and
// receives on other sockets cost nothing.
func NarrowIO(points []probe.Point, w *tool.Wanted) []probe.Point {
	if w.On&tool.FilterProto == 0 || slices.ContainsFunc(w.Protos, func(p uint16) bool { return p != unix.IPPROTO_UDP }) {
		return points
	}
	points = slices.Clone(points)
	for i, p := range points {
		if p.Name == "io" {
			alone := udpOnly(func(*probe.Kernel) error { return nil })
			points[i].Ways = append(alone, p.Ways[len(alone):]...)
		}
	}
	// These sockets cannot be spliced from, so splice is not traced.
	return slices.DeleteFunc(points, func(p probe.Point) bool { return p.Name == "splice" })
}

// ioCalls is a way by the system calls, with the completions of io_uring in the
// layout that the kernel has.
func ioCalls(name, programs, cost string) []probe.Way {
	misses := "preadv2, pwritev2 and libaio on sockets; peeks by io_uring look like reads; " + cost
	var ways []probe.Way
	for _, l := range []struct{ layout, programs string }{
		{"cqe", "iouring__btf__cqe"}, {"res", "iouring__btf__res"}, {"old", "iouring__btf__old*"},
	} {
		ways = append(ways, probe.Way{
			Name: name, Programs: []string{programs, l.programs}, Fits: probe.UringLayout(l.layout), Misses: misses,
		})
	}
	return append(ways, probe.Way{Name: name, Programs: []string{programs}, Misses: "io_uring; " + misses})
}
