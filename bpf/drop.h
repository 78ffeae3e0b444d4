/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* drop.h - the arguments of skb:kfree_skb for a dropped packet. The reason was
 * added in 5.17, the receiving socket in 6.11.
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

/* The socket that the packet was for, if the kernel names it, else its owner,
 * which has sent it or has it in a queue.
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

/* A processed FIN stays in the queue of its socket until the socket ends. */
static __always_inline bool drop_heeded(const struct sk_buff *skb, const struct sock *sk)
{
	return sock_state(sk) == TCP_CLOSE && !BPF_CORE_READ(skb, len);
}

enum skb_drop_reason___bare { SKB_DROP_REASON_NOT_SPECIFIED___bare = 2 };

/* The kernel could give a reason, but gives none. */
static __always_inline bool drop_bare(__u32 reason)
{
	return bpf_core_enum_value_exists(enum skb_drop_reason___bare, SKB_DROP_REASON_NOT_SPECIFIED___bare) &&
	       reason == bpf_core_enum_value(enum skb_drop_reason___bare, SKB_DROP_REASON_NOT_SPECIFIED___bare);
}

/* The kernel also frees without a reason the FIN and ACKs that a socket in
 * TIME_WAIT has processed: no drops. Data that come then are lost.
 */
static __always_inline bool drop_waited(__u32 reason, const struct sk_buff *skb, const struct sock *sk)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;

	return drop_bare(reason) && sock_state(sk) == TCP_TIME_WAIT &&
	       BPF_CORE_READ(cb, end_seq) - BPF_CORE_READ(cb, seq) <= 1;
}
