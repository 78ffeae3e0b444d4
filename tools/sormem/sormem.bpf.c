//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sormem - how full receive buffers are, and which overflow.
 *
 * The fill is read when data arrive, or before they are copied to the program;
 * after the copy the buffer is empty. The buffer of a TCP receiver that does
 * not read does not overflow: its window goes to zero.
 */
#define OWNER_OPTIONS OWNER_ALL
#define OWNER_FIELDS __u64 raw_drops; /* of a raw socket, that have been told */
#define OWNER_FILL(own, sk) ((own)->raw_drops = sock_drops(sk))
#include "cgroup.h"
#include "count.h"
#include "hist.h"
#include "owner.h"
#include "span.h"

const volatile bool show_send = false;

enum mem_reason { MEM_UDP, MEM_QUEUE, MEM_PROTO, MEM_ZERO, MEM_PRUNE, MEM_DROP }; /* Go: reason */
enum { KIND_SEND, KIND_RECV }; /* as the kernel has them */

/* A value is large: no more than four processors have one of their own. */
#define SHARDS 3

struct mem_key {
	__u32 pid, uid;
	__u16 metric; /* 0: an entry has all metrics, and Go makes a row of each */
	__u16 cpu;    /* so that processors do not write to the same memory: Snapshot.Fold */
	__u16 lport, proto;
	char comm[16];
};
enum key_bits { KEY_pid, KEY_uid, KEY_metric, KEY_lport, KEY_proto, KEY_comm };
KEEP_ENUM(enum key_bits);
#define KEY_WHO (1ULL << KEY_pid | 1ULL << KEY_uid | 1ULL << KEY_comm)
#define KEY_TUPLE (1ULL << KEY_lport | 1ULL << KEY_proto)

struct mem_value {
	struct hist alloc, limit, ratio;
};
static const struct mem_value mem_zero = {};

COUNT_MAP(fills, struct mem_key, struct mem_value);

struct mem_event {
	struct head head;
	struct tuple tuple;
	__u64 used, limit, ratio; /* bytes, bytes, per cent */
	__u64 drops; /* packets, where they are known later; else 1 */
	__u32 reason;
	__u32 dir; /* KIND_* */
};
EVENT(struct mem_event);
#define VIEW_OVERFLOW 1

/* typed: LOAD can read sk. */
static __always_inline int filled(const struct sock *sk, bool typed)
{
	struct mem_key k = {};
	struct tuple t = {};
	struct who who = {};
	struct mem_value *v;
	__u64 used, limit;

	/* A listener receives connections, and a subflow data of its connection. */
	if (!sock_wanted(sk) || READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return 0;
	if (READ(sk, sk_protocol) == IPPROTO_TCP && is_inet(READ(sk, __sk_common.skc_family)) && mptcp_parent(sk))
		return 0;
	if (key_mask & KEY_TUPLE || filter_on & FILTER_TUPLE) {
		tuple_from(&t, sk, typed);
		if (!tuple_wanted(&t))
			return 0;
	}
	if (key_mask & KEY_WHO || filter_on & FILTER_WHO) {
		owner_get(&who, sk);
		if (!who_wanted(&who))
			return 0;
	}
	k.cpu = bpf_get_smp_processor_id() & SHARDS;
	if (KEY_WANTS(pid))
		k.pid = who.pid;
	if (KEY_WANTS(uid))
		k.uid = who.uid;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, who.comm, sizeof(k.comm));
	if (KEY_WANTS(lport))
		k.lport = t.lport;
	if (KEY_WANTS(proto))
		k.proto = t.proto;
	used = (__u32)READ(sk, sk_backlog.rmem_alloc.counter);
	limit = (__u32)READ(sk, sk_rcvbuf);
	v = count_at(COUNTED(fills), &k, &mem_zero);
	if (!v)
		return 0;
	hist_put(&v->alloc, used);
	hist_put(&v->limit, limit);
	if (limit)
		hist_put(&v->ratio, used * 100 / limit);
	return 0;
}

KTRACE(arrival, sk_data_ready, const struct sock *sk)
{
	return filled(sk, true);
}

KFUNC(receive, sock_recvmsg, struct socket *sock)
{
	return filled(BPF_CORE_READ(sock, sk), false);
}

static __noinline int reading(int fd)
{
	struct sock *sk = fd_sock(fd);

	return sk ? filled(sk, false) : 0;
}

#define READING(call)                                                          \
	SYS_ENTER(reading, call)                                               \
	{                                                                      \
		return reading(a0);                                            \
	}
READING(read)
READING(readv)
READING(recvfrom)
READING(recvmsg)
READING(recvmmsg)

static __noinline int overflows(const struct sock *sk, enum mem_reason reason, int kind, __u64 drops)
{
	struct mem_event *e;
	struct tuple t = {};
	struct who who = {};

	if (!sk || !sock_wanted(sk))
		return 0;
	tuple_fill(&t, sk);
	if (!tuple_wanted(&t))
		return 0;
	owner_get(&who, sk);
	if (!who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct mem_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.view = VIEW_OVERFLOW;
	e->head.netns = sock_netns(sk);
	e->head.who = who;
	e->tuple = t;
	if (kind == KIND_SEND) {
		e->used = (__u32)BPF_CORE_READ(sk, sk_wmem_queued);
		e->limit = (__u32)BPF_CORE_READ(sk, sk_sndbuf);
	} else {
		e->used = (__u32)BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter);
		e->limit = (__u32)BPF_CORE_READ(sk, sk_rcvbuf);
	}
	e->ratio = e->limit ? e->used * 100 / e->limit : NONE;
	e->drops = drops;
	e->reason = reason;
	e->dir = kind;
	return event_send(e);
}

static __always_inline int overflow(const struct sock *sk, enum mem_reason reason, int kind)
{
	return overflows(sk, reason, kind, 1);
}

/* Newer kernels check for room before they hand a packet to a raw socket, and
 * no hook fires if there is none. The drop shows when the next packet is kept,
 * or at the end.
 */
static __always_inline bool is_raw(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_type) == SOCK_RAW && is_inet(sock_family(sk));
}

/* Record the drops of a raw socket so far; false: it has no entry. */
static __always_inline bool raw_known(const struct sock *sk, __u32 *before)
{
	struct owner_own *own = owner_has(OWNER_SHARED) ? owner_own_entry(sk) : owner_own_in(owner_entry(sk));

	if (!own || (own->cookie && own->cookie != sock_cookie(sk)))
		return false;
	*before = own->raw_drops;
	own->raw_drops = sock_drops(sk);
	return true;
}

static __noinline int raw_look(const struct sock *sk)
{
	__u32 drops = sock_drops(sk), before = 0;

	if (!raw_known(sk, &before)) {
		if (drops) /* how many of them are new, nobody knows */
			lose(LOSS_SPAN);
		return 0;
	}
	return drops != before ? overflows(sk, MEM_QUEUE, KIND_RECV, drops - before) : 0;
}

KTRACE(rawlook, sk_data_ready, const struct sock *sk)
{
	return LOAD(sk, sk_type) == SOCK_RAW && is_raw(sk) ? raw_look(sk) : 0;
}

SEC("cgroup/sock_release") int rawend__cgroup(struct cgroup_sk *ctx)
{
	if (ctx->type == SOCK_RAW)
		raw_look(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

KTRACE(udp, udp_fail_queue_rcv_skb, int rc, const struct sock *sk)
{
	return overflow(sk, MEM_UDP, KIND_RECV);
}

KTRACE(queue, sock_rcvqueue_full, const struct sock *sk)
{
	__u32 before;

	if (is_raw(sk))
		raw_known(sk, &before); /* told from here */
	return overflow(sk, MEM_QUEUE, KIND_RECV);
}

KTRACE(memory, sock_exceed_buf_limit, const struct sock *sk, void *prot, long allocated, int kind)
{
	return kind == KIND_RECV || show_send ? overflow(sk, MEM_PROTO, kind) : 0;
}

/* Receivers with a closed window: one row until it opens. */
SPAN_OF(shut, __u64, __u8, 4096);
__u64 shut_count = 0;

/* Each segment that comes, before it is processed. A sender that sees a zero
 * window probes it again and again.
 */
KTRACE(window, tcp_probe, const struct sock *sk)
{
	__u64 key = (__u64)sk;
	__u8 one = 1;
	int err;

	if (FIELD(sk, struct tcp_sock, rcv_wnd)) {
		if (shut_count)
			span_end_counted(&shut, &key, &shut_count);
		return 0;
	}
	err = bpf_map_update_elem(&shut, &key, &one, BPF_NOEXIST);
	if (!err) {
		__sync_fetch_and_add(&shut_count, 1);
		return overflow(sk, MEM_ZERO, KIND_RECV);
	}
	if (err != -17 /* EEXIST */)
		lose(LOSS_SPAN);
	return 0;
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (shut_count)
		span_end_counted(&shut, &key, &shut_count);
	return 0;
}

KFUNC(prune, tcp_prune_queue, const struct sock *sk)
{
	return overflow(sk, MEM_PRUNE, KIND_RECV);
}

enum skb_drop_reason___mem {
	SKB_DROP_REASON_PROTO_MEM___mem,
	SKB_DROP_REASON_TCP_OFO_QUEUE_PRUNE___mem,
};

/* Segments dropped for lack of room: before 6.11 the socket is not known. */
KTRACE(drop, kfree_skb, void *skb, void *location, int why, const struct sock *sk)
{
	bool mem, prune;

	if (!sk || sock_proto(sk) != IPPROTO_TCP || !is_inet(sock_family(sk)))
		return 0;
	mem = bpf_core_enum_value_exists(enum skb_drop_reason___mem, SKB_DROP_REASON_PROTO_MEM___mem) &&
	      why == bpf_core_enum_value(enum skb_drop_reason___mem, SKB_DROP_REASON_PROTO_MEM___mem);
	prune = bpf_core_enum_value_exists(enum skb_drop_reason___mem, SKB_DROP_REASON_TCP_OFO_QUEUE_PRUNE___mem) &&
		why == bpf_core_enum_value(enum skb_drop_reason___mem, SKB_DROP_REASON_TCP_OFO_QUEUE_PRUNE___mem);
	return mem || prune ? overflow(sk, MEM_DROP, KIND_RECV) : 0;
}
