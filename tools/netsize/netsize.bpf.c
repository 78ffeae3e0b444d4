//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* netsize - sizes of packets at the device and at the network stack: what is
 * between them is segmentation (GSO) and its inverse (GRO).
 */
#include "dev.h"
#include "hist.h"

enum metric { NIC_RECV, NIC_SEND, RECV, SEND }; /* Go: metric */

struct size_key {
	struct dev_key dev;
	__u32 metric;
	__u32 pad;
};
enum key_bits { KEY_dev, KEY_netns, KEY_metric };
KEEP_ENUM(enum key_bits);

struct size_value {
	struct hist hist;
};
static const struct size_value size_zero = {};

COUNT_MAP(sizes, struct size_key, struct size_value);

static __noinline int size_put(const struct net_device *dev, enum metric m, __u32 len)
{
	struct size_key k = { .metric = m };
	struct size_value *v;

	if (!dev_key_fill(&k.dev, dev))
		return 0;
	v = count_at(COUNTED(sizes), &k, &size_zero);
	if (v)
		hist_put(&v->hist, len);
	return 0;
}

#define SIZE_OF(skb, m) size_put(BPF_CORE_READ(skb, dev), m, BPF_CORE_READ(skb, len))

KTRACE(gro, napi_gro_receive_entry, const struct sk_buff *skb)
{
	return SIZE_OF(skb, NIC_RECV);
}

KTRACE(frags, napi_gro_frags_entry, const struct sk_buff *skb)
{
	return SIZE_OF(skb, NIC_RECV);
}

KTRACE(receive, netif_receive_skb, const struct sk_buff *skb)
{
	return SIZE_OF(skb, RECV);
}

KTRACE(queue, net_dev_queue, const struct sk_buff *skb)
{
	return SIZE_OF(skb, SEND);
}

/* The driver may have freed the packet by now. A packet that a busy driver did
 * not take is counted when the driver takes it later.
 */
KTRACE(transmit, net_dev_xmit, const struct sk_buff *skb, int rc, const struct net_device *dev, unsigned int len)
{
	return rc == XMIT_OK || rc == XMIT_CONGESTED ? size_put(dev, NIC_SEND, len) : 0;
}
