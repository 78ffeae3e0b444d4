/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* skb.h - the IP header of a packet at a device.
 *
 * The place of the IP header depends on the hook. Outbound (net_dev_queue,
 * net_dev_start_xmit) network_header is set and data is at the link's header.
 * Inbound (netif_rx, netif_receive_skb) data is at the IP header, or at a VLAN
 * tag before it, and network_header is not set yet.
 *
 * Only the linear part is read, which has the headers. A packet may be an
 * aggregate of several (GSO, GRO): see skb_segs.
 */
#pragma once
#include "filter.h"

enum packet_dir { PACKET_IN, PACKET_OUT };

struct packet {
	const __u8 *ip;
	const __u8 *l4;	 /* past the IP header; NULL: a later fragment, or cut off */
	const __u8 *end; /* of what is linear */
	__u8 saddr[16], daddr[16];
	__u8 version; /* 4 or 6 */
	__u8 proto;   /* after IPv6's extension headers */
	__u8 tos;     /* IPv6: traffic class */
	__u8 ttl;
	__u32 pad;
};

static __always_inline bool is_vlan(__u16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

/* IPv6 may put extension headers before the payload: this many are skipped. */
#define EXTENSIONS 4

static __always_inline void packet_payload6(struct packet *p, const __u8 *at)
{
	p->l4 = at;
#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		__u8 h[4] = {}; /* next header, length, and a fragment's offset */

		/* hop-by-hop, routing, fragment, destination */
		if (p->proto != 0 && p->proto != 43 && p->proto != 44 && p->proto != 60)
			return;
		if (p->l4 + 8 > p->end || bpf_probe_read_kernel(h, sizeof(h), p->l4)) {
			p->l4 = NULL;
			return;
		}
		if (p->proto == 44 && (h[2] || h[3] & 0xf8)) {
			p->proto = h[0];
			p->l4 = NULL;
			return;
		}
		p->l4 += p->proto == 44 ? 8 : 8 * (h[1] + 1);
		p->proto = h[0];
	}
}

/* Fill p; false if the packet is not IP. */
static __always_inline bool packet_parse(struct packet *p, const struct sk_buff *skb, enum packet_dir dir)
{
	const __u8 *head = LOAD(skb, head), *ip;
	__be16 protocol = LOAD(skb, protocol);
	__u8 h[40] = {};

	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6) && !is_vlan(protocol))
		return false;
	p->end = head + LOAD(skb, tail);
	if (dir == PACKET_OUT)
		ip = head + LOAD(skb, network_header);
	else
		ip = LOAD(skb, data) + (is_vlan(protocol) ? 4 : 0);
	p->ip = ip;
	if (ip + 20 > p->end || bpf_probe_read_kernel(h, 20, ip))
		return false;
	p->version = h[0] >> 4;
	if (p->version == 4) {
		__u32 len = (h[0] & 15) * 4;

		p->tos = h[1];
		p->ttl = h[8];
		p->proto = h[9];
		addr4(p->saddr, *(__be32 *)&h[12]);
		addr4(p->daddr, *(__be32 *)&h[16]);
		p->l4 = h[6] & 0x1f || h[7] ? NULL : ip + len;
		return len >= 20;
	}
	if (p->version != 6 || ip + 40 > p->end || bpf_probe_read_kernel(h + 20, 20, ip + 20))
		return false;
	p->tos = h[0] << 4 | h[1] >> 4;
	p->proto = h[6];
	p->ttl = h[7];
	__builtin_memcpy(p->saddr, &h[8], 16);
	__builtin_memcpy(p->daddr, &h[24], 16);
	packet_payload6(p, ip + 40);
	return true;
}

/* Read size bytes at offset of the payload; false if they are not there. */
static __always_inline bool packet_read(const struct packet *p, __u32 offset, void *to, __u32 size)
{
	return p->l4 && p->l4 + offset + size <= p->end && !bpf_probe_read_kernel(to, size, p->l4 + offset);
}

/* Packets that the skb stands for. */
static __always_inline __u32 skb_segs(const struct sk_buff *skb)
{
	const struct skb_shared_info *info = (void *)(LOAD(skb, head) + LOAD(skb, end));
	__u16 segs = BPF_CORE_READ(info, gso_segs);

	return segs ? segs : 1;
}

/* --dev: by name; several network namespaces may have a device of that name. */
const volatile char filter_dev[16] = {};

static __always_inline bool dev_wanted(const char *name)
{
	if (!(filter_on & FILTER_DEV))
		return true;
#pragma unroll
	for (int i = 0; i < 16; i++) {
		if (name[i] != filter_dev[i])
			return false;
		if (!name[i])
			break;
	}
	return true;
}
