// SPDX-License-Identifier: Apache-2.0

package family

import "seine/internal/probe"

// Opener is the point of opener.h: the process that opened a socket. The walk
// over older sockets comes by itself.
var Opener = probe.Point{Name: "opener", Optional: true, Misses: "the process of sockets that are opened from now on"}
