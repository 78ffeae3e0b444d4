/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcp.h - payload bytes of a TCP session, exactly: neither SYN nor FIN; packets
 * under way.
 */
#pragma once
#include "sock.h"

struct tcp_bytes {
	__u64 tx;     /* sent at least once */
	__u64 unsent; /* written, and never sent */
	__u64 rx;     /* received in order */
};

/* Does the kernel count the SYN of a socket as a byte of bytes_acked? That of a
 * socket which connected, not that of a listener's child. SYN_GUESS is for sockets
 * whose beginning was not seen.
 */
enum tcp_syn { SYN_NO, SYN_YES, SYN_GUESS };

/* A FIN is the last byte of what was written. */
static __always_inline bool tcp_has_fin(int state)
{
	return state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 || state == TCP_CLOSING || state == TCP_LAST_ACK;
}

/* bytes_sent is not used: a segment that the local queueing discipline drops is sent
 * again as if for the first time, and counts again. The bytes that were acknowledged,
 * and those that wait for it, are the bytes that were sent at least once.
 *
 * State is the one that the socket is in, or has just left for CLOSE.
 */
static __always_inline void tcp_sent(struct tcp_bytes *b, const struct tcp_sock *tp, int state, enum tcp_syn syn, bool typed)
{
	__u64 acked = READ(tp, bytes_acked);
	__u32 una = READ(tp, snd_una), next = READ(tp, snd_nxt), end = READ(tp, write_seq);

	b->tx = b->unsent = 0;
	/* A connect that failed before its SYN left the numbers of no connection. */
	if (state == TCP_SYN_SENT && !READ(tp, segs_out))
		return;
	b->tx = acked + (next - una);
	b->unsent = end - next;
	if (tcp_has_fin(state)) {
		if (b->unsent)
			b->unsent--;
		else if (b->tx)
			b->tx--;
	}
	/* A listener's child has the listener's backlog. If that was 0, or if a
	 * socket that is recorded as a client has one, the kernel's other count
	 * decides, unless something was dropped locally. The second case occurs if
	 * the kernel skipped the program that deletes the entry of an earlier socket.
	 */
	bool child = READ(tp, inet_conn.icsk_inet.sk.sk_max_ack_backlog);

	if (syn == SYN_GUESS && child)
		syn = SYN_NO;
	else if (syn == SYN_GUESS || (syn == SYN_YES && child))
		syn = b->tx != READ(tp, bytes_sent) - READ(tp, bytes_retrans);
	if (syn == SYN_YES && b->tx)
		b->tx--;
}

/* The kernel counts the peer's FIN as one byte; SOCK_DONE shows that it came. */
static __always_inline __u64 tcp_received(const struct tcp_sock *tp, bool typed)
{
	__u64 rx = READ(tp, bytes_received);

	return rx - (rx && READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_flags) >> SOCK_DONE & 1);
}

/* One read of a socket that may be unlocked. False: it changed meanwhile. Then
 * acknowledged bytes would count twice or not at all, and a sent FIN would
 * count as a byte. For a socket that has ended, state is the one before: CLOSE
 * does not show whether a FIN was sent.
 */
static __always_inline bool tcp_look(struct tcp_bytes *b, const struct tcp_sock *tp, int *state, enum tcp_syn syn)
{
	__u32 una = BPF_CORE_READ(tp, snd_una);
	__u8 was = *state, now;

	tcp_sent(b, tp, was, syn, false);
	now = sock_state((void *)tp);
	if (now != TCP_CLOSE)
		*state = now;
	return *state == was && una == BPF_CORE_READ(tp, snd_una);
}

/* For any socket. State is the one that it was in before CLOSE. */
static __always_inline void tcp_bytes_read(struct tcp_bytes *b, const struct tcp_sock *tp, int state, enum tcp_syn syn)
{
	/* no loop: before 5.15 the verifier refuses some that are not unrolled */
	if (!tcp_look(b, tp, &state, syn) && !tcp_look(b, tp, &state, syn))
		tcp_look(b, tp, &state, syn);
	b->rx = tcp_received(tp, false);
}

/* For a socket from tcp_load whose state changes: its lock is held. */
static __always_inline void tcp_bytes_load(struct tcp_bytes *b, const struct tcp_sock *tp, int state, enum tcp_syn syn)
{
	tcp_sent(b, tp, state, syn, true);
	b->rx = tcp_received(tp, true);
}

/* The TCP socket of a sk that LOAD can read, for LOAD. NULL if it is not TCP. */
static __always_inline const struct tcp_sock *tcp_load(const struct sock *sk)
{
	return plain() ? bpf_skc_to_tcp_sock((void *)sk) : (void *)sk;
}

/* Packets in flight, which the congestion window limits. Packets that the peer has, or
 * that are lost, are not among them.
 */
static __always_inline __u32 tcp_in_flight(const struct tcp_sock *tp)
{
	return LOAD(tp, packets_out) - LOAD(tp, sacked_out) - LOAD(tp, lost_out) + LOAD(tp, retrans_out);
}
