//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcprtt - the kernel's round-trip time of TCP connections, at each segment
 * that comes in.
 */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_COOKIES_IN_TOOL)
#include "hist.h"
#include "tcp.h"
#include "tcpkey.h"

const volatile bool minimum = false; /* in place of the smoothed time */

struct rtt_key {
	struct tcp_key tcp;
};
struct rtt_value {
	struct hist hist;
};
static const struct rtt_value rtt_zero = {};

COUNT_MAP(rtts, struct rtt_key, struct rtt_value);

KTRACE(segment, tcp_probe, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_load(sk);
	struct rtt_key k = {};
	struct rtt_value *v;
	__u32 us;

	if (!tp)
		return 0;
	us = LOAD(tp, srtt_us) >> 3;
	if (!us) /* nothing was measured yet */
		return 0;
	if (minimum)
		us = LOAD(tp, rtt_min.s[0].v);
	if (!tcp_key_fill(&k.tcp, sk))
		return 0;
	v = count_at(COUNTED(rtts), &k, &rtt_zero);
	if (v)
		hist_put(&v->hist, us);
	return 0;
}
