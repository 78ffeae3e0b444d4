// SPDX-License-Identifier: Apache-2.0

package family

import "seine/internal/probe"

// SockCalls are the points of sockcall.h: the system calls that a tool named there, and the same
// calls through io_uring.
var SockCalls = []probe.Point{
	{Name: "call"},
	probe.Uring("callring", "the same calls through io_uring"),
}
