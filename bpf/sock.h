/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sock.h - the two ends of a socket, in one shape for IPv4 and IPv6. */
#pragma once
#include "probe.h"

/* IPv4 is kept as ::ffff:a.b.c.d, so that no tool has a union or a switch by
 * family. Ports are in host order. Go: kern.Tuple.
 */
struct tuple {
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u16 family, proto;
	__u64 sock; /* cookie; 0 if it has none yet */
};

static __always_inline void addr4(__u8 *dst, __be32 a)
{
	__u32 *w = (__u32 *)dst;

	w[0] = 0;
	w[1] = 0;
	w[2] = bpf_htonl(0xffff);
	w[3] = a;
}

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

static __always_inline __u16 sock_family(const struct sock *sk)
{
	return FIELD(sk, struct sock, __sk_common.skc_family);
}

static __always_inline __u16 sock_proto(const struct sock *sk)
{
	return FIELD(sk, struct sock, sk_protocol);
}

/* The protocol of an IP socket; for others the family, marked by a bit. Go:
 * kern.Proto.
 */
#define PROTO_FAMILY 0x8000
static __always_inline __u16 proto_of(const struct sock *sk, __u16 family)
{
	return is_inet(family) ? sock_proto(sk) : PROTO_FAMILY | family;
}

static __always_inline __u16 proto_key(const struct sock *sk)
{
	return proto_of(sk, sock_family(sk));
}

static __always_inline __u8 sock_state(const struct sock *sk)
{
	return FIELD(sk, struct sock, __sk_common.skc_state);
}

static __always_inline __u32 sock_netns(const struct sock *sk)
{
	const struct net *net = FIELD(sk, struct sock, __sk_common.skc_net.net);

	return FIELD(net, struct net, ns.inum);
}

/* The socket's stable id. It is made when it is first asked for: see KTRACE_SK
 * in probe.h.
 */
static __always_inline __u64 sock_cookie(const struct sock *sk)
{
	return FIELD(sk, struct sock, __sk_common.skc_cookie.counter);
}

static __always_inline void addr6(__u8 *dst, const struct in6_addr *a, bool direct)
{
	__u32 *w = (__u32 *)dst;

	if (direct) {
		w[0] = a->in6_u.u6_addr32[0];
		w[1] = a->in6_u.u6_addr32[1];
		w[2] = a->in6_u.u6_addr32[2];
		w[3] = a->in6_u.u6_addr32[3];
	} else {
		bpf_core_read(dst, 16, a);
	}
}

/* A field of sk, which is a typed or an untyped pointer. */
#define DIRECT(sk, field) (direct ? (sk)->field : BPF_CORE_READ(sk, field))

/* Fill the addresses of t; false if sk is not an IP socket. */
static __always_inline bool addrs_from(struct tuple *t, const struct sock *sk, bool direct)
{
	if (t->family == AF_INET) {
		addr4(t->laddr, DIRECT(sk, __sk_common.skc_rcv_saddr));
		addr4(t->raddr, DIRECT(sk, __sk_common.skc_daddr));
		return true;
	}
	if (t->family == AF_INET6) {
		addr6(t->laddr, &sk->__sk_common.skc_v6_rcv_saddr, direct);
		addr6(t->raddr, &sk->__sk_common.skc_v6_daddr, direct);
		return true;
	}
	return false;
}

static __always_inline bool tuple_addrs(struct tuple *t, const struct sock *sk)
{
	return typed_any ? addrs_from(t, AS(sk, struct sock), true) : addrs_from(t, sk, false);
}

static __always_inline bool tuple_read(struct tuple *t, const struct sock *sk, bool direct)
{
	t->family = DIRECT(sk, __sk_common.skc_family);
	t->proto = is_inet(t->family) ? DIRECT(sk, sk_protocol) : PROTO_FAMILY | t->family;
	t->sock = DIRECT(sk, __sk_common.skc_cookie.counter);
	if (!addrs_from(t, sk, direct)) {
		__builtin_memset(t->laddr, 0xff, sizeof(t->laddr)); /* no address: kern.Addr */
		__builtin_memset(t->raddr, 0xff, sizeof(t->raddr));
		return false;
	}
	/* skc_num is 0 again at ->CLOSE; inet_sport stays. */
	t->lport = bpf_ntohs(FIELD(sk, struct inet_sock, inet_sport));
	t->rport = bpf_ntohs(DIRECT(sk, __sk_common.skc_dport));
	/* A raw socket has no port; the field has its protocol. */
	if (t->lport == t->proto && DIRECT(sk, sk_type) == SOCK_RAW)
		t->lport = 0;
	return true;
}

static __always_inline bool tuple_from(struct tuple *t, const struct sock *sk, bool typed)
{
	if (typed_any)
		return tuple_read(t, AS(sk, struct sock), true);
	if (typed && plain())
		return tuple_read(t, sk, true);
	return tuple_read(t, sk, false);
}

/* Fill t from sk; false if sk is not an IP socket. */
static __always_inline bool tuple_fill(struct tuple *t, const struct sock *sk)
{
	return tuple_from(t, sk, false);
}

/* The same, and single fields for some tools, for a sk that LOAD can read. */
static __always_inline bool tuple_load(struct tuple *t, const struct sock *sk)
{
	return tuple_from(t, sk, true);
}

static __always_inline __u16 load_proto(const struct sock *sk)
{
	return LOAD(sk, sk_protocol);
}

static __always_inline __u32 load_netns(const struct sock *sk)
{
	const struct net *net = HOP(sk, struct sock, __sk_common.skc_net.net);

	return LOAD(net, ns.inum);
}

/* Packets for sk that were dropped: it had no room, or they were broken. */
static __always_inline __u32 sock_drops(const struct sock *sk)
{
	const struct sock___since618 *new = (void *)sk;

	if (bpf_core_field_exists(new->sk_drop_counters)) {
		struct numa_drop_counters___since618 *c = BPF_CORE_READ(new, sk_drop_counters);

		if (c)
			return BPF_CORE_READ(c, drops0.counter) + BPF_CORE_READ(c, drops1.counter);
	}
	return BPF_CORE_READ(sk, sk_drops.counter);
}

/* The network namespace of the device that a packet is at. */
static __always_inline __u32 skb_netns(const struct sk_buff *skb)
{
	const struct net_device *dev = HOP(skb, struct sk_buff, dev);
	const struct net *net = LOAD(dev, nd_net.net);

	return LOAD(net, ns.inum);
}
