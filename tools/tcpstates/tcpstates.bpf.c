//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpstates - one event for each change of a TCP state. */
#define OWNER_LISTENERS
#define OWNER_STATE_IN_TOOL
#include "owner.h"
#include "span.h"

struct state_event {
	struct head head;
	struct tuple tuple;
	__u64 sk;
	__u64 spent; /* in the old state; NONE: its beginning was not seen */
	__u8 old, new;
	__u16 pad;
	__u32 pad2;
};
EVENT(struct state_event);

/* When a socket came into the state that it is in. */
SPAN(since, struct sock *, __u64);

static __always_inline int change(const struct sock *sk, __u64 now, __u64 spent, int old, int new)
{
	struct tuple tuple = {};
	struct who who = {};
	struct state_event *e;

	if (!tuple_load(&tuple, sk) || !tuple_wanted(&tuple))
		return 0;
	owner_get(&who, sk);
	if (!who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct state_event);
	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = load_netns(sk);
	e->head.who = who;
	e->tuple = tuple;
	e->sk = (__u64)sk;
	e->spent = spent;
	e->old = old;
	e->new = new;
	return event_send(e);
}

/* A connection's subflow stands for an MPTCP connection: with one row each, not
 * two. MPTCP also reports states that it does not leave.
 */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u64 now = bpf_ktime_get_ns(), spent = NONE, *begun;
	struct sock *key = (struct sock *)sk;
	__u16 proto = load_proto(sk);

	if (!is_tcp(proto) || old == new)
		return 0;
	owner_on_state(sk, old, new);
	if (proto != IPPROTO_TCP || !sock_wanted(sk))
		return 0;
	begun = bpf_map_lookup_elem(&since, &key);
	if (begun) {
		spent = now - *begun;
		*begun = now;
	} else {
		span_begin(&since, &key, &now);
	}
	/* A child of a listener has the listener's addresses until it is complete:
	 * its first change is told together with the second.
	 */
	if (new == TCP_SYN_RECV && old == TCP_LISTEN)
		return 0;
	if (old == TCP_SYN_RECV && spent != NONE)
		change(sk, now - spent, NONE, TCP_LISTEN, TCP_SYN_RECV);
	return change(sk, now, spent, old, new);
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	bpf_map_delete_elem(&since, &key);
	return 0;
}
