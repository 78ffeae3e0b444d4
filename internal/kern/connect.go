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

// nameConnect gives "Connect refused" for -111, and "Pending" if it has not ended.
func nameConnect(r *row.Row, c *row.Cell) {
	if r.Pending() {
		c.SetText("Pending")
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
