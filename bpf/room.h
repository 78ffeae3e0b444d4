/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* room.h - does a writer lack room in the send buffer?
 *
 * The kernel sets a bit when a send finds none, whether the call waits then or returns,
 * and clears it when a third of the buffer is free.
 */
#pragma once
#include "sock.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct socket___flags {
	unsigned long flags;
};
#pragma clang attribute pop

#define SOCK_NOSPACE 2 /* bit of the flags */

static __always_inline bool sock_lacks_room(const struct sock *sk)
{
	struct socket___flags *socket = (void *)BPF_CORE_READ(sk, sk_socket);

	return BPF_CORE_READ(socket, flags) >> SOCK_NOSPACE & 1;
}
