/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* cgskb.h - cgroup_skb programs: packets where they leave or enter a socket.
 *
 * Forwarded packets do not run them. Data begins at the IP header.
 * bpf_skb_load_bytes reads the payload also where it is not in the linear part of the
 * packet, which is where TCP has it. A packet may be an aggregate of several.
 */
#pragma once
#include "cgroup.h"
#include "who.h"

/* The contexts are ABI, as far as they are used here. */
struct bpf_sock {
	__u32 unused[12];
	__u32 dst_port; /* in the low half */
};
struct __sk_buff {
	__u32 len;
	__u32 unused[18];
	__u32 data, data_end; /* the linear part */
	__u32 more[21];
	struct bpf_sock *sk;
};

/* The socket of a packet, for BPF_CORE_READ. The context is the packet itself,
 * but the verifier restricts pointers from it. So the memory that it points to
 * is read like any other kernel memory.
 */
static __always_inline const struct sock *skb_sk(struct __sk_buff *skb)
{
	return BPF_CORE_READ((struct sk_buff *)skb, sk);
}

static __always_inline __u32 skb_sk_netns(struct __sk_buff *skb)
{
	const struct sock *sk = skb_sk(skb);

	return sk ? sock_netns(sk) : 0;
}

/* The process that sends; who_current() needs more than these programs have.
 * TCP also sends in softirq, where the current task is unrelated. A process
 * that sends holds the socket's lock. A listener answers a SYN without its lock,
 * which its process may hold on another processor meanwhile.
 */
static __always_inline bool skb_sender(struct who *w, const struct sock *sk, __u16 proto)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return false;
	if (proto == IPPROTO_TCP && (!sk || BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN || !BPF_CORE_READ(sk, sk_lock.owned)))
		return false;
	who_task(w, task);
	return true;
}
