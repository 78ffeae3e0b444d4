/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sockaddr.h - addresses that a process passes to a system call. */
#pragma once
#include "event.h"
#include "sock.h"

/* Read the address and port at user, of len bytes, and return the family.
 * Families other than IPv4 and IPv6 have neither.
 */
static __always_inline __u16 sockaddr_inet(__u8 *addr, __u16 *port, const void *user, __u32 len)
{
	__u8 raw[24] = {}; /* an IPv6 address ends there; before it, an IPv4 one */
	__u16 family;

	if (bpf_probe_read_user(raw, len < sizeof(raw) ? 16 : sizeof(raw), user))
		lose(LOSS_READ);
	family = *(__u16 *)raw;
	*port = raw[2] << 8 | raw[3];
	if (family == AF_INET6)
		__builtin_memcpy(addr, &raw[8], 16);
	else
		addr4(addr, *(__be32 *)&raw[4]);
	return family;
}

/* The destination: from the caller's address, or from the socket. */
struct target {
	__u8 addr[16];
	__u16 port, family;
	char path[108];
};

/* False if the call removes the peer: AF_UNSPEC. */
static __always_inline bool target_read(struct target *t, const void *user, __u32 len)
{
	if (!user || len < 2)
		return true;
	if (bpf_probe_read_user(&t->family, sizeof(t->family), user)) {
		lose(LOSS_READ);
		return true;
	}
	if (t->family == AF_UNIX) {
		/* no more than the caller gave: there may be no memory behind it */
		len -= 2;
		asm volatile("" : "+r"(len));
		if (len > sizeof(t->path))
			len = sizeof(t->path);
		if (bpf_probe_read_user(t->path, len, user + 2))
			lose(LOSS_READ);
		return true;
	}
	if (!is_inet(t->family))
		return t->family;
	sockaddr_inet(t->addr, &t->port, user, len);
	return true;
}
