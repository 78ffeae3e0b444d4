//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soconnect - each connect, followed to its real end.
 *
 * A non-blocking connect returns before its result is known. So a connect under
 * way is kept by its socket. It ends with the system call if that returns the
 * result, else when the TCP state leaves SYN_SENT.
 */
#include "fd.h"
#include "mptcp.h"
#include "pending.h"
#include "sockaddr.h"
#include "span.h"
#include "sysarg.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

const volatile bool only_syscall = false; /* show what the call returned */
const volatile bool only_errors = false;  /* show what failed, calls of socket(2) too */
const volatile __u64 min_ns = 0, max_ns = 0;

enum connect_by { BY_SYSCALL, BY_URING, BY_SEND, BY_SOCKET }; /* Go: via */

struct connect_event {
	struct head head;
	struct tuple tuple;
	__u64 latency; /* NONE: its beginning was not seen */
	__s32 result;  /* 0 or a negative errno */
	__u32 by;      /* enum connect_by */
	char path[108];
	__u32 pending; /* it has not ended: latency is its age */
};
EVENT(struct connect_event);

/* A connect under way, by socket. */
struct pending {
	__u64 start, end;
	struct who who;
	struct target to;
	__s32 result;
	__u8 by;
	bool followed; /* the call says no more: what the socket does decides */
	bool decided;  /* it did so, at end, and the call has not returned yet */
	__u8 pad;
};
SPAN(pendings, struct sock *, struct pending);

/* The socket that a thread is connecting. */
SPAN(connecting, __u64, struct sock *);

static const struct pending pending_zero = {};

/* A connect of the current process that begins now; NULL if a filter excludes
 * it. It is filled in the map itself, not in scratch memory: this program may
 * be preempted, and another task may run it on this processor.
 */
static __always_inline struct pending *pending_new(struct sock *sk, enum connect_by by)
{
	struct who who = {};
	struct pending *p;

	if (is_self() || !sock_wanted(sk) || !who_current(&who) || !who_wanted(&who))
		return NULL;
	span_begin(&pendings, &sk, &pending_zero);
	p = bpf_map_lookup_elem(&pendings, &sk);
	if (!p)
		return NULL;
	p->who = who;
	p->by = by;
	p->start = bpf_ktime_get_ns();
	return p;
}

static __always_inline int emit(const struct sock *sk, const struct pending *p, long result, __u64 now, bool pending)
{
	struct connect_event *e;
	__u64 latency = p->start ? now - p->start : NONE;

	if (only_errors && !pending && (result >= 0 || result == -EINPROGRESS))
		return 0;
	if (min_ns && (latency == NONE || latency < min_ns))
		return 0;
	if (max_ns && (latency == NONE || latency > max_ns))
		return 0;
	e = EVENT_NEW(struct connect_event);
	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = sock_netns(sk);
	e->head.who = p->who;
	tuple_fill(&e->tuple, sk);
	/* A failed connect leaves nothing in the socket. */
	if (is_inet(p->to.family)) {
		__builtin_memcpy(e->tuple.raddr, p->to.addr, 16);
		e->tuple.rport = p->to.port;
	}
	__builtin_memcpy(e->path, p->to.path, sizeof(e->path));
	if (!tuple_wanted(&e->tuple)) {
		EVENT_DROP(e);
		return 0;
	}
	e->latency = latency;
	e->result = result;
	e->pending = pending;
	e->by = p->by;
	return event_send(e);
}

/* The call did not return the result. Even 0 may be no result: with
 * TCP_FASTOPEN_CONNECT the first write makes the connection.
 */
static __always_inline bool undecided(const struct sock *sk, long ret)
{
	if (!is_session(sk))
		return false;
	return ret == -EINPROGRESS || ret == -EALREADY || ret == -EINTR || is_restart(ret) ||
	       (!ret && sock_state(sk) == TCP_SYN_SENT);
}

/* The call, or the request, for p has returned. */
static __always_inline void returned(struct sock *sk, struct pending *p, long ret)
{
	if (only_syscall || !undecided(sk, ret)) {
		/* a ring answers when it comes to it: the state was there first */
		emit(sk, p, ret, p->by == BY_URING && p->decided ? p->end : bpf_ktime_get_ns(), false);
	} else if (p->decided) {
		emit(sk, p, p->result, p->end, false);
	} else {
		p->followed = true;
		return;
	}
	bpf_map_delete_elem(&pendings, &sk);
}

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(a0);
	struct pending *p;

	if (!sk)
		return 0;
	if (only_syscall || !sock_connecting(sk)) {
		p = pending_new(sk, BY_SYSCALL);
		if (!p)
			return 0;
		if (!target_read(&p->to, (void *)a1, a2) && !only_syscall) {
			bpf_map_delete_elem(&pendings, &sk);
			return 0;
		}
	}
	span_begin(&connecting, &thread, &sk);
	return 0;
}

SYS_EXIT(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock **found = bpf_map_lookup_elem(&connecting, &thread), *sk;
	struct pending *p;

	if (!found)
		return 0;
	sk = *found;
	bpf_map_delete_elem(&connecting, &thread);
	p = bpf_map_lookup_elem(&pendings, &sk);
	if (p) /* else its end was told when it came */
		returned(sk, p, ret);
	return 0;
}

/* Without a connect call: io_uring, or a send with MSG_FASTOPEN. */
static __always_inline void silent_begin(struct sock *sk)
{
	bool fast = BPF_CORE_READ((struct tcp_sock *)sk, fastopen_req);
	struct pending *p = pending_new(sk, fast ? BY_SEND : BY_URING);
	struct tuple t = {};

	if (!p)
		return;
	tuple_fill(&t, sk);
	__builtin_memcpy(p->to.addr, t.raddr, 16);
	p->to.port = t.rport;
	p->to.family = t.family;
	p->followed = fast;
}

KTRACE(state, inet_sock_set_state, struct sock *sk, int old, int new)
{
	struct sock *parent, *key;
	struct pending *p;
	int err;

	if (new != TCP_SYN_SENT && old != TCP_SYN_SENT)
		return 0;
	make_cookie(sk);
	parent = sock_proto(sk) == IPPROTO_TCP ? mptcp_parent(sk) : NULL;
	key = parent ? parent : sk;
	if (only_syscall || (!parent && !is_session(sk)))
		return 0;
	p = bpf_map_lookup_elem(&pendings, &key);
	if (new == TCP_SYN_SENT) {
		if (!p && !parent)
			silent_begin(sk);
		return 0;
	}
	if (!p)
		return 0;
	err = new == TCP_CLOSE ? BPF_CORE_READ(sk, sk_err) : 0;
	if (parent) {
		p->result = -err; /* MPTCP learns it after it has changed its state */
		return 0;
	}
	if (new == TCP_CLOSE && !err)
		err = p->result ? -p->result : ECANCELED; /* the program gave it up */
	p->result = -err;
	p->end = bpf_ktime_get_ns();
	p->decided = true;
	if (p->followed) {
		emit(sk, p, p->result, p->end, false);
		bpf_map_delete_elem(&pendings, &key);
	}
	return 0;
}

/* What socket(2), or a request of io_uring, asked for. */
struct asked {
	__s32 family, type, protocol;
	__u32 pad;
};
SPAN(asking, __u64, struct asked);

/* The protocol of the socket that would have been made, as in struct tuple. */
static __always_inline __u16 asked_proto(const struct asked *a)
{
	if (!is_inet(a->family))
		return PROTO_FAMILY | a->family;
	if (a->protocol)
		return (__u32)a->protocol < PROTO_FAMILY ? a->protocol : 0;
	switch (a->type & SOCK_TYPE_MASK) {
	case SOCK_STREAM:
		return IPPROTO_TCP;
	case SOCK_DGRAM:
		return IPPROTO_UDP;
	}
	return 0;
}

/* No socket was made, so there is neither an address nor a port: filters on them leave
 * the row out.
 */
static __always_inline int no_socket(const struct asked *a, long err)
{
	__u32 netns = task_netns(), proto = asked_proto(a);
	struct connect_event *e;
	struct who who = {};

	if (is_self() || (__u32)a->family > 0xffff || !family_wanted(a->family) || !netns_wanted(netns))
		return 0;
	if (filter_on & FILTER_TUPLE || min_ns || max_ns)
		return 0;
	if (filter_on & FILTER_PROTO && !bpf_map_lookup_elem(&filter_protos, &proto))
		return 0;
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct connect_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = netns;
	e->head.who = who;
	e->tuple.family = a->family;
	e->tuple.proto = proto;
	__builtin_memset(e->tuple.laddr, 0xff, sizeof(e->tuple.laddr)); /* no address: kern.Addr */
	__builtin_memset(e->tuple.raddr, 0xff, sizeof(e->tuple.raddr));
	e->latency = NONE;
	e->result = err;
	e->by = BY_SOCKET;
	return event_send(e);
}

/* --errors. A socket that is made costs one comparison. */
SYS_EXIT(socket, socket)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct asked *found, a = {};

	if (ret >= 0) {
		if (!task_regs)
			bpf_map_delete_elem(&asking, &thread);
		return 0;
	}
	if (task_regs) {
		a.family = sys_exit_arg(0);
		a.type = sys_exit_arg(1);
		a.protocol = sys_exit_arg(2);
		return no_socket(&a, ret);
	}
	found = bpf_map_lookup_elem(&asking, &thread);
	if (!found)
		return 0;
	a = *found;
	bpf_map_delete_elem(&asking, &thread);
	return no_socket(&a, ret);
}

/* Only where task_regs is not set: at its exit a call's arguments are not known. */
SYS_ENTER(asked, socket)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct asked a = { .family = a0, .type = a1, .protocol = a2 };

	if (!is_self() && family_wanted(a0))
		span_begin(&asking, &thread, &a);
	return 0;
}

/* The request of io_uring that is complete. Where the kernel has requests for sockets, the
 * tracepoint names the request.
 */
static __always_inline int uring_no_socket(void *ctx, int res)
{
	struct io_socket___since519 *req;
	struct asked a = {};

	if (!bpf_core_type_exists(struct io_socket___since519))
		return 0;
	req = (void *)((unsigned long long *)ctx)[1];
	if (BPF_CORE_READ(req, file_slot)) /* the ring's own table was full, not the process's */
		return 0;
	a.family = BPF_CORE_READ(req, domain);
	a.type = BPF_CORE_READ(req, type);
	a.protocol = BPF_CORE_READ(req, protocol);
	return no_socket(&a, res);
}

URING_COMPLETE(uring, op == URING_CONNECT || (only_errors && op == URING_SOCKET))
{
	struct pending *p;

	if (op == URING_SOCKET)
		return res < 0 ? uring_no_socket(ctx, res) : 0;
	if (!sk || only_syscall)
		return 0;
	p = bpf_map_lookup_elem(&pendings, &sk);
	if (p) {
		returned(sk, p, res);
		return 0;
	}
	/* No packet was sent: another protocol, or it failed at once. Only the
	 * ring knows the address and the start.
	 */
	if (undecided(sk, res))
		return 0;
	p = pending_new(sk, BY_URING);
	if (!p)
		return 0;
	p->start = 0;
	emit(sk, p, res, bpf_ktime_get_ns(), false);
	bpf_map_delete_elem(&pendings, &sk);
	return 0;
}

PENDING(pending, pendings, struct sock *, struct pending)
{
	if (!value->start || value->decided)
		return 0;
	return emit(key, value, 0, bpf_ktime_get_ns(), true);
}

/* A closed socket has no connect under way. */
KTRACE(gone, tcp_destroy_sock, struct sock *sk)
{
	bpf_map_delete_elem(&pendings, &sk);
	return 0;
}
