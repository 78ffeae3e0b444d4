/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* segment.h - the headers of a TCP segment. */
#pragma once
#include "sock.h"

struct segment {
	__u8 saddr[16], daddr[16];
	__u16 sport, dport;
	__u16 family;
	__u16 window; /* as it is in the header: not scaled */
	__u32 seq, ack;
	__u32 len; /* of the payload */
	__u8 flags;
	__u8 pad[3];
};

#define FLAG_SYN 2
#define FLAG_ACK 16

#define PACKET_NO_HEADER 0xffff /* of network_header: not set */

/* Read the TCP packet whose IP header is at ip; false if it is not TCP, not the
 * first fragment, or has IPv6 extension headers. One is accepted: until 7.0,
 * packets of more than 64 KB have their length in a hop-by-hop header.
 */
static __always_inline bool segment_read(struct segment *p, const struct sk_buff *skb, const void *ip)
{
	__u8 h[40] = {}, t[20] = {};
	__u32 tcp, total;

	if (bpf_probe_read_kernel(h, 20, ip))
		return false;
	if (h[0] >> 4 == 4) {
		if (h[9] != IPPROTO_TCP || (h[6] & 0x1f) || h[7])
			return false;
		p->family = AF_INET;
		addr4(p->saddr, *(__be32 *)&h[12]);
		addr4(p->daddr, *(__be32 *)&h[16]);
		tcp = (h[0] & 15) * 4;
		total = h[2] << 8 | h[3];
	} else if (h[0] >> 4 == 6) {
		tcp = 40;
		if (!h[6]) { /* hop by hop */
			if (bpf_probe_read_kernel(t, 2, ip + tcp) || t[1])
				return false;
			h[6] = t[0];
			tcp += 8;
		}
		if (h[6] != IPPROTO_TCP || bpf_probe_read_kernel(h, 40, ip))
			return false;
		p->family = AF_INET6;
		__builtin_memcpy(p->saddr, &h[8], 16);
		__builtin_memcpy(p->daddr, &h[24], 16);
		total = h[4] << 8 | h[5];
		if (total)
			total += 40;
	} else {
		return false;
	}
	if (bpf_probe_read_kernel(t, sizeof(t), ip + tcp))
		return false;
	/* more than 64 KB at once; the link's header may be there, or IP's be gone */
	if (!total)
		total = LOAD(skb, len) + ((const void *)LOAD(skb, data) - ip);
	p->sport = t[0] << 8 | t[1];
	p->dport = t[2] << 8 | t[3];
	p->seq = bpf_ntohl(*(__be32 *)&t[4]);
	p->ack = bpf_ntohl(*(__be32 *)&t[8]);
	p->flags = t[13];
	p->window = t[14] << 8 | t[15];
	tcp += (t[12] >> 4) * 4;
	p->len = total > tcp ? total - tcp : 0;
	return true;
}

/* Four bytes of a header, as a number, where the kernel has AS. */
static __always_inline __u32 segment_word(const void *ip, int at)
{
	return bpf_ntohl(AS(ip + at, struct in6_addr)->in6_u.u6_addr32[0]);
}

/* Could the packet be a SYN of a new connection? A quick check before all of it
 * is read; proto is the skb's.
 */
static __always_inline bool segment_asks(const void *ip, __be16 proto)
{
	__u8 h[54]; /* up to TCP's flags */

	if (typed_any) { /* the same by plain loads */
		if (proto == bpf_htons(0x0800)) {
			if ((segment_word(ip, 8) >> 16 & 0xff) != IPPROTO_TCP)
				return false;
			return (segment_word(ip, 0) >> 24 & 15) != 5 ||
			       (segment_word(ip, 32) >> 16 & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
		}
		return proto == bpf_htons(0x86dd) && (segment_word(ip, 4) >> 8 & 0xff) == IPPROTO_TCP &&
		       (segment_word(ip, 52) >> 16 & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
	}
	if (proto == bpf_htons(0x0800)) {
		if (bpf_probe_read_kernel(h, 34, ip) || h[9] != IPPROTO_TCP)
			return false;
		/* with options TCP's header is further on */
		return (h[0] & 15) != 5 || (h[33] & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
	}
	if (proto != bpf_htons(0x86dd) || bpf_probe_read_kernel(h, 54, ip) || h[6] != IPPROTO_TCP)
		return false;
	return (h[53] & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
}

/* The IP header of a packet that the stack has parsed. */
static __always_inline const void *segment_ip(const struct sk_buff *skb)
{
	return LOAD(skb, head) + LOAD(skb, network_header);
}

/* The packet's tuple, seen from this host. */
static __always_inline void segment_tuple(struct tuple *t, const struct segment *p, bool out)
{
	t->family = p->family;
	t->proto = IPPROTO_TCP;
	__builtin_memcpy(out ? t->laddr : t->raddr, p->saddr, 16);
	__builtin_memcpy(out ? t->raddr : t->laddr, p->daddr, 16);
	t->lport = out ? p->sport : p->dport;
	t->rport = out ? p->dport : p->sport;
}
