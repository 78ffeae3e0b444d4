//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcppktlat - the time from TCP's receipt of a packet to the application's read.
 *
 * Both hooks run with the socket locked, so entries need no lock of their own.
 */
#include "count.h"
#include "hist.h"
#include "latency.h"
#include "mptcp.h"
#include "service.h"
#include "skb.h"
#include "span.h"
#include "syscall.h"
#include "tcp.h"
#include "tcptime.h"
#include "who.h"

const volatile bool show_events = false;
const volatile bool show_parts = false;

enum packet_part { PART_ALL, PART_SOFTIRQ, PART_SOCKET, PART_APP }; /* Go: part */

/* Parts: the time when the device delivered a packet, by the address of its skb. The TCP hook
 * deletes the entry. The LRU evicts packets that never reach TCP.
 */
struct received {
	__u64 at;
	__u32 seq;
	__u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct received);
} received SEC(".maps");

/* Parts: the time when a thread entered the system call that reads; 0: it is in none. */
THREAD_SPAN(reading, __u64);
THREAD_END(reading)

/* A ring of the packets of a socket that are not read yet. Packets that do not fit count with
 * the last one.
 */
#define PACKETS 64 /* a power of two */
struct arrivals {
	__u64 at[PACKETS];
	__u32 end[PACKETS]; /* the sequence number after the last byte of each */
	__u32 before[PACKETS]; /* nanoseconds from the device to TCP; UNKNOWN */
	__u32 first, count;
};
#define UNKNOWN 0xffffffff
static const struct arrivals none_yet = {};
SPAN(arrivals, __u64, struct arrivals);

struct packet_key {
	__u64 cgroup;
	__u32 pid, tid, uid, netns;
	char comm[16], thread[16];
	__u8 laddr[16], raddr[16];
	__u16 lport, rport, port;
	__u16 part; /* enum packet_part */
};
enum key_bits {
	KEY_cgroup, KEY_pid, KEY_tid, KEY_uid, KEY_netns, KEY_comm, KEY_thread, KEY_laddr, KEY_raddr, KEY_lport, KEY_rport, KEY_port, KEY_part,
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
	__u64 softirq, socket, app; /* of the oldest; NONE: not known */
	__u32 packets;
	__u32 pad;
};
EVENT(struct packet_event);

#define FIN 1 /* in tcp_flags; a FIN takes one sequence number */
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

KTRACE(receive, netif_receive_skb, const struct sk_buff *skb)
{
	struct received r = {};
	struct packet p = {};
	__u64 key = (__u64)skb;
	__u8 l4[8] = {};

	if (!packet_parse(&p, skb, PACKET_IN) || p.proto != IPPROTO_TCP || !packet_read(&p, 0, l4, sizeof(l4)))
		return 0;
	r.seq = bpf_ntohl(*(__be32 *)&l4[4]);
	r.at = bpf_ktime_get_ns();
	bpf_map_update_elem(&received, &key, &r, BPF_ANY);
	return 0;
}

/* The time from the device to TCP. It is unknown if the kernel copied the packet in between:
 * the copy has another address.
 */
static __always_inline __u32 before_tcp(const struct sk_buff *skb, __u32 seq, __u64 now)
{
	__u64 key = (__u64)skb, ns;
	struct received *r = bpf_map_lookup_elem(&received, &key);
	__u32 was;

	if (!r)
		return UNKNOWN;
	ns = now - r->at;
	was = r->seq;
	bpf_map_delete_elem(&received, &key);
	return was == seq && ns < UNKNOWN ? ns : UNKNOWN;
}

static __always_inline __u64 *call_of(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	return bpf_map_lookup_elem(&reading, &thread);
}

static __always_inline __u64 call_began(void)
{
	__u64 *at = call_of();

	return at ? *at : 0;
}

static __noinline int call_begins(void)
{
	__u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), *at = call_of();

	if (at)
		*at = now;
	else
		span_begin(&reading, &thread, &now);
	return 0;
}

static __noinline int call_ends(void)
{
	__u64 *at = call_of();

	if (at)
		*at = 0;
	return 0;
}

#define CALL(name)                                                             \
	SYS_ENTER(call, name)                                                  \
	{                                                                      \
		return call_begins();                                          \
	}                                                                      \
	SYS_EXIT(call, name)                                                   \
	{                                                                      \
		return call_ends();                                            \
	}
CALL(read)
CALL(readv)
CALL(recvfrom)
CALL(recvmsg)
CALL(recvmmsg)

/* Runs before TCP processes the segment. Data that arrive out of order can be read only when the
 * gap is filled: they count with the packet that fills it.
 */
KTRACE(arrive, tcp_probe, const struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = (void *)skb->cb;
	const struct tcp_sock *tp = tcp_load(sk);
	__u32 seq, end, next, last;
	struct arrivals *a;
	__u32 before = UNKNOWN;
	__u64 now;

	if (!tp)
		return 0;
	seq = BPF_CORE_READ(cb, seq);
	now = bpf_ktime_get_ns();
	if (show_parts)
		before = before_tcp(skb, seq, now);
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
	/* The kernel may have dropped the last packet because the buffer was full. */
	if (a->count && seq_after(a->end[SLOT(last)], next)) {
		a->count--;
		last--;
	}
	/* These belong to an earlier socket at this address, or the tool missed their read. */
	if (a->count && (seq_after(a->end[SLOT(last)], next) || !seq_after(a->end[SLOT(last)], LOAD(tp, copied_seq))))
		a->count = 0;
	if (a->count < PACKETS) {
		last = a->first + a->count++;
		a->at[SLOT(last)] = now;
		a->before[SLOT(last)] = before;
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

/* A read. It takes the packets that end at or before copied from the ring. */
struct taking {
	struct arrivals *from;
	__u64 now, call; /* call: when the system call began; 0: not known */
	__u32 copied;
};

/* Was packet i of the ring read? */
static __always_inline bool taken(const struct taking *t, __u32 i)
{
	return i < t->from->count && !seq_after(t->from->end[SLOT(t->from->first + i)], t->copied);
}

/* The time that packet i spent in one part; NONE: not known. */
static __always_inline __u64 waited(const struct taking *t, __u32 i, enum packet_part part)
{
	__u32 slot = SLOT(t->from->first + i);
	__u64 at = t->from->at[slot];

	if (part == PART_ALL)
		return t->now - at;
	if (part == PART_SOFTIRQ)
		return t->from->before[slot] == UNKNOWN ? NONE : t->from->before[slot];
	if (!t->call)
		return NONE;
	if (part == PART_SOCKET)
		return t->now - (t->call > at ? t->call : at);
	return t->call > at ? t->call - at : 0;
}

/* Remove the packets that were read from the ring. */
static __always_inline __u32 take(const struct taking *t)
{
	__u32 n = 0;

	for (int i = 0; i < PACKETS && taken(t, i); i++)
		n++;
	t->from->first += n;
	t->from->count -= n;
	return n;
}

/* A global function: the verifier checks it once, not in each round of a loop. */
__noinline __u32 slot_of(__u64 us)
{
	return hist_slot(us);
}

/* Count one part of each packet that was read. There is a loop for each part: in one loop for
 * all of them the verifier would follow every combination of their branches.
 */
static __always_inline void count_part(const struct taking *t, struct packet_key *k, enum packet_part part)
{
	struct packet_value *v;

	k->part = part;
	v = count_at(COUNTED(waits), k, &packet_zero);
	if (!v)
		return;
	for (int i = 0; i < PACKETS && taken(t, i); i++) {
		__u64 ns = waited(t, i, part);

		if (ns != NONE && latency_wanted(waited(t, i, PART_ALL)))
			hist_put_at(&v->hist, ns / 1000, slot_of(ns / 1000));
	}
}

/* The reader has copied data. copied_seq is the position up to which it has read. */
KTRACE_SK(read, tcp_rcv_space_adjust, const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_load(sk);
	__u64 key = (__u64)sk;
	struct packet_event e = {}, *out;
	struct taking t = {};

	if (!tp)
		return 0;
	t.from = bpf_map_lookup_elem(&arrivals, &key);
	if (!t.from)
		return 0;
	t.copied = LOAD(tp, copied_seq);
	if (!taken(&t, 0))
		return 0;
	t.now = bpf_ktime_get_ns();
	if (is_self() || !tuple_load(&e.tuple, sk) || !tuple_wanted(&e.tuple) || !who_current(&e.head.who) || !who_wanted(&e.head.who)) {
		take(&t);
		return 0;
	}
	if (show_parts)
		t.call = call_began();
	e.head.netns = load_netns(sk);
	if (!show_events) {
		struct packet_key k = {};

		key_fill(&k, &e, sk);
		if (show_parts) {
			count_part(&t, &k, PART_SOFTIRQ);
			count_part(&t, &k, PART_SOCKET);
			count_part(&t, &k, PART_APP);
		} else {
			count_part(&t, &k, PART_ALL);
		}
		take(&t);
		return 0;
	}
	e.latency = waited(&t, 0, PART_ALL);
	e.softirq = waited(&t, 0, PART_SOFTIRQ);
	e.socket = waited(&t, 0, PART_SOCKET);
	e.app = waited(&t, 0, PART_APP);
	e.packets = take(&t);
	if (!latency_wanted(e.latency))
		return 0;
	e.head.ts = t.now;
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
