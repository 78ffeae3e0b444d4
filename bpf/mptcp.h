/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* mptcp.h - MPTCP connections and the TCP subflows below them. */
#pragma once
#include "sock.h"

/* The MPTCP connection that a subflow belongs to, if it is one. */
static __always_inline struct sock *mptcp_parent(const struct sock *sk)
{
	if (!bpf_core_type_exists(struct mptcp_subflow_context___mptcp))
		return NULL;
	if (!FIELD(sk, struct tcp_sock___mptcp, is_mptcp))
		return NULL;
	struct mptcp_subflow_context___mptcp *flow = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ulp_data);

	return flow ? BPF_CORE_READ(flow, conn) : NULL;
}

/* The first subflow of an MPTCP socket, or of its listener. NULL if it is not
 * known.
 */
static __always_inline struct sock *mptcp_first(const struct sock *sk)
{
	if (!bpf_core_type_exists(struct mptcp_sock___mptcp))
		return NULL;
	return BPF_CORE_READ((struct mptcp_sock___mptcp *)sk, first);
}

/* The socket that does TCP's work for sk: its first subflow, or sk itself. */
static __always_inline struct sock *mptcp_flow(struct sock *sk)
{
	return sock_proto(sk) == IPPROTO_MPTCP ? mptcp_first(sk) : sk;
}

/* A TCP connection as its program sees it: plain TCP or MPTCP, not a subflow. */
static __always_inline bool is_session(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	if (!is_inet(sock_family(sk)))
		return false;
	return proto == IPPROTO_MPTCP || (proto == IPPROTO_TCP && !mptcp_parent(sk));
}
