//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* superping - the time from when the device gets an ICMP echo request until the
 * reply arrives there. Go finds requests without a reply in the map.
 */
#include "opener.h"
#include "pending.h"
#include "skb.h"
#include "span.h"

#define ECHO4_REPLY 0
#define ECHO4_REQUEST 8
#define ECHO6_REQUEST 128
#define ECHO6_REPLY 129

struct ping_event {
	struct head head;
	__u8 laddr[16], raddr[16];
	__u64 sock;
	__u64 rtt; /* NONE: lost */
	__u16 ident, seq;
	__u16 family;
	__u16 outcome; /* for Go to word */
	__u32 pending; /* no reply yet: rtt is its age */
	__u32 pad;
};
EVENT(struct ping_event);

/* Two pings may use the same number: the peer and the namespace distinguish them. */
struct echo_key {
	__u8 peer[16];
	__u32 netns;
	__u16 ident, seq;
};
struct echo {
	__u64 start;
	const struct sk_buff *skb;
	__u64 sock;
	struct who who;
	__u8 laddr[16];
};
SPAN(echoes, struct echo_key, struct echo);

static __always_inline bool opener_kept(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	return is_inet(sock_family(sk)) &&
	       (BPF_CORE_READ(sk, sk_type) == SOCK_RAW || proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6);
}

/* Is p an ICMP message of these types? Then fill its identifier and number. */
static __always_inline bool echo_parse(struct echo_key *k, const struct packet *p, __u8 type4, __u8 type6)
{
	__u8 h[8] = {}; /* type, code, checksum, identifier, sequence number */

	if (p->proto != (p->version == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) || !packet_read(p, 0, h, sizeof(h)))
		return false;
	if (h[0] != (p->version == 4 ? type4 : type6))
		return false;
	k->ident = h[4] << 8 | h[5];
	k->seq = h[6] << 8 | h[7];
	return true;
}

/* Forwarded packets have no socket, and are ignored. */
KTRACE(request, net_dev_queue, const struct sk_buff *skb)
{
	struct sock *sk = LOAD(skb, sk);
	struct tuple t = { .family = AF_INET6 };
	struct echo_key k = {};
	struct packet p = {};
	struct echo *old, e = {};

	if (!sk || load_proto(sk) == IPPROTO_TCP || load_proto(sk) == IPPROTO_UDP)
		return 0;
	if (!packet_parse(&p, skb, PACKET_OUT) || !echo_parse(&k, &p, ECHO4_REQUEST, ECHO6_REQUEST))
		return 0;
	k.netns = skb_netns(skb);
	__builtin_memcpy(k.peer, p.daddr, 16);
	__builtin_memcpy(t.raddr, p.daddr, 16);
	__builtin_memcpy(t.laddr, p.saddr, 16);
	if (!netns_wanted(k.netns) || !tuple_wanted(&t))
		return 0;
	opener_get(&e.who, sk);
	if (!who_wanted(&e.who))
		return 0;
	/* A packet goes to a bridge or a VLAN first, then to the device below. */
	old = bpf_map_lookup_elem(&echoes, &k);
	if (old && old->skb == skb)
		return 0;
	__builtin_memcpy(e.laddr, p.saddr, 16);
	e.sock = sock_cookie(sk);
	e.skb = skb;
	e.start = bpf_ktime_get_ns();
	span_begin(&echoes, &k, &e);
	return 0;
}

static __always_inline int tell(const struct echo_key *k, const struct echo *echo, __u64 now, bool pending)
{
	struct ping_event *e = EVENT_NEW(struct ping_event);

	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = k->netns;
	e->head.who = echo->who;
	__builtin_memcpy(e->laddr, echo->laddr, 16);
	__builtin_memcpy(e->raddr, k->peer, 16);
	e->sock = echo->sock;
	e->rtt = now - echo->start;
	e->ident = k->ident;
	e->seq = k->seq;
	e->family = is_ip4(k->peer) ? AF_INET : AF_INET6;
	e->pending = pending;
	return event_send(e);
}

static __always_inline int answered(const struct sk_buff *skb, enum packet_dir dir)
{
	struct echo_key k = {};
	struct packet p = {};
	struct echo *found, echo;
	__u64 now;

	if (!packet_parse(&p, skb, dir) || !echo_parse(&k, &p, ECHO4_REPLY, ECHO6_REPLY))
		return 0;
	now = bpf_ktime_get_ns();
	k.netns = skb_netns(skb);
	__builtin_memcpy(k.peer, p.saddr, 16);
	found = bpf_map_lookup_elem(&echoes, &k);
	if (!found)
		return 0;
	echo = *found;
	/* Who removes it from the map reports it: this program, or Go after --lost. */
	if (bpf_map_delete_elem(&echoes, &k))
		return 0;
	return tell(&k, &echo, now, false);
}

PENDING(pending, echoes, struct echo_key, struct echo)
{
	return tell(&key, value, bpf_ktime_get_ns(), true);
}

/* Devices without interrupts of their own (lo, veth) hand packets to netif_rx,
 * where the kernel stamps them, and netif_receive_skb comes later, from a queue.
 */
SEC("tp_btf/netif_rx") int reply__btf__rx(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_IN);
}

SEC("tp_btf/netif_receive_skb") int reply__btf__receive(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_IN);
}

SEC("raw_tp/netif_rx") int reply__raw__rx(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_IN);
}

SEC("raw_tp/netif_receive_skb") int reply__raw__receive(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_IN);
}

/* Only ICMP packets pay for these, but the time in the queue and in the IP
 * layer is included. The network header is set by now.
 */
SEC("fentry/icmp_rcv") int reply__fentry__icmp(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_OUT);
}

SEC("fentry/icmpv6_rcv") int reply__fentry__icmpv6(unsigned long long *ctx)
{
	return answered((void *)ctx[0], PACKET_OUT);
}

SEC("kprobe/icmp_rcv") int reply__kprobe__icmp(struct pt_regs *ctx)
{
	return answered((void *)PT_REGS_PARM1(ctx), PACKET_OUT);
}

SEC("kprobe/icmpv6_rcv") int reply__kprobe__icmpv6(struct pt_regs *ctx)
{
	return answered((void *)PT_REGS_PARM1(ctx), PACKET_OUT);
}
