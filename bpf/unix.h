/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* unix.h - names of UNIX sockets. Go: kern.Path. */
#pragma once
#include "sock.h"

/* The name that sk is bound to; path stays empty if there is none. An abstract
 * name begins with a NUL.
 */
static __always_inline void unix_path(char path[108], const struct sock *sk)
{
	struct unix_address *addr = BPF_CORE_READ((struct unix_sock *)sk, addr);
	__u32 len;

	if (!addr)
		return;
	len = BPF_CORE_READ(addr, len) - 2; /* of the name, without the family */
	/* The kernel adds a NUL to a path of the greatest length, and counts it. */
	if (len > 108)
		len = 108;
	/* The name is an array without a size, which CO-RE does not find: it begins
	 * where the struct ends.
	 */
	bpf_probe_read_kernel(path, len, (void *)addr + bpf_core_type_size(struct unix_address) + 2);
}
