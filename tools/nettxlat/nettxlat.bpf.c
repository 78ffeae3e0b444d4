//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* nettxlat - how long devices keep packets before they are sent.
 *
 * The time runs from when a driver gets a packet until the first of: the packet
 * is freed, the stack receives it (lo, veth: the same packet), or another
 * device gets it (vlan, bridge, tunnels). Or the driver gives it back.
 */
#include "dev.h"
#include "hist.h"
#include "span.h"

enum end { END_FREED, END_DROPPED, END_RECEIVED, END_PASSED, END_RETURNED }; /* Go: end */

struct tx_key {
	struct dev_key dev;
	__u32 end;
	__u32 pad;
};
enum key_bits { KEY_dev, KEY_netns, KEY_end };
KEEP_ENUM(enum key_bits);

struct tx_value {
	struct hist hist;
};
static const struct tx_value tx_zero = {};

COUNT_MAP(lats, struct tx_key, struct tx_value);

struct handed {
	__u64 ts;
	struct dev_key dev;
};
SPAN(sending, const struct sk_buff *, struct handed);

KTRACE(start, net_dev_start_xmit, const struct sk_buff *skb, const struct net_device *dev)
{
	struct handed h = {};

	if (!dev_key_fill(&h.dev, dev))
		return 0;
	h.ts = bpf_ktime_get_ns();
	span_begin(&sending, &skb, &h);
	return 0;
}

static __noinline int ended(const struct sk_buff *skb, enum end end)
{
	struct handed *h = bpf_map_lookup_elem(&sending, &skb);
	struct tx_key k = { .end = end };
	struct tx_value *v;
	__u64 us;

	if (!h)
		return 0;
	us = (bpf_ktime_get_ns() - h->ts) / 1000;
	k.dev = h->dev;
	bpf_map_delete_elem(&sending, &skb);
	v = count_at(COUNTED(lats), &k, &tx_zero);
	if (v)
		hist_put(&v->hist, us);
	return 0;
}

KTRACE(freed, consume_skb, const struct sk_buff *skb)
{
	return ended(skb, END_FREED);
}

KTRACE(dropped, kfree_skb, const struct sk_buff *skb)
{
	return ended(skb, END_DROPPED);
}

/* GRO may merge a packet into another one, and then it is never received. */
KTRACE(gro, napi_gro_receive_entry, const struct sk_buff *skb)
{
	return ended(skb, END_RECEIVED);
}

KTRACE(received, netif_receive_skb, const struct sk_buff *skb)
{
	return ended(skb, END_RECEIVED);
}

KTRACE(passed, net_dev_queue, const struct sk_buff *skb)
{
	return ended(skb, END_PASSED);
}

KTRACE(returned, net_dev_xmit, const struct sk_buff *skb, int rc)
{
	return rc == XMIT_BUSY ? ended(skb, END_RETURNED) : 0;
}
