//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* solisten - each listen, with the backlog that was asked for and the one in
 * force. It watches the call, not the states of sockets. So an MPTCP listener and
 * its subflow are one row, and UNIX sockets, which have no such states, are seen.
 */
#include "sockcall.h"
#include "unix.h"

struct listen_event {
	struct head head;
	struct tuple tuple;
	__u64 backlog; /* asked for; NONE: not known */
	__u64 limit;   /* in force; NONE: the call failed */
	__s32 ret;
	__u32 by;      /* 0: system call, 1: io_uring */
	char path[108];
	__u32 pad;
};
EVENT(struct listen_event);

/* An MPTCP socket leaves the queue to its first subflow. */
static __always_inline __u32 backlog_limit(const struct sock *sk)
{
	const struct mptcp_sock___mptcp *msk = (void *)sk;
	const struct sock *first;

	if (is_inet(sock_family(sk)) && sock_proto(sk) == IPPROTO_MPTCP &&
	    bpf_core_type_exists(struct mptcp_sock___mptcp)) {
		first = BPF_CORE_READ(msk, first);
		if (first)
			return BPF_CORE_READ(first, sk_max_ack_backlog);
	}
	return BPF_CORE_READ(sk, sk_max_ack_backlog);
}

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret)
{
	struct listen_event *e;
	struct sock *sk = c->sk;
	struct tuple t = {};
	struct who who = {};

	if (!call_wanted(c, &who))
		return 0;
	if (sk)
		tuple_fill(&t, sk);
	if (!tuple_wanted(&t))
		return 0;
	e = EVENT_NEW(struct listen_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sk ? sock_netns(sk) : task_netns();
	e->head.who = who;
	e->tuple = t;
	if (t.family == AF_UNIX)
		unix_path(e->path, sk);
	e->backlog = c->uring ? NONE : (__u32)c->arg[0];
	e->limit = sk && !ret ? backlog_limit(sk) : NONE;
	e->ret = ret;
	e->by = c->uring;
	return event_send(e);
}

SOCK_CALL(listen, CALL_LISTEN)
SOCK_CALL_URING(op == URING_LISTEN)
