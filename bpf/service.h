/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* service.h - the port of a socket's service. */
#pragma once
#include "mptcp.h"

/* Was this TCP socket made by a listener? Then the kernel has recorded the
 * device of the connection. Other sockets have none unless they send multicasts.
 */
static __always_inline bool sock_accepted(const struct sock *sk)
{
	const struct inet_sock *inet = (void *)mptcp_flow((struct sock *)sk);
	struct ipv6_pinfo *six;

	if (!inet || BPF_CORE_READ(inet, mc_index))
		return inet;
	six = BPF_CORE_READ(inet, pinet6);
	return six && BPF_CORE_READ(six, mcast_oif);
}

/* The port of the service: the local port of an accepted connection, else the
 * remote one.
 */
static __always_inline __u16 service_port(const struct sock *sk, const struct tuple *t)
{
	bool tcp = t->proto == IPPROTO_TCP || t->proto == IPPROTO_MPTCP;

	return tcp && sock_accepted(sk) ? t->lport : t->rport;
}
