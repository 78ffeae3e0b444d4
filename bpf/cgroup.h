/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* cgroup.h - programs on the root of cgroup v2, which run for all processes.
 *
 * They could forbid it, so each must return CGROUP_ALLOW. Their contexts are
 * ABI. The verifier hides the kernel's own struct sock behind them.
 */
#pragma once
#include "kernel.h"

#define CGROUP_ALLOW 1

/* Of cgroup/sendmsg4 and the like: struct bpf_sock_addr. */
struct cgroup_addr {
	__u32 user_family;
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 family, type, protocol;
	__u32 msg_src_ip4;
	__u32 msg_src_ip6[4];
	void *sk __attribute__((aligned(8)));
};

/* Of cgroup/sock_create and cgroup/sock_release: struct bpf_sock. */
struct cgroup_sk {
	__u32 bound_dev_if, family, type, protocol;
};

/* The struct sock that a context's sk, or the context of sock_create and
 * sock_release, points to. Read back from memory it is a plain number, which
 * BPF_CORE_READ may follow.
 */
static __always_inline const struct sock *cgroup_sock(void *pointer)
{
	void *volatile slot = pointer;
	const struct sock *sk = NULL;

	bpf_probe_read_kernel(&sk, sizeof(sk), (const void *)&slot);
	return sk;
}
