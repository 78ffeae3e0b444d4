//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpwin - congestion window and send buffer, with each segment that comes in. */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_STATE_IN_TOOL)
#include "count.h"
#include "owner.h"
#include "tcp.h"

const volatile bool counting = false; /* count by socket: no events */
const volatile __u64 only_sock = 0;   /* 0: all */
const volatile __u64 start_ns = 0;    /* of the tool, by the monotonic clock */

enum win { WIN_RCV, WIN_RETRANS, WIN_NEW };

struct win_event {
	struct head head;
	struct tuple tuple;
	__u64 sk;
	__u64 since; /* the tool's start */
	__u32 event; /* enum win */
	__u32 cwnd, ssthresh;
	__s32 sndbuf, wmem_queued;
	__u32 srtt_us, rcv_wnd, inflight;
	char cong[16];
};
EVENT(struct win_event);

struct win_key {
	__u64 sk;
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u32 pid;
	char comm[16];
};
struct win_count {
	__u64 count, rcv, retrans, fresh;
};
enum key_bits { KEY_sk, KEY_laddr, KEY_raddr, KEY_lport, KEY_rport, KEY_pid, KEY_comm };
KEEP_ENUM(enum key_bits);
COUNT_MAP(counts, struct win_key, struct win_count);

static __always_inline int count_one(const struct sock *sk, const struct tuple *t, const struct who *w, enum win event)
{
	struct win_count zero = {}, *c;
	struct win_key k = {};

	if (KEY_WANTS(sk))
		k.sk = (__u64)sk;
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k.laddr, t->laddr, sizeof(k.laddr));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, t->raddr, sizeof(k.raddr));
	if (KEY_WANTS(lport))
		k.lport = t->lport;
	if (KEY_WANTS(rport))
		k.rport = t->rport;
	if (KEY_WANTS(pid))
		k.pid = w->pid;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, w->comm, sizeof(k.comm));
	c = count_at(COUNTED(counts), &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, 1);
	if (event == WIN_RCV)
		__sync_fetch_and_add(&c->rcv, 1);
	else if (event == WIN_RETRANS)
		__sync_fetch_and_add(&c->retrans, 1);
	else
		__sync_fetch_and_add(&c->fresh, 1);
	return 0;
}

static __noinline int window(const struct sock *sk, __u32 event)
{
	const struct tcp_sock *tp = tcp_load(sk);
	struct tuple tuple = {};
	struct who who = {};
	const struct tcp_congestion_ops *ops;
	struct win_event *e;

	if (!tp || (only_sock && (__u64)sk != only_sock))
		return 0;
	if (!sock_wanted(sk) || !tuple_load(&tuple, sk) || !tuple_wanted(&tuple))
		return 0;
	owner_get(&who, sk);
	if (!who_wanted(&who))
		return 0;
	if (counting)
		return count_one(sk, &tuple, &who, event);
	e = EVENT_NEW(struct win_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = load_netns(sk);
	e->head.who = who;
	e->tuple = tuple;
	e->sk = (__u64)sk;
	e->since = e->head.ts - start_ns;
	e->event = event;
	e->cwnd = LOAD(tp, snd_cwnd);
	e->ssthresh = LOAD(tp, snd_ssthresh);
	e->sndbuf = LOAD(sk, sk_sndbuf);
	e->wmem_queued = LOAD(sk, sk_wmem_queued);
	e->srtt_us = LOAD(tp, srtt_us) >> 3;
	e->rcv_wnd = LOAD(tp, rcv_wnd);
	e->inflight = tcp_in_flight(tp);
	ops = HOP(tp, struct tcp_sock, inet_conn.icsk_ca_ops);
	BPF_CORE_READ_STR_INTO(&e->cong, ops, name);
	return event_send(e);
}

KTRACE_SK(rcv, tcp_probe, const struct sock *sk)
{
	return window(sk, WIN_RCV);
}

KTRACE_SK(retrans, tcp_retransmit_skb, const struct sock *sk)
{
	return window(sk, WIN_RETRANS);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u16 proto = load_proto(sk);

	if (!is_tcp(proto))
		return 0;
	owner_on_state(sk, old, new);
	if (new != TCP_ESTABLISHED || proto != IPPROTO_TCP)
		return 0;
	return window(sk, WIN_NEW);
}
