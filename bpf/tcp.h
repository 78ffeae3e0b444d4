/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcp.h - payload bytes of a TCP session, exactly: neither SYN nor FIN; packets
 * under way.
 */
#pragma once
#include "probe.h"

/* What was sent, without what had to be sent again. */
static __always_inline __u64 tcp_tx(const struct tcp_sock *tp, bool typed)
{
	return READ(tp, bytes_sent) - READ(tp, bytes_retrans);
}

/* The kernel counts the peer's FIN as one byte; SOCK_DONE says that it came. */
static __always_inline __u64 tcp_rx(const struct tcp_sock *tp, bool typed)
{
	__u64 rx = READ(tp, bytes_received);

	return rx - (rx && READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_flags) >> SOCK_DONE & 1);
}

static __always_inline __u64 tcp_tx_bytes(const struct tcp_sock *tp)
{
	return tcp_tx(tp, false);
}

static __always_inline __u64 tcp_rx_bytes(const struct tcp_sock *tp)
{
	return tcp_rx(tp, false);
}

/* The same for what tcp_load gave. */
static __always_inline __u64 tcp_tx_load(const struct tcp_sock *tp)
{
	return tcp_tx(tp, true);
}

static __always_inline __u64 tcp_rx_load(const struct tcp_sock *tp)
{
	return tcp_rx(tp, true);
}

/* The TCP socket that a sk which LOAD can read is, for LOAD. NULL if it is none. */
static __always_inline const struct tcp_sock *tcp_load(const struct sock *sk)
{
	return plain() ? bpf_skc_to_tcp_sock((void *)sk) : (void *)sk;
}

/* Packets on their way, of which the congestion window allows so many: neither
 * those that the peer has nor those that are lost.
 */
static __always_inline __u32 tcp_in_flight(const struct tcp_sock *tp)
{
	return LOAD(tp, packets_out) - LOAD(tp, sacked_out) - LOAD(tp, lost_out) + LOAD(tp, retrans_out);
}
