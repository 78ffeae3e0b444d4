//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpstates - one event for each change of a TCP state. */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_STATE_IN_TOOL)
#define OWNER_FIELDS                                                                      \
	__u64 since; /* when the socket came into the state that it is in; 0: not seen */ \
	__u64 held;  /* the change to that state is still to be told */
#include "owner.h"

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

struct change {
	struct tuple tuple;
	struct who who;
	__u32 netns;
};

static __always_inline int tell(const struct change *c, const struct sock *sk, __u64 now, __u64 spent, int old, int new)
{
	struct state_event *e = EVENT_ZERO(struct state_event, 0); /* all of it is written below */

	if (!e)
		return 0;
	e->head.ts = now;
	e->head.view = 0;
	e->head.netns = c->netns;
	e->head.who = c->who;
	e->tuple = c->tuple;
	e->sk = (__u64)sk;
	e->spent = spent;
	e->old = old;
	e->new = new;
	e->pad = 0;
	e->pad2 = 0;
	return event_send(e);
}

/* Make the entry of sk. This is a function because an entry is large: only new sockets pay for it. */
static __noinline int entry_new(const struct sock *sk, int new)
{
	bool ours = new == TCP_SYN_SENT || new == TCP_LISTEN;
	struct owner first = {};

	if (ours) {
		who_current(&first.kept.copy[0].who);
		first.kept.exec = who_exec();
	}
	first.cookie = new == TCP_SYN_RECV ? 0 : sock_cookie(sk); /* see owner_born */
	owner_put(sk, &first, 0, BPF_ANY);
	return 0;
}

/* The current process is that of sk, which has an entry already. */
static __noinline int entry_ours(const struct sock *sk, struct owner *o)
{
	struct who w = {};

	who_current(&w);
	kept_set(&o->kept, &w, who_exec(), (__u64)sk);
	return 0;
}

/* The entry of sk, made if there is none. The process is that of connect and
 * listen; accept names it later.
 */
static __always_inline struct owner *entry_at(const struct sock *sk, int new)
{
	struct owner *o = owner_entry(sk);

	if (!o || owner_stale(o, sk)) {
		entry_new(sk, new);
		return owner_entry(sk);
	}
	if (!o->cookie)
		o->cookie = sock_cookie(sk);
	if (new == TCP_SYN_SENT || new == TCP_LISTEN)
		entry_ours(sk, o);
	return o;
}

/* The same for a tool that shares the table. */
static __noinline struct owner_own *own_at(const struct sock *sk, int new)
{
	struct owner_own *own = owner_own_entry(sk), first = {};

	if (!own || (own->cookie && own->cookie != sock_cookie(sk))) {
		first.cookie = new == TCP_SYN_RECV ? 0 : sock_cookie(sk);
		owner_own_put(sk, &first, BPF_ANY);
		return owner_own_entry(sk);
	}
	if (!own->cookie)
		own->cookie = sock_cookie(sk);
	return own;
}

/* As tuple_load(), which casts where the kernel can. The kernel checks each address that it loads
 * from behind a cast, and none behind the socket that it has passed to the program.
 */
static __always_inline bool tuple_of(struct tuple *t, const struct sock *sk)
{
	return plain() ? tuple_read(t, sk, true) : tuple_fill(t, sk);
}

/* The process of sk if its own entry does not say it. This is a function because it is rare. */
static __noinline int who_else(struct who *w, const struct sock *sk, const struct owner *o)
{
	return owner_known(w, sk, o);
}

/* The subflow represents an MPTCP connection: one row for each change, not two.
 * MPTCP also reports states that it does not leave.
 */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u64 now, spent = NONE;
	struct owner_own *own;
	struct owner *o;
	struct change c = {};
	__u16 proto = load_proto(sk);
	bool held = false;

	if (!is_tcp(proto) || old == new)
		return 0;
	if (proto != IPPROTO_TCP || !sock_wanted(sk)) {
		owner_on_state(sk, old, new);
		return 0;
	}
	owner_listener(sk, old, new);
	now = bpf_ktime_get_ns();
	if (owner_has(OWNER_SHARED)) {
		own = own_at(sk, new);
		o = owner_entry(sk);
	} else {
		o = entry_at(sk, new);
		own = owner_own_in(o);
	}
	if (own) {
		if (own->since)
			spent = now - own->since;
		own->since = now;
		held = own->held;
		/* A child of a listener has the listener's addresses until it is
		 * complete: its first change is reported together with the second.
		 */
		own->held = old == TCP_LISTEN && new == TCP_SYN_RECV;
	}
	if (old == TCP_LISTEN && new == TCP_SYN_RECV)
		return 0;
	if (!tuple_of(&c.tuple, sk))
		return 0;
	/* inet_sport is still that of an attempt that failed: the next port is
	 * chosen later in connect.
	 */
	if (new == TCP_SYN_SENT)
		c.tuple.lport = LOAD(sk, __sk_common.skc_num);
	if (!tuple_wanted(&c.tuple))
		return 0;
	if (mptcp_parent(sk) || !owner_of(&c.who, sk, o))
		who_else(&c.who, sk, o);
	if (!who_wanted(&c.who))
		return 0;
	c.netns = load_netns(sk);
	if (held)
		tell(&c, sk, now - spent, NONE, TCP_LISTEN, TCP_SYN_RECV);
	return tell(&c, sk, now, spent, old, new);
}
