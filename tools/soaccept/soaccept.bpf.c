//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soaccept - each accept. The peer is read from the accepted socket, so it is
 * known whether or not the caller asked for an address.
 */
#define SOCK_CALL_SINCE
#define SOCK_CALL_UNWANTED unwanted
#include "pending.h"
#include "sysarg.h"

const volatile bool only_failed = false; /* show failures, EAGAIN too */
const volatile bool only_errors = false; /* show failures, but not EAGAIN */

static __always_inline bool unwanted(long ret)
{
	if (ret >= 0)
		return only_failed || only_errors;
	return !only_failed && (ret == -EAGAIN || is_restart(ret));
}

#include "sockcall.h"
#include "unix.h"

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

	if (unwanted(ret)) /* io_uring; of a system call it is known before */
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

/* --errors. Nothing is kept at entry, so a success costs one comparison. The listener is
 * looked up at exit. How long the call waited is not known.
 */
static __noinline int accept_failed(void *ctx, long ret)
{
	struct sock_call c = { .sk = fd_sock(sys_exit_arg(0)), .op = CALL_ACCEPT };

	return sock_call(ctx, &c, ret);
}

SYS_EXIT(failed, accept)
{
	return unwanted(ret) ? 0 : accept_failed(ctx, ret);
}

SYS_EXIT(failed, accept4)
{
	return unwanted(ret) ? 0 : accept_failed(ctx, ret);
}

SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL_URING(op == URING_ACCEPT)
