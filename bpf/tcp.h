/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcp.h - payload bytes of a TCP session, exactly: neither SYN nor FIN. */
#pragma once
#include "kernel.h"

/* What was sent, without what had to be sent again. */
static __always_inline __u64 tcp_tx_bytes(const struct tcp_sock *tp)
{
	return BPF_CORE_READ(tp, bytes_sent) - BPF_CORE_READ(tp, bytes_retrans);
}

/* The kernel counts the peer's FIN as one byte; SOCK_DONE says that it came. */
static __always_inline __u64 tcp_rx_bytes(const struct tcp_sock *tp)
{
	__u64 rx = BPF_CORE_READ(tp, bytes_received);

	return rx - (rx && BPF_CORE_READ((struct sock *)tp, __sk_common.skc_flags) >> SOCK_DONE & 1);
}
