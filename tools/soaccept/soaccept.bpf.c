//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soaccept - each accept. The peer is read from the accepted socket, so it is
 * known whether or not the caller asked for an address.
 */
#define SOCK_CALL_SINCE
#include "pending.h"
#include "sockcall.h"
#include "unix.h"

const volatile bool only_failed = false;

struct accept_event {
	struct head head;
	struct tuple tuple;
	__s32 result; /* 0 or a negative errno */
	__u32 by;     /* 0: system call, 1: io_uring */
	char path[108], peer[108]; /* of UNIX sockets: the listener's, the caller's */
	__u64 latency; /* NONE: its beginning was not seen */
	__u32 pending; /* it has not returned: latency is its age */
	__u32 pad;
};
EVENT(struct accept_event);

static __always_inline int tell(const struct sock_call *c, const struct who *who, __u32 netns, long ret, bool pending)
{
	struct sock *sk = call_sock(c), *made = c->made, *peer;
	struct accept_event *e;
	struct tuple t = {};

	if (sk)
		tuple_fill(&t, sk);
	if (!tuple_wanted(&t))
		return 0;
	e = EVENT_NEW(struct accept_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = netns;
	e->head.who = *who;
	e->tuple = t;
	e->latency = c->since ? e->head.ts - c->since : NONE;
	e->pending = pending;
	if (t.family == AF_UNIX) {
		unix_path(e->path, c->sk ? c->sk : sk);
		peer = made ? BPF_CORE_READ((struct unix_sock *)made, peer) : NULL;
		if (peer)
			unix_path(e->peer, peer);
	}
	e->result = ret < 0 ? ret : 0;
	e->by = c->uring;
	return event_send(e);
}

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret)
{
	struct sock *sk = call_sock(c);
	struct who who = {};

	if (ret >= 0 ? only_failed : !only_failed && (ret == -EAGAIN || is_restart(ret)))
		return 0;
	if (!call_wanted(c, &who))
		return 0;
	return tell(c, &who, sk ? sock_netns(sk) : task_netns(), ret, false);
}

/* --blocked */
PENDING_CALL(pending, sock_calls, struct sock_call)
{
	struct sock *sk = value->sk;
	struct who who = {};

	if (!sk || !sock_wanted(sk))
		return 0;
	who_task(&who, task);
	if (who.pid == filter_self || !who_wanted(&who))
		return 0;
	return tell(value, &who, sock_netns(sk), 0, true);
}

SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL_URING(op == URING_ACCEPT)
