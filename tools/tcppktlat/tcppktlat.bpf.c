//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcppktlat - from when TCP takes a packet to when the application has read it.
 *
 * Both moments have the socket's lock held, so entries need none of their own.
 */
#include "count.h"
#include "hist.h"
#include "latency.h"
#include "mptcp.h"
#include "service.h"
#include "span.h"
#include "tcp.h"
#include "tcptime.h"
#include "who.h"

const volatile bool show_events = false;

/* The packets of a socket that are not read: a ring. Those that do not fit belong to the
 * last one.
 */
#define PACKETS 64 /* a power of two */
struct arrivals {
	__u64 at[PACKETS];
	__u32 end[PACKETS]; /* the sequence number behind each */
	__u32 first, count;
};
static const struct arrivals none_yet = {};
SPAN(arrivals, __u64, struct arrivals);

struct packet_key {
	__u64 cgroup;
	__u32 pid, tid, uid, netns;
	char comm[16], thread[16];
	__u8 laddr[16], raddr[16];
	__u16 lport, rport, port;
	__u16 pad;
};
enum key_bits {
	KEY_cgroup, KEY_pid, KEY_tid, KEY_uid, KEY_netns, KEY_comm, KEY_thread, KEY_laddr, KEY_raddr, KEY_lport, KEY_rport, KEY_port,
};
KEEP_ENUM(enum key_bits);
struct packet_value {
	struct hist hist;
};
static const struct packet_value packet_zero = {};
COUNT_MAP(waits, struct packet_key, struct packet_value);

struct packet_event {
	struct head head;
	struct tuple tuple;
	__u64 latency; /* of the oldest */
	__u32 packets;
	__u32 pad;
};
EVENT(struct packet_event);

#define FIN 1 /* of tcp_flags: it counts as a byte */
#define SLOT(n) ((n) & (PACKETS - 1))

static __always_inline struct arrivals *arrivals_of(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct arrivals *a = bpf_map_lookup_elem(&arrivals, &key);

	if (a)
		return a;
	span_begin(&arrivals, &key, &none_yet);
	return bpf_map_lookup_elem(&arrivals, &key);
}

/* Before the segment is looked at. Data that come out of order can be read when the gap is
 * filled: they count with the packet that fills it.
 */
KTRACE(arrive, tcp_probe, const struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;
	const struct tcp_sock *tp = tcp_load(sk);
	__u32 seq, end, next, last;
	struct arrivals *a;

	if (!tp)
		return 0;
	seq = BPF_CORE_READ(cb, seq);
	end = BPF_CORE_READ(cb, end_seq) - (BPF_CORE_READ(cb, tcp_flags) & FIN);
	if (end == seq)
		return 0;
	next = LOAD(tp, rcv_nxt);
	if (seq_after(seq, next) || !seq_after(end, next))
		return 0;
	if (!sock_wanted(sk) || mptcp_parent(sk))
		return 0;
	a = arrivals_of(sk);
	if (!a)
		return 0;
	last = a->first + a->count - 1;
	/* The kernel may have refused the last one, for want of room. */
	if (a->count && seq_after(a->end[SLOT(last)], next)) {
		a->count--;
		last--;
	}
	/* These are an earlier socket's at this address, or their read was not seen. */
	if (a->count && (seq_after(a->end[SLOT(last)], next) || !seq_after(a->end[SLOT(last)], LOAD(tp, copied_seq))))
		a->count = 0;
	if (a->count < PACKETS) {
		last = a->first + a->count++;
		a->at[SLOT(last)] = bpf_ktime_get_ns();
	}
	a->end[SLOT(last)] = end;
	return 0;
}

static __always_inline void key_fill(struct packet_key *k, const struct packet_event *e, const struct sock *sk)
{
	if (KEY_WANTS(cgroup))
		k->cgroup = e->head.who.cgroup;
	if (KEY_WANTS(pid))
		k->pid = e->head.who.pid;
	if (KEY_WANTS(tid))
		k->tid = e->head.who.tid;
	if (KEY_WANTS(uid))
		k->uid = e->head.who.uid;
	if (KEY_WANTS(netns))
		k->netns = e->head.netns;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k->comm, e->head.who.comm, sizeof(k->comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k->thread, e->head.who.thread, sizeof(k->thread));
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k->laddr, e->tuple.laddr, sizeof(k->laddr));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k->raddr, e->tuple.raddr, sizeof(k->raddr));
	if (KEY_WANTS(lport))
		k->lport = e->tuple.lport;
	if (KEY_WANTS(rport))
		k->rport = e->tuple.rport;
	if (KEY_WANTS(port))
		k->port = service_port(sk, &e->tuple);
}

/* Take the packets that were read out of the ring; the oldest tells the latency of an
 * event, each one its own in a histogram.
 */
static __always_inline __u32 take(struct arrivals *a, __u32 copied, __u64 now, __u64 *oldest, struct hist *h)
{
	__u32 n = 0;

	for (int i = 0; i < PACKETS; i++) {
		__u32 slot = SLOT(a->first);
		__u64 ns;

		if (!a->count || seq_after(a->end[slot], copied))
			break;
		ns = now - a->at[slot];
		a->first++;
		a->count--;
		if (!n++)
			*oldest = ns;
		if (h && latency_wanted(ns))
			hist_put(h, ns / 1000);
	}
	return n;
}

/* The reader has copied something, and copied_seq says how far. */
KTRACE_SK(read, tcp_rcv_space_adjust, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_load(sk);
	__u64 key = (__u64)sk, now;
	struct packet_event e = {}, *out;
	struct arrivals *a;
	__u32 copied;

	if (!tp)
		return 0;
	a = bpf_map_lookup_elem(&arrivals, &key);
	if (!a || !a->count)
		return 0;
	copied = LOAD(tp, copied_seq);
	if (seq_after(a->end[SLOT(a->first)], copied))
		return 0;
	now = bpf_ktime_get_ns();
	if (is_self() || !tuple_load(&e.tuple, sk) || !tuple_wanted(&e.tuple) || !who_current(&e.head.who) || !who_wanted(&e.head.who)) {
		take(a, copied, now, &e.latency, NULL);
		return 0;
	}
	e.head.netns = load_netns(sk);
	if (!show_events) {
		struct packet_key k = {};
		struct packet_value *v;

		key_fill(&k, &e, sk);
		v = count_at(COUNTED(waits), &k, &packet_zero);
		take(a, copied, now, &e.latency, v ? &v->hist : NULL);
		return 0;
	}
	e.packets = take(a, copied, now, &e.latency, NULL);
	if (!latency_wanted(e.latency))
		return 0;
	e.head.ts = now;
	out = EVENT_NEW(struct packet_event);
	if (!out)
		return 0;
	*out = e;
	return event_send(out);
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	__u64 key = (__u64)sk;

	bpf_map_delete_elem(&arrivals, &key);
	return 0;
}
