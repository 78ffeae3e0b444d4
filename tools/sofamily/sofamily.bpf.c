//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sofamily - connects and accepts by the address family of the socket, which is
 * known whether or not the caller passed an address.
 */
#include "callcount.h"
