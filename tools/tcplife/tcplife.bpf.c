//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcplife - one event for each TCP session, at its end. */
#define OWNER_OPTIONS (OWNER_TIMES | OWNER_STATE_IN_TOOL | OWNER_ENDS_AT_CLOSE)
#include "owner.h"
#include "tcp.h"

struct life_event {
	struct head head;
	struct tuple tuple;
	__u64 tx, rx, unsent; /* of struct tcp_bytes */
	__u64 duration;	   /* NONE: the session is older than we are */
	__u64 established; /* since then; NONE: never, or before us */
	__u64 seen;	   /* how long we watched it */
	__u32 retrans;	   /* segments sent again */
	__u32 srtt_us;
	char cong[16];
	__u8 state;	   /* that it left for CLOSE */
	__u8 reset;	   /* RESET_* */
	__u16 error;	   /* sk_err */
	__u32 pad;
};
EVENT(struct life_event);

enum { RESET_REMOTE = 1, RESET_LOCAL = 2 }; /* Go: kern.Reset */

/* The peer's RST was seen. Our own RST is sent after the change of state. It shows
 * by a change from a live state to CLOSE without a FIN and without an error.
 */
static __always_inline __u8 reset_by(const struct owner *o, int old, int error)
{
	if (o && o->kept.flags & OWNER_RESET)
		return RESET_REMOTE;
	if (!error && (old == TCP_ESTABLISHED || old == TCP_CLOSE_WAIT))
		return RESET_LOCAL;
	return 0;
}

/* The session of sk has ended. */
static __always_inline int life(const struct sock *sk, int old)
{
	struct who who = {};
	const struct tcp_sock *tp;
	struct tuple tuple = {};
	struct owner *o;
	struct life_event *e;
	__u64 now;

	if (!sock_wanted(sk))
		return 0;
	o = owner_entry(sk);
	if (o && owner_stale(o, sk))
		o = NULL;
	/* Before the addresses: they have several forms, and the verifier walks what follows for each. */
	owner_seek(&who, sk, o);
	if (!tuple_load(&tuple, sk) || !tuple_wanted(&tuple))
		return 0;
	if (!who.pid)
		lose(LOSS_OWNER);
	if (!who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct life_event);
	if (!e)
		return 0;
	now = bpf_ktime_get_ns();
	e->head.ts = now;
	e->head.netns = load_netns(sk);
	e->head.who = who;
	e->tuple = tuple;
	e->duration = NONE;
	e->established = NONE;
	e->seen = NONE;
	if (o) {
		e->seen = now - o->seen;
		if (o->kept.flags & OWNER_BORN)
			e->duration = now - o->seen;
		if (o->established)
			e->established = now - o->established;
	}
	tp = tcp_load(sk);
	if (tp) {
		const struct tcp_congestion_ops *ops = HOP(tp, struct tcp_sock, inet_conn.icsk_ca_ops);

		struct tcp_bytes b = {};

		tcp_bytes_load(&b, tp, old, owner_syn(o));
		e->tx = b.tx;
		e->rx = b.rx;
		e->unsent = b.unsent;
		e->retrans = LOAD(tp, total_retrans);
		e->srtt_us = LOAD(tp, srtt_us) >> 3;
		BPF_CORE_READ_STR_INTO(&e->cong, ops, name);
	}
	e->state = old;
	e->error = LOAD(sk, sk_err);
	e->reset = reset_by(o, old, e->error);
	return event_send(e);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u16 proto;

	if (!owner_state(old, new))
		return 0;
	proto = load_proto(sk);
	if (!is_tcp(proto))
		return 0;
	owner_on_state(sk, old, new);
	if (new != TCP_CLOSE)
		return 0;
	if (proto == IPPROTO_TCP && old != TCP_LISTEN && old != TCP_CLOSE)
		life(sk, old);
	owner_end(sk);
	return 0;
}

KTRACE(reset, tcp_receive_reset, const struct sock *sk)
{
	struct owner *o = owner_entry(sk);

	if (o)
		o->kept.flags |= OWNER_RESET;
	return 0;
}
