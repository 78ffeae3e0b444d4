/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcptime.h - when things happened on a TCP connection.
 *
 * TCP keeps stamps for its own use. They are on the clock of bpf_ktime_get_ns, so a
 * program that runs later can tell when a request left, when its last ACK came, and
 * how long the peer's window was closed. tcp_mstamp is not among them: reading
 * refreshes it.
 *
 * All of this works on whatever pointer to a socket: FIELD is a plain load from
 * 6.2 on.
 */
#pragma once
#include "sock.h"

#define TCP(sk, field) FIELD(sk, struct tcp_sock, field)

/* Is sequence number a behind b? */
#define seq_after(a, b) ((__s32)((b) - (a)) < 0)

/* Nanoseconds of a jiffy. Set by Go. */
const volatile __u64 tick_ns = 4000000;

/* The kernel counts jiffies by the same clock: number j begins at tick_phase + j *
 * tick_ns. Nobody tells the phase, but it is the least difference that was ever seen
 * between the clock and the count. So stamps in jiffies become times, and one that
 * is a jiffy old may be known to be a microsecond old.
 */
__s64 tick_phase = 0x7fffffffffffffff;

/* The clock is read after the count. What happens between, as an interrupt or time that
 * the hypervisor takes, makes the difference too large, and the least one stays right.
 */
static __always_inline __s64 tick_learn(__u64 jiffies)
{
	__s64 phase = bpf_ktime_get_ns() - jiffies * tick_ns;

	if (phase < tick_phase)
		tick_phase = phase;
	return tick_phase;
}

/* When data last came. Of data that came two jiffies ago or before, the middle of
 * that jiffy is the best guess. Of newer data it is the end of it: else a quick reader
 * would seem to be late whenever a jiffy begins between.
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

/* Did data last come in the jiffy in which data were last sent, or later? */
static __always_inline bool tcp_came_after_send(const struct sock *sk)
{
	return (__s32)(FIELD(sk, struct inet_connection_sock, icsk_ack.lrcvtime) - TCP(sk, lsndtime)) >= 0;
}

/* Where the data that the application can read end. The peer's FIN counts as a byte
 * of rcv_nxt.
 */
static __always_inline __u32 tcp_data_end(const struct sock *sk)
{
	return TCP(sk, rcv_nxt) - (FIELD(sk, struct sock, __sk_common.skc_flags) >> SOCK_DONE & 1);
}

/* The kernel's chronograph in jiffies, with what is running now: how long data were
 * under way, how long of this the peer's window or our buffer was to blame.
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
