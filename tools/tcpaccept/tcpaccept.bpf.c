//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpaccept - each passive TCP connection, when a process accepts it. */
#include "fd.h"
#include "mptcp.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

struct accept_event {
	struct head head;
	struct tuple tuple;
	__u64 queued;  /* in the accept queue; NONE: its beginning was not seen */
	__u64 backlog; /* of the listener: limit << 32 | used; NONE: unknown */
};
EVENT(struct accept_event);

/* Since when a connection can be accepted. */
SPAN_OF(ready, struct sock *, __u64, 16384);
__u64 ready_count = 0; /* entries */

/* The listener that a thread waits on; NULL: none. The entry stays, because the
 * thread will wait again.
 */
THREAD_SPAN(waiting, struct sock *);
THREAD_END(waiting)

/* The socket of a connection is made when its handshake is complete (with Fast
 * Open: begins) and queued at once. A process may take it before it has gone on
 * to ESTABLISHED.
 */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct sock *key = (struct sock *)sk;
	__u64 now;

	if (new == TCP_CLOSE && ready_count)
		span_end_counted(&ready, &key, &ready_count); /* if nobody has accepted it */
	if (new != TCP_SYN_RECV || load_proto(sk) != IPPROTO_TCP || !sock_wanted(sk))
		return 0;
	now = bpf_ktime_get_ns();
	span_begin_counted(&ready, &key, &now, &ready_count);
	return 0;
}

static __always_inline int accepted(struct sock *sk, struct sock *listener)
{
	struct accept_event *e;
	struct tuple tuple = {};
	struct who who = {};
	__u64 *since;

	if (!sk || is_self() || !sock_wanted(sk))
		return 0;
	sk = mptcp_flow(sk);
	if (!sk || !tuple_fill(&tuple, sk) || tuple.proto != IPPROTO_TCP || !tuple_wanted(&tuple))
		return 0;
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct accept_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->head.who = who;
	e->tuple = tuple;
	e->queued = NONE;
	e->backlog = NONE;
	since = bpf_map_lookup_elem(&ready, &sk);
	if (since) {
		e->queued = e->head.ts - *since;
		span_end_counted(&ready, &sk, &ready_count);
	}
	listener = listener ? mptcp_flow(listener) : NULL;
	if (listener)
		e->backlog = (__u64)BPF_CORE_READ(listener, sk_max_ack_backlog) << 32 |
			     BPF_CORE_READ(listener, sk_ack_backlog);
	return event_send(e);
}

static __always_inline int enter(int fd)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(fd), **slot;

	if (!sk)
		return 0;
	slot = bpf_map_lookup_elem(&waiting, &thread);
	if (slot)
		*slot = sk;
	else
		span_begin(&waiting, &thread, &sk);
	return 0;
}

static __always_inline int leave(long ret)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock **found = bpf_map_lookup_elem(&waiting, &thread);
	struct sock *listener = NULL;

	if (found) {
		listener = *found;
		*found = NULL;
	}
	return ret < 0 ? 0 : accepted(fd_sock(ret), listener);
}

SYS_ENTER(accept, accept) { return enter(a0); }
SYS_EXIT(accept, accept) { return leave(ret); }
SYS_ENTER(accept, accept4) { return enter(a0); }
SYS_EXIT(accept, accept4) { return leave(ret); }

URING_COMPLETE(uring, op == URING_ACCEPT)
{
	return res < 0 ? 0 : accepted(fd_sock(res), sk);
}
