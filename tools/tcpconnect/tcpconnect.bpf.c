//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpconnect - each active TCP connection, when it is known how it ended.
 *
 * From the SYN on, the socket's state tells: it leaves SYN_SENT for ESTABLISHED,
 * or for CLOSE with an error. What fails before a SYN is sent, or within the
 * call for want of a port, only the call itself tells.
 */
#include "count.h"
#include "dns.h"
#include "fd.h"
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
	struct sock *sk;
	__u64 start;
	__u8 addr[16];
	__u16 port;
	bool inet; /* the address is one of IP's */
	bool sent; /* the socket came to SYN_SENT: its state tells the end */
	bool left; /* and left it for CLOSE without a reason: the call tells */
	__u8 pad[3];
};
SPAN(callers, __u64, struct call);

/* Connections whose end was told before io_uring completes their request. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct sock *);
	__type(value, __u8);
} told SEC(".maps");

static __always_inline int count_one(const struct who *who, const struct tuple *t, __u32 netns, int result)
{
	struct connect_count zero = {}, *c;
	struct connect_key k = {};

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
	c = count_at(&counts, &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, 1);
	if (result)
		__sync_fetch_and_add(&c->failed, 1);
	return 0;
}

/* to: the address that was asked for, where the socket does not hold it. */
static __always_inline int ended(const struct sock *sk, const struct who *who, __u64 start, const struct call *to, int result)
{
	struct tuple tuple = {};
	struct connect_event *e;
	__u64 now = bpf_ktime_get_ns();

	if (!tuple_fill(&tuple, sk))
		return 0;
	tuple.proto = IPPROTO_TCP;
	if (to && to->inet) {
		__builtin_memcpy(tuple.raddr, to->addr, sizeof(tuple.raddr));
		tuple.rport = to->port;
	}
	if (!tuple_wanted(&tuple))
		return 0;
	if (counting)
		return count_one(who, &tuple, sock_netns(sk), result);
	e = EVENT_NEW(struct connect_event);
	if (!e)
		return 0;
	e->head.ts = now;
	e->head.netns = sock_netns(sk);
	e->head.who = *who;
	e->tuple = tuple;
	e->latency = start ? now - start : NONE;
	e->result = result;
	return event_send(e);
}

static __always_inline bool is_tcp_sock(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	return is_inet(sock_family(sk)) && (proto == IPPROTO_TCP || proto == IPPROTO_MPTCP);
}

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call c = { .sk = fd_sock(a0) };

	if (!c.sk || is_self() || !is_tcp_sock(c.sk) || !sock_wanted(c.sk))
		return 0;
	c.start = bpf_ktime_get_ns();
	c.inet = is_inet(sockaddr_inet(c.addr, &c.port, (void *)a1, a2));
	span_begin(&callers, &thread, &c);
	return 0;
}

/* Errors that say nothing of a new connection: one is under way, or there. */
static __always_inline bool undecided(long ret)
{
	return ret == -EINPROGRESS || ret == -EALREADY || ret == -EISCONN || ret == -EINTR ||
	       ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND;
}

SYS_EXIT(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *found = bpf_map_lookup_elem(&callers, &thread), c;
	struct who who = {};

	if (!found)
		return 0;
	c = *found;
	bpf_map_delete_elem(&callers, &thread);
	/* A second call on the same socket finds out how the first one ended. */
	if (ret >= 0 || undecided(ret) || (c.sent && !c.left) || bpf_map_lookup_elem(&told, &c.sk)) {
		bpf_map_delete_elem(&told, &c.sk);
		return 0;
	}
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	return ended(c.sk, &who, c.start, &c, ret);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *key = (struct sock *)sk;
	struct pending p = {}, *found;
	struct call *call;
	int err = 0;
	__u8 one = 1;

	if (sock_proto(sk) != IPPROTO_TCP)
		return 0;
	if (new == TCP_SYN_SENT) {
		if (is_self() || !sock_wanted(sk))
			return 0;
		call = bpf_map_lookup_elem(&callers, &thread);
		if (call)
			call->sent = true;
		who_current(&p.who); /* MPTCP opens further subflows by itself */
		if (!who_wanted(&p.who))
			return 0;
		p.start = call ? call->start : bpf_ktime_get_ns();
		span_begin(&pendings, &key, &p);
		return 0;
	}
	if (old != TCP_SYN_SENT)
		return 0;
	found = bpf_map_lookup_elem(&pendings, &key);
	if (!found)
		return 0;
	p = *found;
	bpf_map_delete_elem(&pendings, &key);
	if (new == TCP_CLOSE) {
		err = BPF_CORE_READ(sk, sk_err);
		call = bpf_map_lookup_elem(&callers, &thread);
		if (!err && call && call->sent) {
			call->left = true;
			return 0;
		}
		if (!err)
			err = ECANCELED; /* the program gave it up */
		bpf_map_update_elem(&told, &key, &one, BPF_ANY);
	}
	return ended(sk, &p.who, p.start, NULL, -err);
}

/* Requests of io_uring that failed before a SYN was sent. */
URING_COMPLETE(uring, op == URING_CONNECT)
{
	struct who who = {};

	if (!sk || res >= 0 || undecided(res) || is_self() || !is_tcp_sock(sk) || !sock_wanted(sk))
		return 0;
	if (bpf_map_lookup_elem(&told, &sk) || bpf_map_lookup_elem(&pendings, &sk)) {
		bpf_map_delete_elem(&told, &sk);
		return 0;
	}
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	return ended(sk, &who, 0, NULL, res);
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	bpf_map_delete_elem(&pendings, &key);
	bpf_map_delete_elem(&told, &key);
	return 0;
}

SEC("cgroup_skb/ingress") int names__cgroup(struct __sk_buff *skb)
{
	struct dns_answer *a;
	struct dns d = {};
	__u32 netns;

	if (!dns_parse(&d, skb, false) || !d.answers)
		return 1;
	netns = dns_netns(skb, false);
	if (!netns_wanted(netns))
		return 1;
	a = EVENT_NEW(struct dns_answer);
	if (!a)
		return 1;
	a->head.view = VIEW_NOTICE;
	a->head.netns = netns;
	a->len = DNS_COPY(a->message, ANSWER_LEN, skb, &d);
	event_send(a);
	return 1;
}
