/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dev.h - devices as part of a key. Go: kern.DevKey. */
#pragma once
#include "count.h"
#include "skb.h"

/* The tool's enum key_bits has KEY_dev and KEY_netns. */
struct dev_key {
	char dev[16];
	__u32 netns;
	__u32 pad;
};

/* What a driver returns for a packet that it was given. */
enum { XMIT_OK = 0, XMIT_CONGESTED = 2, XMIT_BUSY = 0x10 };

/* Fill the fields of k that key_mask names; false if a filter excludes the
 * device. The tool must have defined the bits for KEY_WANTS before.
 */
#define dev_key_fill(k, device)                                                \
	({                                                                     \
		const struct net_device *__d = (device);                       \
		__u32 __netns = 0;                                             \
		char __name[16] = {};                                          \
									       \
		if (KEY_WANTS(netns) || filter_on & FILTER_NETNS)              \
			__netns = BPF_CORE_READ(__d, nd_net.net, ns.inum);     \
		if (KEY_WANTS(dev) || filter_on & FILTER_DEV)                  \
			BPF_CORE_READ_STR_INTO(&__name, __d, name);            \
		if (KEY_WANTS(netns))                                          \
			(k)->netns = __netns;                                  \
		if (KEY_WANTS(dev))                                            \
			__builtin_memcpy((k)->dev, __name, 16);                \
		netns_wanted(__netns) && dev_wanted(__name);                   \
	})
