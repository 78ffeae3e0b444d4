// SPDX-License-Identifier: Apache-2.0

package tool

import "seine/internal/probe"

const slowCalls = "calls that are neither read, write, send nor receive (libaio); every read and write of the machine pays for it"

// SockIO are the points of sockio.h: each send and receive on any socket. Best
// first: the tracepoints are exact and cheap; the system calls are exact; the
// functions miss the later messages of a recvmmsg.
var SockIO = []probe.Point{
	{Name: "io", Ways: []probe.Way{
		{Name: "btf", Programs: []string{"io__btf__*"}, Fits: probe.HasTracepoint("sock_send_length", 3)},
		{Name: "raw", Programs: []string{"io__raw__*"}, Fits: probe.HasTracepoint("sock_send_length", 3)},
		{Name: "tp", Programs: []string{"iocall__tp__*", "iouring__btf__cqe"}, Fits: probe.UringLayout("cqe"), Misses: slowCalls},
		{Name: "tp", Programs: []string{"iocall__tp__*", "iouring__btf__res"}, Fits: probe.UringLayout("res"), Misses: slowCalls},
		{Name: "tp", Programs: []string{"iocall__tp__*", "iouring__btf__old*"}, Fits: probe.UringLayout("old"), Misses: slowCalls},
		{Name: "tp", Programs: []string{"iocall__tp__*"}, Misses: "io_uring; " + slowCalls},
		{Name: "fexit", Programs: []string{"io__fexit__*"}, Fits: probe.HasFunctions("__sock_sendmsg", "sock_recvmsg", "sock_sendpage"), Misses: laterMessages},
		{Name: "kprobe", Programs: []string{"io__kprobe__*"}, Fits: probe.HasFunctions("__sock_sendmsg", "sock_recvmsg", "sock_sendpage"), Misses: laterMessages},
		{Name: "sys", Programs: []string{"iocall__btf__*"}, Misses: "io_uring; every system call of the machine pays for it"},
	}},
	{Name: "splice", Optional: true, Misses: "splice from a socket"},
}

const laterMessages = "messages after the first of a recvmmsg"
