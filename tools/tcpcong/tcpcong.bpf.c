//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpcong - the time of TCP connections in each state of congestion control.
 *
 * A connection starts in Open. It gets an entry at its first change of state. A connection
 * that never leaves Open costs nothing.
 */
#define OWNER_OPTIONS (OWNER_TIMES | OWNER_STATE_IN_TOOL)
#define KEY_MORE KEY_state
#include "hist.h"
#include "span.h"
#include "tcpkey.h"

const volatile bool dist = false; /* histograms in place of the times of connections */

enum { CA_OPEN, CA_DISORDER, CA_CWR, CA_RECOVERY, CA_LOSS, CA_STATES };

/* Programs write an entry only with the socket locked. The walk may read it at the same
 * time, and accepts it only if its sums agree.
 */
struct cong_conn {
	struct tuple tuple;
	__u64 begin;		/* start of the times */
	__u64 since;		/* start of the present state: begin plus all times */
	__u64 time[CA_STATES];	/* time in each state until since */
	__u64 check;		/* checksum of since and state */
	__u32 changes;
	__u32 state;
	__u32 netns;
	__u32 born; /* begin is the time when the socket was made */
};
SPAN(conns, __u64, struct cong_conn);

struct cong_entry {
	struct head head;
	struct tuple tuple;
	__u64 sk, begin; /* identify the connection */
	__u64 open, disorder, cwr, recovery, loss;
	__u64 troubled; /* Go fills it in */
	__u32 changes;
	__u32 state;
};
EVENT(struct cong_entry);

struct cong_key {
	struct tcp_key tcp;
	__u32 state;
	__u32 pad;
};
struct cong_value {
	struct hist hist;
};
static const struct cong_value cong_zero = {};
COUNT_MAP(stays, struct cong_key, struct cong_value);

/* The time of the last output. A connection whose first change comes later was Open
 * since then.
 */
__u64 told_at = 0;

static __always_inline __u64 conn_check(const struct cong_conn *c)
{
	return c->since * 8 + c->state;
}

static __always_inline __u32 ca_state(const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (void *)sk;

	return BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
}

/* A stay in a state has ended. Not inlined, like tell_end: the stack of 5.10 is small. */
static __noinline int stay_put(const struct sock *sk, __u32 state, __u64 ns)
{
	struct cong_key k = { .state = state };
	struct cong_value *v;

	if (!tcp_key_fill(&k.tcp, sk))
		return 0;
	v = count_at(COUNTED(stays), &k, &cong_zero);
	if (v)
		hist_put(&v->hist, ns / 1000);
	return 0;
}

static __always_inline struct cong_conn *conn_new(const struct sock *sk, __u64 now)
{
	struct owner *o = owner_entry(sk);
	struct cong_conn c = {};
	__u64 key = (__u64)sk;

	c.begin = told_at ? told_at : now;
	if (o && !owner_stale(o, sk) && o->kept.flags & OWNER_BORN && (!told_at || o->seen > told_at)) {
		c.begin = o->seen;
		c.born = 1;
	}
	c.since = c.begin;
	c.state = CA_OPEN;
	c.check = conn_check(&c);
	c.netns = load_netns(sk);
	tuple_load(&c.tuple, sk);
	span_begin(&conns, &key, &c);
	return bpf_map_lookup_elem(&conns, &key);
}

/* The state of sk changes from old to new. If old is CA_STATES, the entry has the old
 * state.
 */
static __always_inline int change(const struct sock *sk, __u32 old, __u32 new)
{
	__u64 key = (__u64)sk, now;
	struct cong_conn *c;

	/* The kernel sets a socket to Open when it disconnects it for reuse. */
	if (LOAD(sk, __sk_common.skc_state) == TCP_CLOSE)
		return 0;
	c = bpf_map_lookup_elem(&conns, &key);
	if (old == CA_STATES)
		old = c ? c->state : CA_OPEN;
	if (old == new || new >= CA_STATES)
		return 0;
	now = bpf_ktime_get_ns();
	if (!c) {
		if (!sock_wanted(sk))
			return 0;
		c = conn_new(sk, now);
		if (!c)
			return 0;
	}
	if (dist && (c->changes || c->born))
		stay_put(sk, old, now - c->since);
	asm volatile("" : "+r"(old)); /* the verifier must see the test */
	if (old < CA_STATES)
		c->time[old] += now - c->since;
	c->since = now;
	c->state = new;
	c->check = conn_check(c);
	c->changes++;
	return 0;
}

/* The tracepoint fires before the socket has the new state. */
KTRACE_SK(change, tcp_cong_state_set, const struct sock *sk, __u8 state)
{
	return change(sk, ca_state(sk), state);
}

/* Kernels before 5.19 do not have this tracepoint. There each ACK that may have changed the
 * state reaches tcp_rate_gen afterwards. Other changes have functions of their own.
 */
KFUNC_PART(change, ack, tcp_rate_gen, const struct sock *sk)
{
	return change(sk, CA_STATES, ca_state(sk));
}

KFUNC_PART(change, again, tcp_retransmit_skb, const struct sock *sk)
{
	return change(sk, CA_STATES, ca_state(sk));
}

KFUNC_PART(change, loss, tcp_enter_loss, const struct sock *sk)
{
	return change(sk, CA_STATES, CA_LOSS);
}

KFUNC_PART(change, cwr, tcp_enter_cwr, const struct sock *sk)
{
	__u32 state = ca_state(sk);

	return change(sk, CA_STATES, state < CA_CWR ? CA_CWR : state);
}

/* Copy an entry, with the time in its present state; false if it is inconsistent. */
static __always_inline bool entry_fill(struct cong_entry *e, const struct cong_conn *c, __u64 sk)
{
	__u64 since = c->since, check = c->check, now;

	e->tuple = c->tuple;
	e->head.netns = c->netns;
	e->sk = sk;
	e->begin = c->begin;
	e->changes = c->changes;
	e->state = c->state;
	e->head.ts = now = bpf_ktime_get_ns();
	e->open = c->time[CA_OPEN];
	e->disorder = c->time[CA_DISORDER];
	e->cwr = c->time[CA_CWR];
	e->recovery = c->time[CA_RECOVERY];
	e->loss = c->time[CA_LOSS];
	if (e->begin + e->open + e->disorder + e->cwr + e->recovery + e->loss != since || check != since * 8 + e->state)
		return false;
	now -= since;
	switch (e->state) {
	case CA_OPEN: e->open += now; break;
	case CA_DISORDER: e->disorder += now; break;
	case CA_CWR: e->cwr += now; break;
	case CA_RECOVERY: e->recovery += now; break;
	case CA_LOSS: e->loss += now; break;
	}
	return true;
}

static __always_inline bool entry_wanted(struct cong_entry *e, const struct sock *sk)
{
	if (!tuple_wanted(&e->tuple))
		return false;
	owner_get(&e->head.who, sk);
	return who_wanted(&e->head.who);
}

SEC("iter/bpf_map_elem") int poll__iter__conns(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct cong_conn *c = ctx->value;
	__u64 *key = ctx->key;
	struct cong_entry e = {};
	__u64 sk;

	if (!key || !c) { /* behind the last one */
		told_at = bpf_ktime_get_ns();
		return 0;
	}
	sk = *key;
	if (!entry_fill(&e, c, sk) && !entry_fill(&e, c, sk)) {
		lose(LOSS_READ);
		return 0;
	}
	if (entry_wanted(&e, (void *)sk))
		bpf_seq_write(ctx->meta->seq, &e, sizeof(e));
	return 0;
}

static __noinline int tell_end(const struct sock *sk, const struct cong_conn *c)
{
	struct cong_entry t = {}, *e; /* 5.10 and 6.1 want what filters look up on the stack */

	entry_fill(&t, c, (__u64)sk);
	if (!entry_wanted(&t, sk))
		return 0;
	e = EVENT_NEW(struct cong_entry);
	if (!e)
		return 0;
	*e = t;
	return event_send(e);
}

static __always_inline int ended(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct cong_conn *c = bpf_map_lookup_elem(&conns, &key);

	if (!c)
		return 0;
	if (dist)
		stay_put(sk, c->state, bpf_ktime_get_ns() - c->since);
	else
		tell_end(sk, c);
	bpf_map_delete_elem(&conns, &key);
	return 0;
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u16 proto;

	if (!owner_state(old, new))
		return 0;
	proto = load_proto(sk);
	if (is_tcp(proto))
		owner_on_state(sk, old, new);
	return proto == IPPROTO_TCP && new == TCP_CLOSE ? ended(sk) : 0;
}
