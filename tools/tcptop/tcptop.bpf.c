//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcptop - the byte counters that TCP keeps anyway, read at each tick.
 *
 * Counting costs nothing per packet or call: an iterator walks over all open
 * files, and sessions that end between two ticks are reported then. Only the
 * owner of a session is checked at each send and receive: see owner.h.
 */
#define OWNER_OPTIONS (OWNER_TIMES | OWNER_STATE_IN_TOOL)
#include "owner.h"
#include "tcp.h"

struct top_entry {
	struct head head;
	struct tuple tuple;
	__u64 sk; /* which socket, to find it again at the next tick */
	__u64 tx, rx, unsent; /* of struct tcp_bytes */
	__u64 born;		       /* 0: before us; NONE: unknown */
	__u64 total, tx_rate, rx_rate; /* of the interval: for Go to fill in */
	__u32 retrans, srtt_us;
};
EVENT(struct top_entry);

/* State is the one that sk is in, or has just left for CLOSE. */
static __always_inline void entry_fill(struct top_entry *e, const struct sock *sk, int state)
{
	const struct tcp_sock *tp = (void *)sk;
	struct owner *o = owner_entry(sk);
	struct tcp_bytes b = {};

	if (o && owner_stale(o, sk))
		o = NULL;
	e->born = !o ? NONE : o->kept.flags & OWNER_BORN ? o->seen : 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->sk = (__u64)sk;
	tcp_bytes_read(&b, tp, state, owner_syn(o));
	e->tx = b.tx;
	e->rx = b.rx;
	e->unsent = b.unsent;
	e->retrans = BPF_CORE_READ(tp, total_retrans);
	e->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
}

static __always_inline bool addrs_wanted(struct top_entry *e, const struct sock *sk)
{
	return tuple_fill(&e->tuple, sk) && tuple_wanted(&e->tuple);
}

static __always_inline int walk(struct seq_file *seq, struct task_struct *task, struct sock *sk)
{
	struct top_entry e = {};
	struct owner *o;
	__u8 state = sock_state(sk);

	if (state == TCP_LISTEN || state == TCP_CLOSE || !sock_wanted(sk) || !addrs_wanted(&e, sk))
		return 0;
	/* Several processes may have the socket open: show the one that uses it. */
	o = owner_entry(sk);
	if (!owner_of(&e.head.who, sk, o))
		who_task(&e.head.who, task);
	if (!who_wanted(&e.head.who))
		return 0;
	entry_fill(&e, sk, state);
	bpf_seq_write(seq, &e, sizeof(e));
	return 0;
}

SEC("iter/task_file") int poll__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock *sk;
	__u16 proto;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk || !is_inet(sock_family(sk)))
		return 0;
	proto = sock_proto(sk);
	if (proto == IPPROTO_MPTCP)
		sk = mptcp_first(sk);
	else if (proto != IPPROTO_TCP)
		return 0;
	return sk ? walk(ctx->meta->seq, task, sk) : 0;
}

/* The session of sk has ended. */
static __noinline int ended(const struct sock *sk, int old)
{
	struct top_entry t = {}, *e; /* 5.10 and 6.1 want what filters look up on the stack */

	if (!addrs_wanted(&t, sk))
		return 0;
	owner_get(&t.head.who, sk);
	if (!who_wanted(&t.head.who))
		return 0;
	entry_fill(&t, sk, old);
	e = EVENT_NEW(struct top_entry);
	if (!e)
		return 0;
	*e = t;
	return event_send(e);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u16 proto;

	if (!owner_state(old, new))
		return 0;
	proto = load_proto(sk);
	if (is_tcp(proto))
		owner_on_state(sk, old, new);
	if (proto != IPPROTO_TCP || new != TCP_CLOSE || old == TCP_LISTEN || old == TCP_CLOSE || !sock_wanted(sk))
		return 0;
	return ended(sk, old);
}
