/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcptime.h - when things happened on a TCP connection.
 *
 * TCP keeps stamps for its own use. They are on the clock of bpf_ktime_get_ns, so a
 * program that runs later can tell when a request left, when its last ACK came, and
 * how long the peer's window was closed.
 *
 * All functions take any pointer to a socket: FIELD is a plain load from 6.2
 * on.
 */
#pragma once
#include "sock.h"

#define TCP(sk, field) FIELD(sk, struct tcp_sock, field)

/* Is sequence number a behind b? */
#define seq_after(a, b) ((__s32)((b) - (a)) < 0)

/* Nanoseconds in a jiffy. Set by Go. */
const volatile __u64 tick_ns = 4000000;

/* The kernel counts jiffies by the same clock: number j begins at tick_phase + j *
 * tick_ns. The kernel does not show the phase, but it is the least difference ever
 * seen between the clock and the count. So stamps in jiffies become times, and a stamp
 * that is a jiffy old may be known to be a microsecond old.
 */
__s64 tick_phase = 0x7fffffffffffffff;

/* The clock is read after the count. An interrupt or the hypervisor between the two reads
 * makes the difference too large, and the least one stays right.
 */
static __always_inline __s64 tick_learn(__u64 jiffies)
{
	__s64 phase = bpf_ktime_get_ns() - jiffies * tick_ns;

	if (phase < tick_phase)
		tick_phase = phase;
	return tick_phase;
}

/* 1 if the peer has sent its FIN. */
static __always_inline __u32 tcp_done(const struct sock *sk)
{
	return FIELD(sk, struct sock, __sk_common.skc_flags) >> SOCK_DONE & 1;
}

/* When data last came, by the count of jiffies. For data that is two jiffies old or older,
 * the middle of its jiffy is the best guess. For newer data it is the end: otherwise a
 * quick reader would look late whenever a jiffy begins in between.
 */
static __always_inline __u64 tcp_arrival(const struct sock *sk, __u64 now)
{
	__u64 jiffies = bpf_jiffies64();
	__s64 phase = tick_learn(jiffies);
	__s32 ago = (__u32)jiffies - FIELD(sk, struct inet_connection_sock, icsk_ack.lrcvtime);
	__u64 end;

	if (ago <= 0)
		return now;
	end = phase + (jiffies - ago + 1) * tick_ns;
	if (ago > 1)
		end -= tick_ns / 2;
	return end < now ? end : now;
}

#define ACK_SCHED 1 /* of icsk_ack.pending: data came, and no ACK has been sent */

/* The same when data is read, before tcp_rcv_space_adjust() refreshes the stamp of the
 * last segment. It is the stamp of the data, unless the ACK timer or the peer's FIN came
 * later. Then the count must agree.
 */
static __always_inline __u64 tcp_arrival_read(const struct sock *sk, __u64 now)
{
	__u64 stamp = TCP(sk, tcp_mstamp) * 1000, counted;

	if (stamp > now)
		stamp = now;
	if (FIELD(sk, struct inet_connection_sock, icsk_ack.pending) & ACK_SCHED && !tcp_done(sk))
		return stamp;
	counted = tcp_arrival(sk, now);
	return stamp < counted + 2 * tick_ns ? stamp : counted;
}

/* Did the last data come in the jiffy of the last send, or later? */
static __always_inline bool tcp_came_after_send(const struct sock *sk)
{
	return (__s32)(FIELD(sk, struct inet_connection_sock, icsk_ack.lrcvtime) - TCP(sk, lsndtime)) >= 0;
}

/* The end of the data that the application can read. The peer's FIN counts as a byte
 * of rcv_nxt.
 */
static __always_inline __u32 tcp_data_end(const struct sock *sk)
{
	return TCP(sk, rcv_nxt) - tcp_done(sk);
}

/* The kernel's chronograph in jiffies, including the current state: how long data was in
 * flight, and for how much of that the peer's window or our buffer was the limit.
 */
struct chrono {
	__u32 busy, window, buffer;
};
enum { CHRONO_BUSY = 1, CHRONO_WINDOW, CHRONO_BUFFER };

static __noinline __attribute__((unused)) int chrono_read(struct chrono *c, const struct sock *sk)
{
	const struct tcp_sock *tp = (void *)sk;
	__u8 type = BPF_CORE_READ_BITFIELD_PROBED(tp, chrono_type);
	__u32 run = type ? (__u32)bpf_jiffies64() - TCP(sk, chrono_start) : 0;

	c->window = TCP(sk, chrono_stat[1]) + (type == CHRONO_WINDOW ? run : 0);
	c->buffer = TCP(sk, chrono_stat[2]) + (type == CHRONO_BUFFER ? run : 0);
	c->busy = TCP(sk, chrono_stat[0]) + (type == CHRONO_BUSY ? run : 0) + c->window + c->buffer;
	return 0;
}

static __always_inline __u32 tcp_rtt_least(const struct sock *sk)
{
	return TCP(sk, rtt_min.s[0].v);
}
