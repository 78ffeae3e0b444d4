//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* soconnlat - how long connects take, by the code path that made them.
 *
 * TCP: from ->SYN_SENT to the state that decides, keyed by the socket, so that
 * blocking and non-blocking connects are the same. The time after that until
 * the program uses the connection is the wait, a separate metric. Other
 * protocols, and connects that fail before a packet is sent: the system call.
 */
#include "count.h"
#include "fd.h"
#include "hist.h"
#include "mptcp.h"
#include "span.h"
#include "stack.h"
#include "syscall.h"

const volatile __u64 min_ns = 0, max_ns = 0;

enum metric { METRIC_CONNECT, METRIC_FAILED, METRIC_WAIT }; /* Go: metric */

struct lat_key {
	__u32 pid, tid, uid;
	__u32 metric;
	char comm[16], thread[16];
	__u8 raddr[16];
	__u16 rport, proto;
	__s32 ustack;
};
enum key_bits {
	KEY_pid, KEY_tid, KEY_uid, KEY_metric, KEY_comm, KEY_thread, KEY_raddr, KEY_rport, KEY_proto, KEY_ustack,
};
KEEP_ENUM(enum key_bits);

struct lat_value {
	struct hist hist;
};
static const struct lat_value lat_zero = {};

COUNT_MAP(lats, struct lat_key, struct lat_value);

/* A connect under way, and then the wait after it, by socket. */
struct attempt {
	__u64 start, established;
	struct who who;
	__s32 ustack;
	__u32 pad;
};
SPAN(attempts, struct sock *, struct attempt);

__u64 under_way = 0; /* how many there are */

/* A connect call, by thread. */
struct call {
	struct sock *sk;
	__u64 start;
	__s32 ustack;
	bool tcp;
	bool told; /* the socket's state tells the rest, or has told it */
	__u8 pad[2];
};
SPAN(connecting, __u64, struct call);

static __always_inline void record(const struct sock *sk, const struct attempt *a, enum metric m, __u64 ns)
{
	struct lat_key k = {};
	struct lat_value *v;
	struct tuple t = {};

	if (min_ns && ns < min_ns)
		return;
	if (max_ns && ns > max_ns)
		return;
	tuple_fill(&t, sk);
	if (!tuple_wanted(&t))
		return;
	/* The addresses of a stack are useless without the process. */
	if (KEY_WANTS(pid) || KEY_WANTS(ustack))
		k.pid = a->who.pid;
	if (KEY_WANTS(tid))
		k.tid = a->who.tid;
	if (KEY_WANTS(uid))
		k.uid = a->who.uid;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, a->who.comm, sizeof(k.comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k.thread, a->who.thread, sizeof(k.thread));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, t.raddr, sizeof(k.raddr));
	if (KEY_WANTS(rport))
		k.rport = t.rport;
	if (KEY_WANTS(proto))
		k.proto = t.proto;
	if (KEY_WANTS(ustack))
		k.ustack = a->ustack;
	k.metric = m;
	v = count_at(COUNTED(lats), &k, &lat_zero);
	if (v)
		hist_put(&v->hist, ns / 1000);
}

static __always_inline __s32 stack(void *ctx)
{
	return KEY_WANTS(ustack) ? user_stack(ctx) : -1;
}

static __always_inline bool attempt_new(struct attempt *a, const struct sock *sk)
{
	if (is_self() || !sock_wanted(sk))
		return false;
	if (!who_current(&a->who) || !who_wanted(&a->who))
		return false;
	a->start = bpf_ktime_get_ns();
	return true;
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *key = (struct sock *)sk;
	struct attempt *a;

	if (new == TCP_CLOSE && old != TCP_SYN_SENT && sock_proto(sk) == IPPROTO_MPTCP) {
		span_end_counted(&attempts, &key, &under_way); /* has no other end */
		return 0;
	}
	if ((new != TCP_SYN_SENT && old != TCP_SYN_SENT) || !is_session(sk))
		return 0;
	if (new == TCP_SYN_SENT) {
		struct call *c = bpf_map_lookup_elem(&connecting, &thread);
		struct attempt first = {};

		if (!attempt_new(&first, sk))
			return 0;
		if (c && c->sk == key) {
			c->told = true;
			first.ustack = c->ustack;
		} else {
			first.ustack = stack(ctx);
		}
		span_begin_counted(&attempts, &key, &first, &under_way);
		return 0;
	}
	a = bpf_map_lookup_elem(&attempts, &key);
	if (!a)
		return 0;
	__u64 now = bpf_ktime_get_ns();

	if (new == TCP_CLOSE) {
		record(sk, a, METRIC_FAILED, now - a->start);
		span_end_counted(&attempts, &key, &under_way);
		return 0;
	}
	record(sk, a, METRIC_CONNECT, now - a->start);
	a->established = now;
	return 0;
}

/* The program uses the connection: the wait ends. */
static __always_inline int noticed(struct sock *sk)
{
	struct attempt *a;

	if (!under_way) /* at nearly all sends and receives */
		return 0;
	a = bpf_map_lookup_elem(&attempts, &sk);
	if (!a || !a->established)
		return 0;
	record(sk, a, METRIC_WAIT, bpf_ktime_get_ns() - a->established);
	span_end_counted(&attempts, &sk, &under_way);
	return 0;
}

KTRACE(send, sock_send_length, struct sock *sk)
{
	return noticed(sk);
}

KTRACE(recv, sock_recv_length, struct sock *sk)
{
	return noticed(sk);
}

/* Before 6.3: the first bytes that are copied to the program. */
KTRACE(copied, tcp_rcv_space_adjust, struct sock *sk)
{
	return noticed(sk);
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	if (under_way)
		span_end_counted(&attempts, &key, &under_way);
	return 0;
}

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call c = { .sk = fd_sock(a0) };
	struct attempt a = {};
	__u16 family = AF_INET;

	bpf_probe_read_user(&family, sizeof(family), (void *)a1);
	if (!family) /* AF_UNSPEC dissolves a connection */
		return 0;
	if (!c.sk || !is_inet(sock_family(c.sk)) || !attempt_new(&a, c.sk))
		return 0;
	c.tcp = is_session(c.sk);
	c.told = c.tcp && sock_connecting(c.sk);
	c.start = a.start;
	c.ustack = stack(ctx);
	span_begin(&connecting, &thread, &c);
	return 0;
}

SYS_EXIT(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *found = bpf_map_lookup_elem(&connecting, &thread), c;
	struct attempt a = {};

	if (!found)
		return 0;
	c = *found;
	bpf_map_delete_elem(&connecting, &thread);
	if (c.tcp && !ret) /* the program notices as the call returns */
		return noticed(c.sk);
	/* TCP too, when it fails before a packet is sent: no route, no port */
	if (c.told || is_restart(ret) || !who_current(&a.who))
		return 0;
	a.ustack = c.ustack;
	record(c.sk, &a, ret < 0 ? METRIC_FAILED : METRIC_CONNECT, bpf_ktime_get_ns() - c.start);
	return 0;
}
