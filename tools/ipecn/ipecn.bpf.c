//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* ipecn - packets that met congestion (ECN CE), at each device they cross; or
 * the packets of each flow by ECN mark.
 *
 * Outbound they are seen when the driver gets them: queueing disciplines mark
 * below net_dev_queue and below the IP layer.
 */
#include "count.h"
#include "skb.h"

const volatile bool summary = false;

enum { ECN_NONE, ECN_ECT1, ECN_ECT0, ECN_CE };

struct ecn_event {
	struct head head;
	__u8 saddr[16], daddr[16];
	char dev[16];
	__u32 dir;
	__u32 segs;
	__u32 bytes;
	__u16 sport, dport;
	__u16 family, proto;
	__u32 pad;
};
EVENT(struct ecn_event);

struct ecn_key {
	__u8 saddr[16], daddr[16];
	char dev[16];
	__u32 dir;
	__u32 netns;
	__u16 sport, dport;
	__u16 family, proto;
};
enum key_bits {
	KEY_saddr, KEY_daddr, KEY_dev, KEY_dir, KEY_netns, KEY_sport, KEY_dport, KEY_family, KEY_proto,
};
KEEP_ENUM(enum key_bits);

/* Packets, by the two bits that they carry. */
struct ecn_mix {
	__u64 none, ect1, ect0, ce;
};
COUNT_MAP(mixes, struct ecn_key, struct ecn_mix);

static __always_inline void ports_read(struct tuple *t, const struct packet *p)
{
	__be16 ports[2] = {};

	if ((p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) || !packet_read(p, 0, ports, sizeof(ports)))
		return;
	t->lport = bpf_ntohs(ports[0]);
	t->rport = bpf_ntohs(ports[1]);
}

static __always_inline int count_mix(const struct sk_buff *skb, const struct packet *p, const struct tuple *t,
				     const char *dev, __u32 netns, enum packet_dir dir)
{
	struct ecn_mix zero = {}, *m;
	struct ecn_key k = {};
	__u32 segs = skb_segs(skb);

	if (KEY_WANTS(saddr))
		__builtin_memcpy(k.saddr, t->laddr, 16);
	if (KEY_WANTS(daddr))
		__builtin_memcpy(k.daddr, t->raddr, 16);
	if (KEY_WANTS(dev))
		__builtin_memcpy(k.dev, dev, 16);
	if (KEY_WANTS(dir))
		k.dir = dir;
	if (KEY_WANTS(netns))
		k.netns = netns;
	if (KEY_WANTS(sport))
		k.sport = t->lport;
	if (KEY_WANTS(dport))
		k.dport = t->rport;
	if (KEY_WANTS(family))
		k.family = t->family;
	if (KEY_WANTS(proto))
		k.proto = p->proto;
	m = count_at(COUNTED(mixes), &k, &zero);
	if (!m)
		return 0;
	switch (p->tos & 3) {
	case ECN_NONE: __sync_fetch_and_add(&m->none, segs); break;
	case ECN_ECT1: __sync_fetch_and_add(&m->ect1, segs); break;
	case ECN_ECT0: __sync_fetch_and_add(&m->ect0, segs); break;
	case ECN_CE: __sync_fetch_and_add(&m->ce, segs); break;
	}
	return 0;
}

/* Local and remote of t are source and destination here. */
static __always_inline int packet_seen(const struct sk_buff *skb, const struct net_device *dev, enum packet_dir dir)
{
	__u64 now = bpf_ktime_get_ns();
	struct packet p = {};
	struct tuple t = {};
	char name[16] = {};
	struct ecn_event *e;
	__u32 netns;

	if (!packet_parse(&p, skb, dir) || (!summary && (p.tos & 3) != ECN_CE))
		return 0;
	netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	BPF_CORE_READ_STR_INTO(&name, dev, name);
	if (!netns_wanted(netns) || !dev_wanted(name))
		return 0;
	t.family = p.version == 4 ? AF_INET : AF_INET6;
	__builtin_memcpy(t.laddr, p.saddr, 16);
	__builtin_memcpy(t.raddr, p.daddr, 16);
	ports_read(&t, &p);
	if (!tuple_wanted(&t))
		return 0;
	if (summary)
		return count_mix(skb, &p, &t, name, netns, dir);
	e = EVENT_NEW(struct ecn_event);
	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = netns;
	__builtin_memcpy(e->saddr, t.laddr, 16);
	__builtin_memcpy(e->daddr, t.raddr, 16);
	__builtin_memcpy(e->dev, name, 16);
	e->dir = dir;
	e->segs = skb_segs(skb);
	e->bytes = BPF_CORE_READ(skb, len) - (p.ip - BPF_CORE_READ(skb, data));
	e->sport = t.lport;
	e->dport = t.rport;
	e->family = t.family;
	e->proto = p.proto;
	return event_send(e);
}

KTRACE(receive, netif_receive_skb, const struct sk_buff *skb)
{
	return packet_seen(skb, BPF_CORE_READ(skb, dev), PACKET_IN);
}

KTRACE(transmit, net_dev_start_xmit, const struct sk_buff *skb, const struct net_device *dev)
{
	return packet_seen(skb, dev, PACKET_OUT);
}
