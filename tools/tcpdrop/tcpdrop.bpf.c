//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpdrop - each TCP packet that the kernel drops, and why. */
#define OWNER_OPTIONS OWNER_LISTENERS
#include "drop.h"
#include "owner.h"
#include "segment.h"
#include "stack.h"

const volatile bool with_stack = true;

struct drop_event {
	struct head head;
	struct tuple tuple;
	struct segment segment;
	__u64 location; /* that dropped it */
	__u32 reason;	/* drop_reason() */
	__s32 stack;
	__u8 state;
	__u8 pad[7];
};
EVENT(struct drop_event);

/* Packets that a socket is processing, on kernels that do not name it when they
 * drop one. Before reasons existed (5.17) also the socket's count of drops,
 * because no tracepoint fires for such drops there.
 */
struct receiving {
	struct sock *sk;
	int drops;
	bool told;
	__u8 flags;
	__u16 pad;
	__u32 seq;
	__u32 len; /* SYN and FIN count */
};
SPAN(inside, struct sk_buff *, struct receiving);

/* Connections in TIME_WAIT, on kernels that do not name the socket (before 6.11),
 * and since when. No hook shows when they end: that is after a minute
 * (TCP_TIMEWAIT_LEN), so they are in a queue as well, in the order of their time.
 */
struct wait_key {
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u32 netns;
};
struct wait {
	struct wait_key key;
	__u64 since;
};
#define WAIT_NS 60000000000ULL
SPAN_OF(waits, struct wait_key, __u64, 16384);
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 16384);
	__type(value, struct wait);
} waits_queue SEC(".maps");

static __always_inline void wait_key_fill(struct wait_key *k, const struct tuple *t, __u32 netns)
{
	__builtin_memcpy(k->laddr, t->laddr, sizeof(k->laddr));
	__builtin_memcpy(k->raddr, t->raddr, sizeof(k->raddr));
	k->lport = t->lport;
	k->rport = t->rport;
	k->netns = netns;
}

/* The oldest is evicted. That is counted, unless its minute is over. */
static __always_inline void wait_drop(__u64 now)
{
	struct wait old = {};
	__u64 *since;
	int err = bpf_map_pop_elem(&waits_queue, &old);

	if (err)
		return;
	since = bpf_map_lookup_elem(&waits, &old.key);
	if (!since || *since != old.since) /* its ports are in use again */
		return;
	bpf_map_delete_elem(&waits, &old.key);
	if (now - old.since < WAIT_NS)
		lose(LOSS_SPAN);
}

static __noinline int wait_put(const struct wait_key *k)
{
	struct wait w = {};
	__u64 now = bpf_ktime_get_ns();
	int err;

	if (!k)
		return 0;
	for (int i = 0; i < 2; i++) { /* more than come */
		err = bpf_map_peek_elem(&waits_queue, &w);
		if (err || now - w.since < WAIT_NS)
			break;
		wait_drop(now);
	}
	w.since = now;
	w.key = *k;
	err = bpf_map_update_elem(&waits, &w.key, &w.since, BPF_ANY);
	if (err) {
		wait_drop(now);
		err = bpf_map_update_elem(&waits, &w.key, &w.since, BPF_ANY);
	}
	if (!err) {
		err = bpf_map_push_elem(&waits_queue, &w, 0);
		if (err) {
			wait_drop(now);
			err = bpf_map_push_elem(&waits_queue, &w, 0);
		}
		if (err)
			bpf_map_delete_elem(&waits, &w.key);
	}
	if (err)
		lose(LOSS_SPAN);
	return 0;
}

KTRACE(waits, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct wait_key k = {};
	struct tuple t = {};

	if (new != TCP_ESTABLISHED && (new != TCP_CLOSE || (old != TCP_FIN_WAIT2 && old != TCP_CLOSING)))
		return 0;
	if (load_proto(sk) != IPPROTO_TCP || !tuple_load(&t, sk))
		return 0;
	wait_key_fill(&k, &t, load_netns(sk));
	if (new == TCP_CLOSE)
		return wait_put(&k);
	bpf_map_delete_elem(&waits, &k);
	return 0;
}

/* Is it a FIN or an ACK that a connection in TIME_WAIT has processed? */
static __always_inline bool wait_heeded(struct segment *p, __u32 netns)
{
	struct wait_key k = {};
	struct tuple t = {};
	__u64 *since;

	if (p->len)
		return false;
	segment_tuple(&t, p, false);
	wait_key_fill(&k, &t, netns);
	since = bpf_map_lookup_elem(&waits, &k);
	return since && bpf_ktime_get_ns() - *since < WAIT_NS;
}

static __always_inline bool full_sock(__u8 state)
{
	return state != TCP_TIME_WAIT && state != TCP_NEW_SYN_RECV;
}

static __always_inline int dropped(void *ctx, struct segment *p, const struct sock *sk, bool out, __u32 netns,
				   __u32 reason, __u64 location)
{
	struct tuple tuple = {};
	struct drop_event *e;
	struct who who = {};
	__u8 state = 0;

	segment_tuple(&tuple, p, out);
	if (sk) {
		state = sock_state(sk);
		netns = sock_netns(sk);
		tuple.sock = sock_cookie(sk);
	}
	if (!netns_wanted(netns) || !family_wanted(tuple.family) || !tuple_wanted(&tuple))
		return 0;
	if (sk && full_sock(state))
		owner_get(&who, sk);
	if (!who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct drop_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = netns;
	e->head.who = who;
	e->tuple = tuple;
	e->segment = *p;
	e->location = location;
	e->reason = reason;
	e->state = state;
	e->stack = with_stack ? kernel_stack(ctx, 0) : -1;
	return event_send(e);
}

KTRACE(drop, kfree_skb, struct sk_buff *skb, void *location)
{
	__be16 proto = LOAD(skb, protocol);
	struct receiving *r;
	struct segment p = {};
	bool out = false, owned;
	struct sock *sk;
	__u32 netns;

	if (proto != bpf_htons(0x0800) && proto != bpf_htons(0x86dd))
		return 0;
	if (LOAD(skb, network_header) == PACKET_NO_HEADER || !segment_read(&p, skb, segment_ip(skb)))
		return 0;
	sk = drop_sock(ctx, skb, &owned);
	if (owned) {
		out = BPF_CORE_READ(sk, __sk_common.skc_num) == p.sport;
		if (!out && drop_heeded(skb, sk))
			return 0;
	}
	r = bpf_map_lookup_elem(&inside, &skb);
	if (r) {
		r->told = true;
		if (!sk)
			sk = r->sk;
	}
	if (sk && drop_waited(drop_reason(ctx), skb, sk))
		return 0;
	netns = BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
	/* Without reasons (before 5.17) such a segment looks like a dropped one. */
	if (!sk && args_kfree_skb < 4 && (args_kfree_skb < 3 || drop_bare(drop_reason(ctx))) && wait_heeded(&p, netns))
		return 0;
	return dropped(ctx, &p, sk, out, netns, drop_reason(ctx), (__u64)location);
}

static __always_inline int socket_drops(const struct sock *sk)
{
	const struct sock___drops *d = (void *)sk;

	return bpf_core_field_exists(d->sk_drops) ? BPF_CORE_READ(d, sk_drops.counter) : 0;
}

static __always_inline int receive(struct sock *sk, struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;
	struct receiving r = { .sk = sk, .drops = socket_drops(sk) };

	r.flags = BPF_CORE_READ(cb, tcp_flags);
	r.seq = BPF_CORE_READ(cb, seq);
	r.len = BPF_CORE_READ(cb, end_seq) - r.seq;
	span_begin(&inside, &skb, &r);
	return 0;
}

static __always_inline int received(void *ctx, struct sk_buff *skb)
{
	struct receiving *found = bpf_map_lookup_elem(&inside, &skb), r;
	struct segment p = {};
	struct tuple t = {};

	if (!found)
		return 0;
	r = *found;
	bpf_map_delete_elem(&inside, &skb);
	/* A bare ACK that was processed is freed like a drop too. */
	if (args_kfree_skb > 2 || r.told || !r.len || socket_drops(r.sk) == r.drops || !tuple_fill(&t, r.sk))
		return 0;
	__builtin_memcpy(p.saddr, t.raddr, 16);
	__builtin_memcpy(p.daddr, t.laddr, 16);
	p.sport = t.rport;
	p.dport = t.lport;
	p.family = t.family;
	p.flags = r.flags;
	p.seq = r.seq;
	p.len = r.len - !!(r.flags & 3);
	return dropped(ctx, &p, r.sk, false, 0, DROP_UNTOLD, 0);
}

#define RECEIVE(part, func, id)                                                \
	SEC("fentry/" #func) int rcv__fexit__##part##_in(unsigned long long *ctx) \
	{                                                                      \
		return receive((void *)ctx[0], (void *)ctx[1]);                \
	}                                                                      \
	SEC("fexit/" #func) int rcv__fexit__##part##_out(unsigned long long *ctx) \
	{                                                                      \
		return received(ctx, (void *)ctx[1]);                          \
	}                                                                      \
	SEC("kprobe/" #func) int rcv__kprobe__##part##_in(struct pt_regs *ctx) \
	{                                                                      \
		call_enter(ctx, id);                                           \
		return receive((void *)PT_REGS_PARM1(ctx), (void *)PT_REGS_PARM2(ctx)); \
	}                                                                      \
	SEC("kretprobe/" #func) int rcv__kprobe__##part##_out(struct pt_regs *ctx) \
	{                                                                      \
		struct call_args a = {};                                       \
									       \
		return call_exit(&a, id) ? received(ctx, (void *)a.arg[1]) : 0; \
	}

RECEIVE(v4, tcp_v4_do_rcv, 1)
RECEIVE(v6, tcp_v6_do_rcv, 2)
