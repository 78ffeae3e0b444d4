//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpconnect - each active TCP connection, when its result is known.
 *
 * From the SYN on, the socket's state shows the result: it leaves SYN_SENT for
 * ESTABLISHED, or for CLOSE with an error. Failures before a SYN is sent, or
 * because there is no free port, are seen only at the call.
 */
#include "count.h"
#include "dns.h"
#include "fd.h"
#include "latency.h"
#include "pending.h"
#include "sockaddr.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

const volatile bool counting = false; /* count by destination: no events */

struct connect_event {
	struct head head;
	struct tuple tuple;
	__u64 latency;
	__s32 result; /* 0 or a negative errno */
	__u32 host;   /* for Go to word */
	__u32 pending; /* it has not ended: latency is its age */
	__u32 pad;
};
EVENT(struct connect_event);

/* --dns: an answer of a name server, for Go to remember. */
#define ANSWER_LEN 904 /* most are shorter by far */

struct dns_answer {
	struct head head;
	__u32 len;
	__u32 pad;
	__u8 message[ANSWER_LEN];
};
EVENT(struct dns_answer);

struct connect_key {
	__u64 cgroup;
	__u32 pid, uid;
	char comm[16];
	__u8 laddr[16], raddr[16];
	__u16 rport, family;
	__u32 netns;
	__u32 pending;
	__u32 pad;
};
struct connect_count {
	__u64 count, failed;
};
enum key_bits {
	KEY_cgroup, KEY_pid, KEY_uid, KEY_comm, KEY_laddr, KEY_raddr, KEY_rport, KEY_family, KEY_netns,
};
KEEP_ENUM(enum key_bits);
COUNT_MAP(counts, struct connect_key, struct connect_count);

/* A connection under way, by socket. */
struct pending {
	__u64 start;
	struct who who;
};
SPAN(pendings, struct sock *, struct pending);

/* A thread in connect(2). */
struct call {
	__u64 start;	 /* 0: it is over */
	struct sock *sk; /* that came to SYN_SENT: its state tells the end */
	__u64 addr;	 /* what was asked for is read when it counts */
	__u32 len;
	__s32 fd;
	__u64 left; /* sk left SYN_SENT for CLOSE without a reason: the call has it */
};
THREAD_SPAN(callers, struct call);
THREAD_END(callers)

/* Connections whose end was reported before the call, or io_uring, returns it. */
SPAN(told, struct sock *, __u8);

/* The number of entries of either map: mostly no lookup is needed. */
__u64 pendings_count = 0, told_count = 0;

/* The call of this thread that is under way. */
static __always_inline struct call *call_now(__u64 thread)
{
	struct call *c = bpf_map_lookup_elem(&callers, &thread);

	return c && c->start ? c : NULL;
}

static __always_inline int count_one(const struct who *who, const struct tuple *t, __u32 netns, int result, bool pending)
{
	struct connect_count zero = {}, *c;
	struct connect_key k = { .pending = pending };

	if (KEY_WANTS(cgroup))
		k.cgroup = who->cgroup;
	if (KEY_WANTS(pid))
		k.pid = who->pid;
	if (KEY_WANTS(uid))
		k.uid = who->uid;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, who->comm, sizeof(k.comm));
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k.laddr, t->laddr, sizeof(k.laddr));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, t->raddr, sizeof(k.raddr));
	if (KEY_WANTS(rport))
		k.rport = t->rport;
	if (KEY_WANTS(family))
		k.family = t->family;
	if (KEY_WANTS(netns))
		k.netns = netns;
	c = count_at(COUNTED(counts), &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, 1);
	if (result)
		__sync_fetch_and_add(&c->failed, 1);
	return 0;
}

/* call: has the requested address if the socket does not have it. */
static __always_inline int tell(const struct sock *sk, const struct who *who, __u64 start, const struct call *call, int result,
				bool pending)
{
	struct tuple tuple = {}, asked = {};
	struct connect_event *e;
	__u64 now = bpf_ktime_get_ns();

	if (!tuple_fill(&tuple, sk))
		return 0;
	tuple.proto = IPPROTO_TCP;
	if (call && is_inet(sockaddr_inet(asked.raddr, &asked.rport, (void *)call->addr, call->len))) {
		__builtin_memcpy(tuple.raddr, asked.raddr, sizeof(tuple.raddr));
		tuple.rport = asked.rport;
	}
	if (!tuple_wanted(&tuple))
		return 0;
	if (!latency_wanted(start ? now - start : 0))
		return 0;
	if (counting)
		return count_one(who, &tuple, sock_netns(sk), result, pending);
	e = EVENT_NEW(struct connect_event);
	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = sock_netns(sk);
	e->head.who = *who;
	e->tuple = tuple;
	e->latency = start ? now - start : NONE;
	e->result = result;
	e->pending = pending;
	return event_send(e);
}

static __always_inline int ended(const struct sock *sk, const struct who *who, __u64 start, const struct call *call, int result)
{
	return tell(sk, who, start, call, result, false);
}

PENDING(pending, pendings, struct sock *, struct pending)
{
	struct who who = value->who;

	return tell(key, &who, value->start, NULL, 0, true);
}

static __always_inline bool is_tcp_sock(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	return is_inet(sock_family(sk)) && (proto == IPPROTO_TCP || proto == IPPROTO_MPTCP);
}

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call c = { .addr = a1, .len = a2, .fd = a0 }, *slot;

	if (thread >> 32 == filter_self)
		return 0;
	c.start = bpf_ktime_get_ns();
	slot = bpf_map_lookup_elem(&callers, &thread);
	if (slot)
		*slot = c;
	else
		span_begin(&callers, &thread, &c);
	return 0;
}

/* Errors that are not about a new connection: one is under way or exists. */
static __always_inline bool undecided(long ret)
{
	return ret == -EINPROGRESS || ret == -EALREADY || ret == -EISCONN || ret == -EINTR ||
	       ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND;
}

SYS_EXIT(connect, connect)
{
	struct call *c = call_now(bpf_get_current_pid_tgid());
	struct who who = {};
	struct sock *sk;
	bool settled;
	__u64 start;

	if (!c)
		return 0;
	start = c->start;
	c->start = 0;
	settled = ret >= 0 || undecided(ret) || (c->sk && !c->left);
	if (settled && !told_count)
		return 0;
	sk = fd_sock(c->fd);
	if (!sk || !is_tcp_sock(sk) || !sock_wanted(sk))
		return 0;
	/* A second call on the same socket returns the result of the first one. */
	if (settled || bpf_map_lookup_elem(&told, &sk)) {
		span_end_counted(&told, &sk, &told_count);
		return 0;
	}
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	return ended(sk, &who, start, c, ret);
}

static __always_inline int syn_sent(const struct sock *sk)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *key = (struct sock *)sk;
	struct pending p = {};
	struct call *call;

	if (thread >> 32 == filter_self || load_proto(sk) != IPPROTO_TCP || !sock_wanted(sk))
		return 0;
	make_cookie(sk);
	call = call_now(thread);
	if (call)
		call->sk = key;
	who_current(&p.who); /* MPTCP opens further subflows by itself */
	if (!who_wanted(&p.who))
		return 0;
	p.start = call ? call->start : bpf_ktime_get_ns();
	span_begin_counted(&pendings, &key, &p, &pendings_count);
	return 0;
}

static __always_inline int left_syn_sent(const struct sock *sk, int new)
{
	struct sock *key = (struct sock *)sk;
	struct pending *p = bpf_map_lookup_elem(&pendings, &key);
	struct call *call;
	int err = 0;
	__u8 one = 1;

	if (!p)
		return 0;
	if (new == TCP_CLOSE) {
		err = BPF_CORE_READ(sk, sk_err);
		call = call_now(bpf_get_current_pid_tgid());
		if (!err && call && call->sk == key) {
			call->left = true;
			goto out;
		}
		if (!err)
			err = ECANCELED; /* the program gave it up */
		span_begin_counted(&told, &key, &one, &told_count);
	}
	ended(sk, &p->who, p->start, NULL, -err);
out:
	span_end_counted(&pendings, &key, &pendings_count);
	return 0;
}

KTRACE(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	if (new == TCP_SYN_SENT)
		return syn_sent(sk);
	return old == TCP_SYN_SENT ? left_syn_sent(sk, new) : 0;
}

/* Requests of io_uring that failed before a SYN was sent. */
URING_COMPLETE(uring, op == URING_CONNECT)
{
	struct who who = {};

	if (!sk || res >= 0 || undecided(res) || is_self() || !is_tcp_sock(sk) || !sock_wanted(sk))
		return 0;
	if (bpf_map_lookup_elem(&told, &sk) || bpf_map_lookup_elem(&pendings, &sk)) {
		span_end_counted(&told, &sk, &told_count);
		return 0;
	}
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	return ended(sk, &who, 0, NULL, res);
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	if (pendings_count)
		span_end_counted(&pendings, &key, &pendings_count);
	if (told_count)
		span_end_counted(&told, &key, &told_count);
	return 0;
}

KTRACE(names_end, tcp_destroy_sock, const struct sock *sk)
{
	dns_end(sk);
	return 0;
}

/* Go remembers the addresses of an answer. */
static __noinline int name_learned(struct dns *d, struct __sk_buff *skb, __u32 netns)
{
	struct dns_answer *a;

	if (!d || !d->answers)
		return 0;
	a = EVENT_NEW(struct dns_answer);
	if (!a)
		return 0;
	a->head.view = VIEW_NOTICE;
	a->head.netns = netns;
	a->len = DNS_COPY(a->message, ANSWER_LEN, skb, d);
	return event_send(a);
}

SEC("cgroup_skb/ingress") int names__cgroup(struct __sk_buff *skb)
{
	struct dns d = {};
	__u32 netns;

	if (!dns_packet(&d, skb, false))
		return CGROUP_ALLOW;
	netns = skb_sk_netns(skb);
	if (!netns_wanted(netns))
		return CGROUP_ALLOW;
	DNS_MESSAGES(&d, skb, false)
		name_learned(&d, skb, netns);
	return CGROUP_ALLOW;
}
