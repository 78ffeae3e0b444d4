//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpbind - each bind of a socket to an address, and how it ended. */
#include "fd.h"
#include "sockaddr.h"
#include "sockopt.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

struct bind_event {
	struct head head;
	struct tuple tuple;
	__s32 result;
	__u32 options; /* OPT_* */
	__u32 ifindex; /* of SO_BINDTODEVICE */
	__u32 pad;
};
EVENT(struct bind_event);

/* A thread in bind(2): the socket, and the requested address. */
struct call {
	struct sock *sk;
	__u8 addr[16];
	__u16 port, family;
	__u32 options; /* bind may add v6only */
};
SPAN(callers, __u64, struct call);

/* TCP, unless --proto names others. */
static __always_inline bool bind_wanted(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	if (is_self() || !is_inet(sock_family(sk)) || !sock_wanted(sk))
		return false;
	return filter_on & FILTER_PROTO || proto == IPPROTO_TCP || proto == IPPROTO_MPTCP;
}

static __always_inline int bound(const struct sock *sk, const struct call *asked, long ret)
{
	struct tuple tuple = {};
	struct bind_event *e;
	struct who who = {};

	if (!tuple_fill(&tuple, sk))
		return 0;
	/* A failed bind leaves nothing in the socket. */
	if (ret && asked && is_inet(asked->family)) {
		__builtin_memcpy(tuple.laddr, asked->addr, sizeof(tuple.laddr));
		tuple.lport = asked->port;
	}
	if (!tuple_wanted(&tuple) || !who_current(&who) || !who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct bind_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->head.who = who;
	e->tuple = tuple;
	e->result = ret;
	e->options = asked ? asked->options : sock_bind_options(sk);
	e->ifindex = BPF_CORE_READ(sk, __sk_common.skc_bound_dev_if);
	return event_send(e);
}

SYS_ENTER(bind, bind)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call c = { .sk = fd_sock(a0) };

	if (!c.sk || !bind_wanted(c.sk))
		return 0;
	c.options = sock_bind_options(c.sk);
	c.family = sockaddr_inet(c.addr, &c.port, (void *)a1, a2);
	span_begin(&callers, &thread, &c);
	return 0;
}

SYS_EXIT(bind, bind)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *found = bpf_map_lookup_elem(&callers, &thread), c;

	if (!found)
		return 0;
	c = *found;
	bpf_map_delete_elem(&callers, &thread);
	return bound(c.sk, &c, ret);
}

URING_COMPLETE(uring, op == URING_BIND)
{
	return sk && bind_wanted(sk) ? bound(sk, NULL, res) : 0;
}
