/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* drop.h - what skb:kfree_skb tells of a dropped packet. Its arguments grew: the
 * reason came with 5.17, the socket that receives with 6.11.
 */
#pragma once
#include "sock.h"

const volatile __u32 args_kfree_skb = 0; /* 2; with a reason 3; with the socket 4 */

#define DROP_UNTOLD (~0u) /* for a reason. Go: tool.DropReason */

/* enum skb_drop_reason of the running kernel. */
static __always_inline __u32 drop_reason(const unsigned long long *ctx)
{
	return args_kfree_skb > 2 ? ctx[2] : DROP_UNTOLD;
}

/* The socket that the packet was for, as the kernel tells, else the one that
 * owns it: which may have sent it or have it in a queue.
 */
static __always_inline struct sock *drop_sock(const unsigned long long *ctx, const struct sk_buff *skb, bool *owned)
{
	struct sock *sk = NULL;

	*owned = false;
	if (args_kfree_skb > 3)
		sk = (void *)ctx[3];
	if (sk)
		return sk;
	sk = BPF_CORE_READ(skb, sk);
	*owned = sk;
	return sk;
}

/* A FIN that was heeded stays in the queue of its socket until that goes. */
static __always_inline bool drop_heeded(const struct sk_buff *skb, const struct sock *sk)
{
	return sock_state(sk) == TCP_CLOSE && !BPF_CORE_READ(skb, len);
}

enum skb_drop_reason___bare { SKB_DROP_REASON_NOT_SPECIFIED___bare = 2 };

/* The kernel gives no reason, but could. */
static __always_inline bool drop_bare(__u32 reason)
{
	return bpf_core_enum_value_exists(enum skb_drop_reason___bare, SKB_DROP_REASON_NOT_SPECIFIED___bare) &&
	       reason == bpf_core_enum_value(enum skb_drop_reason___bare, SKB_DROP_REASON_NOT_SPECIFIED___bare);
}

/* Nor is there a reason to drop the peer's FIN and ACKs that a socket in TIME_WAIT
 * has heeded: the kernel frees them so. Data that come then are lost.
 */
static __always_inline bool drop_waited(__u32 reason, const struct sk_buff *skb, const struct sock *sk)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;

	return drop_bare(reason) && sock_state(sk) == TCP_TIME_WAIT &&
	       BPF_CORE_READ(cb, end_seq) - BPF_CORE_READ(cb, seq) <= 1;
}
