//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* so1stbyte - the time from a connect to the first byte that is read.
 *
 * Entries are kept by socket, so descriptors may be reused and reads may be of any
 * kind. They stay when TCP closes, because data that arrived can still be read.
 */
#define SOCKIO_RECV
#include "cgroup.h"
#include "hist.h"
#include "mptcp.h"
#include "pending.h"
#include "sockio.h"
#include "who.h"

const volatile __u64 min_ns = 0, max_ns = 0;
const volatile bool show_events = false;

/* The outcome of a connection. Go: outcome. */
enum outcome {
	OUTCOME_BYTE,
	OUTCOME_PENDING,       /* nothing yet */
	OUTCOME_NO_BYTE,       /* it was there, and ended without a byte */
	OUTCOME_NO_CONNECTION, /* a SYN was sent, and nothing came of it */
};

struct byte_key {
	__u32 pid, tid, uid;
	__u16 rport, proto;
	char comm[16], thread[16];
	__u8 raddr[16];
	__u32 outcome; /* always told apart */
	__u32 pending;
};
enum key_bits { KEY_pid, KEY_tid, KEY_uid, KEY_rport, KEY_proto, KEY_comm, KEY_thread, KEY_raddr };
KEEP_ENUM(enum key_bits);

struct byte_value {
	struct hist hist;
};
static const struct byte_value byte_zero = {};

COUNT_MAP(waits, struct byte_key, struct byte_value);

struct byte_event {
	struct head head;
	struct tuple tuple;
	__u64 connect, wait; /* NONE: not told apart */
	__u64 total;
	__u32 outcome;
	__u32 pending;
};
EVENT(struct byte_event);

struct waiting {
	__u64 start, established;
	__u64 inode; /* of the socket: addresses are used again */
	struct who who;
};
SPAN(tcp_waiting, __u64, struct waiting);
__u64 waiting = 0; /* how many there are */
SPAN(other_waiting, __u64, struct waiting); /* of other sockets: they end when nobody holds them any more */
__u64 others = 0; /* how many there are */

static __always_inline bool is_plain_tcp(const struct sock *sk)
{
	return sock_proto(sk) == IPPROTO_TCP;
}

static __always_inline __u64 sock_inode(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
}

static __always_inline struct waiting *waiting_of(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct waiting *w = waiting ? bpf_map_lookup_elem(&tcp_waiting, &key) : NULL;

	if (w || !others || is_plain_tcp(sk))
		return w;
	return bpf_map_lookup_elem(&other_waiting, &key);
}

static __always_inline void waiting_end(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (is_plain_tcp(sk))
		span_end_counted(&tcp_waiting, &key, &waiting);
	else
		span_end_counted(&other_waiting, &key, &others);
}

static __noinline int begin(const struct sock *sk)
{
	struct waiting w = { .start = bpf_ktime_get_ns() };
	__u64 key = (__u64)sk;

	if (is_self() || !is_inet(sock_family(sk)) || !sock_wanted(sk))
		return 0;
	if (!who_current(&w.who) || !who_wanted(&w.who))
		return 0;
	w.inode = sock_inode(sk);
	if (is_plain_tcp(sk))
		span_begin_counted(&tcp_waiting, &key, &w, &waiting);
	else
		span_begin_counted(&other_waiting, &key, &w, &others);
	return 0;
}

static __noinline int record(const struct sock *sk, const struct waiting *w, __u64 now, enum outcome outcome)
{
	__u64 total = now - w->start;
	struct byte_event *e;
	struct byte_key k = {};
	struct byte_value *v;
	struct tuple t = {};

	if ((min_ns && total < min_ns) || (max_ns && total > max_ns))
		return 0;
	tuple_fill(&t, sk);
	if (!tuple_wanted(&t))
		return 0;
	if (show_events) {
		e = EVENT_NEW(struct byte_event);
		if (!e)
			return 0;
		e->head.ts = now;
		e->head.netns = sock_netns(sk);
		e->head.who = w->who;
		e->tuple = t;
		e->connect = w->established ? w->established - w->start : NONE;
		e->wait = w->established ? now - w->established : NONE;
		e->total = total;
		e->outcome = outcome;
		e->pending = outcome == OUTCOME_PENDING;
		return event_send(e);
	}
	if (KEY_WANTS(pid))
		k.pid = w->who.pid;
	if (KEY_WANTS(tid))
		k.tid = w->who.tid;
	if (KEY_WANTS(uid))
		k.uid = w->who.uid;
	if (KEY_WANTS(rport))
		k.rport = t.rport;
	if (KEY_WANTS(proto))
		k.proto = t.proto;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, w->who.comm, sizeof(k.comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k.thread, w->who.thread, sizeof(k.thread));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, t.raddr, sizeof(k.raddr));
	k.outcome = outcome;
	k.pending = outcome == OUTCOME_PENDING;
	v = count_at(COUNTED(waits), &k, &byte_zero);
	if (v)
		hist_put(&v->hist, total / 1000);
	return 0;
}

/* The wait w of sk ends without a byte. */
static __always_inline void ended_without(const struct sock *sk, const struct waiting *w)
{
	struct waiting copy = *w;

	waiting_end(sk);
	record(sk, &copy, bpf_ktime_get_ns(), copy.established ? OUTCOME_NO_BYTE : OUTCOME_NO_CONNECTION);
}

/* A read that returned data, or a peek. */
static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct waiting *found, w;

	if (ret <= 0 || flags & MSG_ERRQUEUE)
		return 0;
	found = waiting_of(sk);
	if (!found)
		return 0;
	w = *found;
	waiting_end(sk);
	if (w.inode && w.inode != sock_inode(sk))
		return 0; /* another socket lived here */
	return record(sk, &w, bpf_ktime_get_ns(), OUTCOME_BYTE);
}

SPAN(connecting, __u64, struct sock *);

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(a0);

	/* A second connect call on a TCP connection under way does not start anew. */
	if (!sk || !is_inet(sock_family(sk)) ||
	    (sock_proto(sk) != IPPROTO_UDP && sock_state(sk) != TCP_CLOSE))
		return 0;
	span_begin(&connecting, &thread, &sk);
	return begin(sk);
}

SYS_EXIT(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock **found = bpf_map_lookup_elem(&connecting, &thread), *sk;
	struct waiting *w;

	if (!found)
		return 0;
	sk = *found;
	bpf_map_delete_elem(&connecting, &thread);
	w = waiting_of(sk);
	if (!w)
		return 0;
	if (!ret && !w->established)
		w->established = bpf_ktime_get_ns();
	if (ret < 0 && ret != -EINPROGRESS && sock_state(sk) != TCP_SYN_SENT && sock_state(sk) != TCP_ESTABLISHED)
		waiting_end(sk); /* it failed; an interrupted one goes on */
	return 0;
}

/* The handshake is done here. Connects through io_uring begin here. */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct waiting *w;

	if (new != TCP_SYN_SENT && old != TCP_SYN_SENT)
		return 0;
	w = waiting_of(sk);
	if (new == TCP_SYN_SENT) /* of a subflow nobody reads */
		return w || (is_plain_tcp(sk) && mptcp_parent(sk)) ? 0 : begin(sk);
	if (!w)
		return 0;
	if (new == TCP_CLOSE)
		ended_without(sk, w);
	else if (!w->established)
		w->established = bpf_ktime_get_ns();
	return 0;
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct waiting *w = waiting ? bpf_map_lookup_elem(&tcp_waiting, &key) : NULL;

	if (w)
		ended_without(sk, w);
	return 0;
}

SEC("cgroup/sock_release") int release__cgroup(struct cgroup_sk *ctx)
{
	__u64 key = (__u64)cgroup_sock(ctx);

	if (others && ctx->protocol != IPPROTO_TCP)
		span_end_counted(&other_waiting, &key, &others);
	return CGROUP_ALLOW;
}

KFUNC(release, inet_release, struct socket *socket)
{
	__u64 key = (__u64)BPF_CORE_READ(socket, sk);

	if (others)
		span_end_counted(&other_waiting, &key, &others);
	return 0;
}

PENDING(pending, tcp_waiting, __u64, struct waiting)
{
	struct waiting w = *value;

	return record((const struct sock *)key, &w, bpf_ktime_get_ns(), OUTCOME_PENDING);
}

/* A socket whose end was not seen has no file any more. */
PENDING(pending, other_waiting, __u64, struct waiting)
{
	const struct sock *sk = (const struct sock *)key;
	struct waiting w = *value;

	if (!w.inode || w.inode != sock_inode(sk))
		return 0;
	return record(sk, &w, bpf_ktime_get_ns(), OUTCOME_PENDING);
}
