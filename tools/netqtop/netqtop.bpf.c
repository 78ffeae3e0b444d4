//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* netqtop - packets and their sizes by queue of a device. */
#include "dev.h"
#include "hist.h"

enum queue_dir { QUEUE_RX, QUEUE_TX }; /* Go: direction */

#define NO_QUEUE 0xffffffff /* Go: queue */

struct queue_key {
	struct dev_key dev;
	__u32 dir;
	__u32 queue;
};
enum key_bits { KEY_dev, KEY_netns, KEY_dir, KEY_queue };
KEEP_ENUM(enum key_bits);

/* Fields of devices that only this tool reads. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device___queues {
	unsigned int real_num_tx_queues, real_num_rx_queues;
};
#pragma clang attribute pop

struct queue_value {
	struct hist hist;
	__u64 dev;    /* address of the first device */
	__u32 queues; /* queues of that device in this direction; 0: unknown */
	__u32 mixed;  /* the key covers several devices: equal names, or no name in the key */
};
static const struct queue_value queue_zero = {};

COUNT_MAP(queues, struct queue_key, struct queue_value);

static __always_inline __u32 queues_of(const struct net_device *dev, enum queue_dir dir)
{
	const struct net_device___queues *d = (void *)dev;

	if (dir == QUEUE_TX)
		return bpf_core_field_exists(d->real_num_tx_queues) ? LOAD(d, real_num_tx_queues) : 0;
	return bpf_core_field_exists(d->real_num_rx_queues) ? LOAD(d, real_num_rx_queues) : 0;
}

static __noinline int queue_put(const struct net_device *dev, enum queue_dir dir, __u32 queue, __u32 len)
{
	struct queue_key k = {};
	struct queue_value *v;

	if (!dev_key_fill(&k.dev, dev))
		return 0;
	if (KEY_WANTS(dir))
		k.dir = dir;
	if (KEY_WANTS(queue))
		k.queue = queue;
	v = count_at(COUNTED(queues), &k, &queue_zero);
	if (!v)
		return 0;
	if (!v->dev) {
		v->dev = (__u64)dev;
		v->queues = queues_of(dev, dir);
	} else if (v->dev != (__u64)dev) {
		v->mixed = 1;
	}
	hist_put(&v->hist, len);
	return 0;
}

/* The stack has chosen the queue and hands the packet to the driver. */
KTRACE(transmit, net_dev_start_xmit, const struct sk_buff *skb, const struct net_device *dev)
{
	return queue_put(dev, QUEUE_TX, LOAD(skb, queue_mapping), LOAD(skb, len));
}

/* A driver records the queue of a received packet plus one: 0 is none
 * (skb_record_rx_queue).
 */
KTRACE(receive, netif_receive_skb, const struct sk_buff *skb)
{
	__u16 queue = LOAD(skb, queue_mapping);

	return queue_put(HOP(skb, struct sk_buff, dev), QUEUE_RX, queue ? queue - 1 : NO_QUEUE, LOAD(skb, len));
}
