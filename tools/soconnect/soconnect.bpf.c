//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soconnect - each connect, followed to its real end.
 *
 * A non-blocking connect returns before anything is decided. So a connection
 * under way is kept by its socket, and ends with the system call if that says
 * how it went, else with the TCP state that the socket leaves SYN_SENT for.
 */
#include "fd.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

const volatile bool only_syscall = false; /* show what the call returned */
const volatile __u64 min_ns = 0, max_ns = 0;

#define CONNECT_SYSCALL 0
#define CONNECT_URING 1

struct connect_event {
	struct head head;
	struct tuple tuple;
	__u64 latency; /* NONE: its beginning was not seen */
	__s32 result;  /* 0 or a negative errno */
	__u32 by;      /* CONNECT_* */
	char path[108];
	__u32 pad;
};
EVENT(struct connect_event);

/* The address that the caller gave. */
struct target {
	__u8 addr[16];
	__u16 port, family;
	char path[108];
};

/* A connection under way, by socket. */
struct pending {
	__u64 start;
	struct who who;
	struct target to;
	bool returned; /* the call has; what is to come decides */
	bool done;     /* decided; the call has not returned yet */
	__u8 by;
	__u8 pad;
	__s32 result;
	__u64 end;
};
SPAN(pendings, struct sock *, struct pending);

/* The socket that a thread is connecting. */
SPAN(connecting, __u64, struct sock *);

/* struct pending is large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pending);
} scratch SEC(".maps");

static const struct pending pending_zero = {};

static __always_inline struct pending *pending_new(void)
{
	__u32 zero = 0;
	struct pending *p = bpf_map_lookup_elem(&scratch, &zero);

	if (p)
		__builtin_memcpy(p, &pending_zero, sizeof(*p));
	return p;
}

static __always_inline void target_read(struct target *t, const void *user, __u32 len)
{
	__u8 raw[28] = {};

	if (!user || len < 2)
		return;
	if (bpf_probe_read_user(&t->family, sizeof(t->family), user)) {
		lose(LOSS_READ);
		return;
	}
	if (t->family == AF_UNIX) {
		bpf_probe_read_user(t->path, sizeof(t->path), user + 2);
		/* what is beyond the length given is not part of the name */
		if (len - 2 < sizeof(t->path))
			t->path[len - 2] = 0;
		return;
	}
	if (!is_inet(t->family))
		return;
	bpf_probe_read_user(raw, t->family == AF_INET ? 16 : 28, user);
	t->port = raw[2] << 8 | raw[3];
	if (t->family == AF_INET)
		addr4(t->addr, *(__be32 *)&raw[4]);
	else
		__builtin_memcpy(t->addr, &raw[8], 16);
}

static __always_inline int emit(const struct sock *sk, const struct pending *p, long result, __u64 now)
{
	struct connect_event *e;
	__u64 latency = p->start ? now - p->start : NONE;

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
	/* A connect that failed at once left nothing in the socket. */
	if (is_inet(p->to.family)) {
		__builtin_memcpy(e->tuple.raddr, p->to.addr, 16);
		e->tuple.rport = p->to.port;
	}
	__builtin_memcpy(e->path, p->to.path, sizeof(e->path));
	if (!tuple_wanted(&e->tuple)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	e->latency = latency;
	e->result = result;
	e->by = p->by;
	return event_send(e);
}

/* The answer is not in what the call returned. */
static __always_inline bool undecided(long ret)
{
	return ret == -EINPROGRESS || ret == -EALREADY || ret == -EINTR || ret == -ERESTARTSYS ||
	       ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND;
}

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(a0);
	struct pending *p;

	if (!sk || is_self() || !sock_wanted(sk))
		return 0;
	/* A second call on a connection under way, or on a finished one. */
	if (!only_syscall && sock_proto(sk) == IPPROTO_TCP && sock_state(sk) != TCP_CLOSE) {
		span_begin(&connecting, &thread, &sk);
		return 0;
	}
	p = pending_new();
	if (!p)
		return 0;
	if (!who_current(&p->who) || !who_wanted(&p->who))
		return 0;
	target_read(&p->to, (void *)a1, a2);
	p->start = bpf_ktime_get_ns();
	span_begin(&pendings, &sk, p);
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
	if (!p)
		return 0; /* told already, when the handshake ended */
	if (!only_syscall && undecided(ret)) {
		if (!p->done) {
			p->returned = true;
			return 0;
		}
		emit(sk, p, p->result, p->end);
	} else {
		emit(sk, p, ret, bpf_ktime_get_ns());
	}
	bpf_map_delete_elem(&pendings, &sk);
	return 0;
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct sock *key = (struct sock *)sk;
	struct pending *p;
	__u64 now;
	int err;

	if (only_syscall || sock_proto(sk) != IPPROTO_TCP)
		return 0;
	if (new == TCP_SYN_SENT) {
		/* io_uring connects without a system call of its own. */
		if (bpf_map_lookup_elem(&pendings, &key) || is_self() || !sock_wanted(sk))
			return 0;
		p = pending_new();
		if (!p || !who_current(&p->who) || !who_wanted(&p->who))
			return 0;
		p->start = bpf_ktime_get_ns();
		p->returned = true;
		p->by = CONNECT_URING;
		span_begin(&pendings, &key, p);
		return 0;
	}
	if (old != TCP_SYN_SENT)
		return 0;
	p = bpf_map_lookup_elem(&pendings, &key);
	if (!p)
		return 0;
	now = bpf_ktime_get_ns();
	err = new == TCP_CLOSE ? BPF_CORE_READ(sk, sk_err) : 0;
	if (new == TCP_CLOSE && !err)
		err = ECANCELED; /* the program gave it up */
	if (p->returned) {
		emit(sk, p, -err, now);
		bpf_map_delete_elem(&pendings, &key);
	} else {
		p->done = true;
		p->result = -err;
		p->end = now;
	}
	return 0;
}

/* Connects by io_uring that TCP's states say nothing of: other protocols, and
 * those that failed before a SYN was sent.
 */
URING_COMPLETE(uring, op == URING_CONNECT)
{
	struct pending *p;

	if (!sk || undecided(res) || is_self() || !sock_wanted(sk))
		return 0;
	if (bpf_map_lookup_elem(&pendings, &sk))
		return 0; /* its end is still to come */
	if (sock_proto(sk) == IPPROTO_TCP && is_inet(sock_family(sk)) && res != -ENETUNREACH && res != -EADDRNOTAVAIL)
		return 0; /* told when its state changed */
	p = pending_new();
	if (!p || !who_current(&p->who) || !who_wanted(&p->who))
		return 0;
	p->by = CONNECT_URING;
	return emit(sk, p, res, bpf_ktime_get_ns());
}

/* A socket that is closed while its connection is under way. */
KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	bpf_map_delete_elem(&pendings, &key);
	return 0;
}
