/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sockopt.h - options of a socket that are on or off. Go: kern.SockOptions. */
#pragma once
#include "sock.h"

/* The first six matter to bind. */
enum {
	OPT_REUSEADDR = 1 << 0,
	OPT_REUSEPORT = 1 << 1,
	OPT_FREEBIND = 1 << 2,
	OPT_TRANSPARENT = 1 << 3,
	OPT_NO_PORT = 1 << 4,
	OPT_V6ONLY = 1 << 5,
	OPT_KEEPALIVE = 1 << 6,
	OPT_LINGER = 1 << 7,
	OPT_BROADCAST = 1 << 8,
	OPT_NODELAY = 1 << 9,
	OPT_CORK = 1 << 10,
};

/* Bits of inet_flags. */
#define INET_FREEBIND 11
#define INET_TRANSPARENT 15
#define INET_NO_PORT 18

/* Bits of skc_flags. */
#define SOCK_KEEPOPEN 3
#define SOCK_LINGER 4
#define SOCK_BROADCAST 6

/* Bits of nonagle. */
#define NAGLE_IS_OFF 1
#define NAGLE_IS_CORK 2

static __always_inline __u32 sock_bind_options(const struct sock *sk)
{
	const struct inet_sock___since66 *inet = (void *)sk;
	const struct inet_sock___until65 *old = (void *)sk;
	__u32 o = 0;

	if (BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuse))
		o |= OPT_REUSEADDR;
	if (BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_reuseport))
		o |= OPT_REUSEPORT;
	if (!is_inet(sock_family(sk)))
		return o;
	if (sock_family(sk) == AF_INET6 && BPF_CORE_READ_BITFIELD_PROBED(sk, __sk_common.skc_ipv6only))
		o |= OPT_V6ONLY;
	if (bpf_core_field_exists(inet->inet_flags)) {
		unsigned long flags = FIELD(inet, struct inet_sock___since66, inet_flags);

		if (flags >> INET_FREEBIND & 1)
			o |= OPT_FREEBIND;
		if (flags >> INET_TRANSPARENT & 1)
			o |= OPT_TRANSPARENT;
		if (flags >> INET_NO_PORT & 1)
			o |= OPT_NO_PORT;
	} else {
		if (BPF_CORE_READ_BITFIELD_PROBED(old, freebind))
			o |= OPT_FREEBIND;
		if (BPF_CORE_READ_BITFIELD_PROBED(old, transparent))
			o |= OPT_TRANSPARENT;
		if (BPF_CORE_READ_BITFIELD_PROBED(old, bind_address_no_port))
			o |= OPT_NO_PORT;
	}
	return o;
}

static __always_inline __u32 sock_options(const struct sock *sk)
{
	unsigned long flags = FIELD(sk, struct sock, __sk_common.skc_flags);
	__u32 o = sock_bind_options(sk);
	__u8 nagle;

	if (flags >> SOCK_KEEPOPEN & 1)
		o |= OPT_KEEPALIVE;
	if (flags >> SOCK_LINGER & 1)
		o |= OPT_LINGER;
	if (flags >> SOCK_BROADCAST & 1)
		o |= OPT_BROADCAST;
	if (proto_key(sk) != IPPROTO_TCP)
		return o;
	nagle = BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sk, nonagle);
	if (nagle & NAGLE_IS_OFF)
		o |= OPT_NODELAY;
	if (nagle & NAGLE_IS_CORK)
		o |= OPT_CORK;
	return o;
}
