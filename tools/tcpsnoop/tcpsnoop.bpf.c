//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpsnoop - each TCP packet as the stack handles it, with its process. */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_STATE_IN_TOOL)
#define OWNER_ON_FOUND flow_found
#include "segment.h"
#include "filter.h"

/* A connection, by its tuple. A packet arrives before the kernel has looked up its
 * socket, and the last packets may arrive after the socket was closed.
 */
struct flow_key {
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u32 netns;
};
struct flow {
	struct sock *sk; /* NULL: none yet, or no more */
	struct who who;
	__u32 first[2]; /* sequence numbers of the SYNs, out and in */
	bool known[2];
	__u8 pad[6];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

static __always_inline struct flow *flow_at(const struct tuple *t, __u32 netns, bool make)
{
	struct flow_key k = { .lport = t->lport, .rport = t->rport, .netns = netns };
	struct flow *f, zero = {};

	__builtin_memcpy(k.laddr, t->laddr, sizeof(k.laddr));
	__builtin_memcpy(k.raddr, t->raddr, sizeof(k.raddr));
	f = bpf_map_lookup_elem(&flows, &k);
	if (f || !make)
		return f;
	bpf_map_update_elem(&flows, &k, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, &k);
}

static __always_inline void flow_found(struct sock *sk)
{
	struct tuple t = {};
	struct flow *f;

	if (sock_proto(sk) != IPPROTO_TCP || sock_state(sk) == TCP_LISTEN || !tuple_fill(&t, sk))
		return;
	f = flow_at(&t, sock_netns(sk), true);
	if (f)
		f->sk = sk;
}

#include "owner.h"

enum { SNOOP_IN, SNOOP_OUT };

struct snoop_event {
	struct head head;
	struct tuple tuple;
	__u32 seq, ack;
	__u64 seq_rel, ack_rel; /* NONE: the SYN was not seen */
	__u32 len, segs;
	__u16 window;
	__u8 flags;
	__u8 dir; /* SNOOP_* */
	__u32 pad;
};
EVENT(struct snoop_event);

static __always_inline bool snoop_who(struct who *w, struct flow *f, const struct tuple *t, __u32 netns)
{
	struct sock *sk = f ? f->sk : NULL;

	if (!sk && f && f->who.pid) {
		*w = f->who;
		return true;
	}
	if (!sk)
		sk = listener_at(t->laddr, t->lport, netns);
	if (!sk) { /* also when the flow has made room for others */
		lose(LOSS_OWNER);
		return false;
	}
	if (!owner_get(w, sk))
		return false;
	if (f)
		f->who = *w;
	return true;
}

static __always_inline int snoop(const struct sk_buff *skb, const void *ip, struct sock *sk, __u32 netns, int dir)
{
	struct skb_shared_info *info;
	struct tuple tuple = {};
	struct segment p = {};
	struct snoop_event *e;
	struct who who = {};
	bool out = dir == SNOOP_OUT;
	struct flow *f;

	if (!netns_wanted(netns) || !segment_read(&p, skb, ip))
		return 0;
	segment_tuple(&tuple, &p, out);
	if (!family_wanted(tuple.family) || !tuple_wanted(&tuple))
		return 0;
	f = flow_at(&tuple, netns, sk || p.flags & FLAG_SYN);
	/* A new connection begins: the entry is of the previous one with these ports. */
	if (f && !f->sk && (p.flags & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN) {
		f->who.pid = 0;
		f->known[0] = f->known[1] = false;
	}
	if (f && sk)
		f->sk = sk;
	if (f && p.flags & FLAG_SYN) {
		f->first[out] = p.seq;
		f->known[out] = true;
	}
	snoop_who(&who, f, &tuple, netns);
	if (!who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct snoop_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = netns;
	e->head.who = who;
	e->tuple = tuple;
	if (f && f->sk)
		e->tuple.sock = sock_cookie(f->sk);
	e->seq = p.seq;
	e->ack = p.ack;
	e->seq_rel = f && f->known[out] ? (__u32)(p.seq - f->first[out]) : NONE;
	e->ack_rel = f && f->known[!out] && p.flags & FLAG_ACK ? (__u32)(p.ack - f->first[!out]) : NONE;
	e->len = p.len;
	info = (void *)LOAD(skb, head) + LOAD(skb, end);
	e->segs = BPF_CORE_READ(info, gso_segs);
	if (!e->segs)
		e->segs = 1;
	e->window = p.window;
	e->flags = p.flags;
	e->dir = dir;
	return event_send(e);
}

static __always_inline bool is_ip(const struct sk_buff *skb)
{
	__be16 proto = LOAD(skb, protocol);

	return proto == bpf_htons(0x0800) || proto == bpf_htons(0x86dd);
}

/* A packet without a socket that arrived at a device is forwarded: it belongs to other hosts.
 * Else, over IPv6, it is the kernel's answer for a socket that was closed or never existed.
 */
KTRACE(out, net_dev_queue, struct sk_buff *skb)
{
	struct sock *sk = LOAD(skb, sk);
	__u32 netns;
	__u8 state;

	if (!is_ip(skb))
		return 0;
	if (!sk)
		return LOAD(skb, skb_iif) ? 0 : snoop(skb, segment_ip(skb), NULL, skb_netns(skb), SNOOP_OUT);
	netns = load_netns(sk);
	state = LOAD(sk, __sk_common.skc_state);
	/* A raw socket of the kernel sends resets and the answers for closed sockets.
	 * A request socket is not a full socket yet.
	 */
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV || load_proto(sk) != IPPROTO_TCP || LOAD(sk, sk_type) == SOCK_RAW)
		sk = NULL;
	return snoop(skb, segment_ip(skb), sk, netns, SNOOP_OUT);
}

/* The network header is not set yet. The data begin with it. */
KTRACE(in, netif_receive_skb, struct sk_buff *skb)
{
	if (!is_ip(skb))
		return 0;
	return snoop(skb, LOAD(skb, data), NULL, skb_netns(skb), SNOOP_IN);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct tuple t = {};
	struct flow *f;

	__u16 proto = load_proto(sk);

	if (!is_tcp(proto))
		return 0;
	owner_on_state(sk, old, new);
	if (proto != IPPROTO_TCP || (new != TCP_ESTABLISHED && new != TCP_CLOSE) || !tuple_load(&t, sk))
		return 0;
	f = flow_at(&t, load_netns(sk), new == TCP_ESTABLISHED);
	if (!f)
		return 0;
	if (new == TCP_ESTABLISHED) {
		f->sk = (struct sock *)sk;
		return 0;
	}
	owner_seek(&f->who, sk, owner_entry(sk));
	f->sk = NULL;
	return 0;
}
