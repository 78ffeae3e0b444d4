// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"golang.org/x/sys/unix"

	"seine/internal/row"
)

// connectWords are connect(2)'s descriptions of its errors, shortened as in the
// book. Other errors have the text of the C library.
var connectWords = map[unix.Errno]string{
	unix.EPERM:         "Permission denied",
	unix.EINTR:         "Interrupted",
	unix.EBADF:         "Invalid sockfd",
	unix.EACCES:        "Perm. denied (EACCES)",
	unix.EFAULT:        "Sock struct addr invalid",
	unix.ENOTSOCK:      "FD not a socket",
	unix.EPROTOTYPE:    "Socket protocol error",
	unix.EAFNOSUPPORT:  "Address family invalid",
	unix.EADDRINUSE:    "Local addr in use",
	unix.EADDRNOTAVAIL: "No port available",
	unix.ENETUNREACH:   "Network unreachable",
	unix.EISCONN:       "Already connected",
	unix.ETIMEDOUT:     "Timeout",
	unix.ECONNREFUSED:  "Connect refused",
	unix.EALREADY:      "Not yet completed",
	unix.EINPROGRESS:   "In progress",
	unix.ECANCELED:     "Given up",
}

// socketWords are socket(2)'s descriptions of its errors, shortened. EMFILE and ENFILE are as in
// soaccept.
var socketWords = map[unix.Errno]string{
	unix.EACCES:          "permission denied",
	unix.EPERM:           "permission denied",
	unix.EAFNOSUPPORT:    "address family invalid",
	unix.EINVAL:          "type or protocol invalid",
	unix.EMFILE:          "process FD limit",
	unix.ENFILE:          "system FD limit",
	unix.ENOBUFS:         "out of memory",
	unix.ENOMEM:          "out of memory",
	unix.EPROTONOSUPPORT: "protocol invalid",
	unix.ESOCKTNOSUPPORT: "type invalid",
}

// nameSocket gives "No socket: process FD limit" for -24.
func nameSocket(c *row.Cell) {
	e := unix.Errno(-int64(c.N))
	s, ok := socketWords[e]
	if !ok {
		s = ErrnoText(int(e))
	}
	c.SetText("No socket: " + s)
}

// nameConnect gives "Connect refused" for -111, and "Pending" if it has not ended.
func nameConnect(r *row.Row, c *row.Cell) {
	if r.Pending() {
		c.SetText("Pending")
		return
	}
	if via := r.Get("via"); via != nil && via.S == "socket" { // socket(2) failed, before any connect
		nameSocket(c)
		return
	}
	if f := r.Get("family"); int64(c.N) == -int64(unix.EAGAIN) && f != nil && f.S != Family(unix.AF_UNIX).String() {
		c.SetText("Routing cache insuff.")
		return
	}
	if s, ok := connectWords[unix.Errno(-int64(c.N))]; ok {
		c.SetText(s)
		return
	}
	nameResult(r, c)
}
