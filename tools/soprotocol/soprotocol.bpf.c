//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soprotocol - connects and accepts by the protocol of the socket. */
#include "callcount.h"
