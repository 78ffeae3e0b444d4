/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dns.h - DNS messages in the packets of sockets, by cgroup_skb programs.
 *
 * These run where a packet leaves or enters a socket: what is forwarded does
 * not pay, and bpf_skb_load_bytes finds the payload whether
 * it is in the linear part or not (TCP's never is). A query leaves in the
 * context of the process that asks, before any wait for a neighbour's address.
 *
 * Over TCP a message has its length before it. Only the first message of a
 * segment is seen, and only if it begins there; resolvers write them so.
 */
#pragma once
#include "who.h"

#define DNS_PORT 53
#define DNS_HEADER 12
#define DNS_ANSWER 0x8000    /* of flags: QR */
#define DNS_OPCODE 0x7800    /* 0: a query for a name */
#define DNS_TRUNCATED 0x0200 /* the rest is to be had over TCP */

/* The context of cgroup_skb programs: ABI, as far as it is used here. */
struct bpf_sock {
	__u32 unused[12];
	__u32 dst_port; /* in the low half */
};
struct __sk_buff {
	__u32 len;
	__u32 unused[18];
	__u32 data, data_end; /* the linear part, from the IP header on */
	__u32 more[21];
	struct bpf_sock *sk;
};

/* Whether a packet may have to do with a name server. Every packet passes here,
 * so that is decided by two loads where the headers are as usual.
 */
static __always_inline bool dns_maybe(struct __sk_buff *skb, bool out)
{
	const __u8 *p = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_sock *sk;

	if (p + 24 > end)
		return true;
	if (p[0] == 0x45)
		p += 20;
	else if (p[0] >> 4 == 6)
		p += 40;
	else
		return true;
	if (p + 4 > end || *(__be16 *)(p + (out ? 2 : 0)) == bpf_htons(DNS_PORT))
		return true;
	/* On its way out a packet may have been redirected to another port. */
	sk = skb->sk;
	return out && sk && (__u16)*(volatile __u32 *)&sk->dst_port == bpf_htons(DNS_PORT);
}

/* The socket of a packet, to be read from. The context is the packet itself, but the
 * verifier lets programs do little with what it gives them of it: what the context
 * points to is read as any other memory.
 */
static __always_inline const struct sock *dns_sk(struct __sk_buff *skb)
{
	return BPF_CORE_READ((struct sk_buff *)skb, sk);
}

static __always_inline __u32 dns_netns(struct __sk_buff *skb)
{
	const struct sock *sk = dns_sk(skb);

	return sk ? sock_netns(sk) : 0;
}

struct dns {
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u16 proto;
	__u16 id, flags, answers;
	__u32 at;  /* of the message in the packet */
	__u32 len; /* of what the packet has of it */
};

/* Fill d; false if skb holds no DNS message that goes to (out) or comes from a
 * server. Data begins at the IP header.
 */
static __noinline bool dns_parse_slow(struct dns *d, struct __sk_buff *skb, bool out)
{
	const struct sock *sk = dns_sk(skb);
	__u8 h[40] = {}, t[4] = {};
	struct tuple peer = {};
	__u16 sport, dport;
	__u32 at;

	if (!d || bpf_skb_load_bytes(skb, 0, h, 20))
		return false;
	if (h[0] >> 4 == 4) {
		d->proto = h[9];
		at = (h[0] & 15) * 4;
		if (h[6] & 0x1f || h[7]) /* a later fragment */
			return false;
	} else {
		d->proto = h[6];
		at = 40;
	}
	if (d->proto != IPPROTO_UDP && d->proto != IPPROTO_TCP)
		return false;
	if (bpf_skb_load_bytes(skb, at, t, sizeof(t)))
		return false;
	sport = t[0] << 8 | t[1];
	dport = t[2] << 8 | t[3];
	d->lport = out ? sport : dport;
	d->rport = out ? dport : sport;
	if (at != 40 || h[0] >> 4 == 4) {
		addr4(out ? d->laddr : d->raddr, *(__be32 *)&h[12]);
		addr4(out ? d->raddr : d->laddr, *(__be32 *)&h[16]);
	} else {
		if (bpf_skb_load_bytes(skb, 20, h + 20, 20))
			return false;
		__builtin_memcpy(out ? d->laddr : d->raddr, &h[8], 16);
		__builtin_memcpy(out ? d->raddr : d->laddr, &h[24], 16);
	}
	/* A connected socket knows whom it asks; the packet may be on its way to where
	 * NAT has sent it.
	 */
	if (sk && BPF_CORE_READ(sk, __sk_common.skc_dport)) {
		peer.family = sock_family(sk);
		if (!tuple_addrs(&peer, sk))
			return false;
		__builtin_memcpy(d->raddr, peer.raddr, 16);
		d->rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	}
	if (d->rport != DNS_PORT)
		return false;
	if (d->proto == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, at + 12, t, 1))
			return false;
		at += (t[0] >> 4) * 4 + 2; /* the header, and the message's length */
	} else {
		at += 8;
	}
	if (at + DNS_HEADER > skb->len || bpf_skb_load_bytes(skb, at, h, DNS_HEADER))
		return false;
	d->at = at;
	d->len = skb->len - at;
	d->id = h[0] << 8 | h[1];
	d->flags = h[2] << 8 | h[3];
	d->answers = h[6] << 8 | h[7];
	/* One question, as everybody asks. */
	return !(d->flags & DNS_OPCODE) && !(d->flags & DNS_ANSWER) == out && !h[4] && h[5] == 1;
}

static __always_inline bool dns_parse(struct dns *d, struct __sk_buff *skb, bool out)
{
	return dns_maybe(skb, out) && dns_parse_slow(d, skb, out);
}

/* Copy the beginning of the message, at most size bytes; returns how many. */
#define DNS_COPY(to, size, skb, d)                                             \
	({                                                                     \
		__u32 __n = (d)->len;                                          \
									       \
		if (__n > (size))                                              \
			__n = (size);                                          \
		asm volatile("" : "+r"(__n));                                  \
		if (__n < DNS_HEADER || __n > (size) || bpf_skb_load_bytes(skb, (d)->at, to, __n)) \
			__n = 0;                                               \
		__n;                                                           \
	})

/* The process that sends; who_current() needs more than these programs have. */
static __always_inline bool dns_sender(struct who *w)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return false;
	who_task(w, task);
	return true;
}
