//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* flows - where the time of each TCP connection goes: see flow.h. */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_GIVES | OWNER_STATE_IN_TOOL | OWNER_ENDS_AT_CLOSE | OWNER_IO_IN_TOOL)
#define OWNER_ON_FOUND(sk) found(sk)
#define OWNER_ON_ACCEPTED(sk) accepted(sk)
struct sock;
static void found(struct sock *sk);
static int accepted(struct sock *sk);
#include "owner.h"
#include "count.h"
#include "flow.h"
#include "hist.h"
#include "tcp.h"

/* Turns are counted by service. Set by Go: services are shown. */
const volatile bool count_turns = false;

/* A connection as it is now, or was at its end. */
struct flow_about {
	__u64 sk;
	__u64 service;
	__u64 born;
	__u64 turns;
	__u64 tx, rx;
	__u32 overlaps;
	__u32 fast, tlp, rto, syn;
	__u32 srtt_us, min_rtt_us;
	__u16 role;
	__u8 older, closed;
};
struct flow_event {
	struct head head;
	struct tuple tuple;
	__u64 part[PARTS];
	struct flow_about about;
};
EVENT(struct flow_event);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, __u64);
	__type(value, struct flow);
} flows SEC(".maps");

/* Turns of one service. Go: turns. Processors whose numbers differ in these bits count in
 * entries of their own, so that they do not wait for each other's cache lines. The number
 * of a service has no such bits. Go: shards.
 */
#define SHARDS 3
struct turns {
	struct hist turn, first; /* microseconds */
};
COUNT_MAP(turns, __u64, struct turns);
const struct turns no_turns = {};

static __always_inline struct flow *flow_of(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct flow *f = bpf_map_lookup_elem(&flows, &key);

	return f && !flow_stale(f, sk) ? f : NULL;
}

const struct flow no_flow = {};

static __always_inline struct flow *flow_new(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	int err = bpf_map_update_elem(&flows, &key, &no_flow, BPF_ANY);

	if (err)
		lose(LOSS_SPAN);
	return bpf_map_lookup_elem(&flows, &key);
}

/* hist_slot without branches: otherwise the verifier walks each of 64 paths. */
static __always_inline __u32 turn_slot(__u64 us)
{
	__u64 bits = us | us >> 1;
	__u32 e, slot;

	bits |= bits >> 2;
	bits |= bits >> 4;
	bits |= bits >> 8;
	bits |= bits >> 16;
	bits |= bits >> 32;
	bits -= bits >> 1 & 0x5555555555555555;
	bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
	e = (bits * 0x0101010101010101 >> 56) - 1;
	if (us < 8)
		return us;
	slot = 8 * (e - 2) + (us >> (e - 3) & 7);
	return slot < HIST_SLOTS ? slot : HIST_SLOTS - 1;
}

/* ns / 1000. Up to 4 s by a multiplication; a division takes ten times as long. */
static __always_inline __u64 micros(__u64 ns)
{
	return ns >> 32 ? ns / 1000 : ns * 274877907 >> 38;
}

/* turn_slot, and the verifier does not know which: see opaque(). The turn is over, so this
 * word of it is free.
 */
static __always_inline __u32 turn_put(struct flow *f, __u64 us)
{
	*(volatile __u64 *)&f->first = turn_slot(us);
	return *(volatile __u64 *)&f->first;
}

static __noinline int turn_count(struct flow *f, __u64 took)
{
	__u64 key = f->service | (bpf_get_smp_processor_id() & SHARDS), us = micros(took), first;
	struct turns *t;

	if (f->overlaps * 10 > f->turns)
		return 0; /* these are not turns */
	t = count_at(COUNTED(turns), &key, &no_turns);
	if (!t)
		return 0;
	if (f->first) {
		first = micros(f->first);
		hist_put_at(&t->first, first, turn_put(f, first));
	}
	hist_put_at(&t->turn, us, turn_put(f, us));
	return 0;
}

static __always_inline __u64 mix(__u64 sum, __u64 word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15;
	return sum ^ sum >> 32;
}

/* A number for the service of sk. Go's struct service distinguishes services by
 * the same fields.
 */
static __noinline __u64 service_of(const struct who *w, const struct tuple *t, __u32 netns, __u32 role)
{
	const __u64 *comm = (const void *)w->comm, *addr = (const void *)t->raddr;
	__u64 sum = mix(mix(mix(mix(1, comm[0]), comm[1]), w->cgroup), netns);

	if (role != ROLE_CLIENT)
		sum = mix(sum, t->lport);
	else
		sum = mix(mix(mix(sum, addr[0]), addr[1]), 1 << 16 | t->rport);
	return (sum & ~(__u64)SHARDS) | (SHARDS + 1); /* never 0 */
}

/* The current process reads from sk or sends on it for the first time: find its
 * service.
 */
static __noinline int flow_reader(struct flow *f, const struct sock *sk)
{
	struct tuple t = {};
	struct who w = {};

	owner_on_io(sk);
	f->service = 0;
	if (!count_turns || !who_current(&w) || !tuple_fill(&t, sk) || !tuple_wanted(&t) || !who_wanted(&w))
		return 0;
	f->service = service_of(&w, &t, sock_netns(sk), f->role);
	return 0;
}

/* The flow of a socket that the current process uses. */
static __always_inline struct flow *flow_used(const struct sock *sk)
{
	struct flow *f = flow_of(sk);
	__u32 pid, program;

	if (!f || (f->state < FLOW_FOUND && f->state != FLOW_QUEUED))
		return NULL;
	program = who_program(&pid);
	if (f->pid != pid || f->program != program) {
		f->pid = pid;
		f->program = program;
		flow_reader(f, sk);
	}
	return f;
}

/* Only for TCP, on all kernels, also for splice: once for each emptied buffer. */
KTRACE(read, tcp_rcv_space_adjust, const struct sock *sk)
{
	struct flow *f = flow_used(sk);

	if (!f)
		return 0;
	if (!FIELD(sk, struct sock, sk_lock.owned)) {
		f->state = FLOW_MUTE; /* kTLS reads in softirq; the application does later */
		return 0;
	}
	return flow_read(f, sk, bpf_ktime_get_ns());
}

KTRACE(retrans, tcp_retransmit_skb, const struct sock *sk)
{
	struct flow *f = flow_of(sk);

	if (f)
		flow_resent(f, sk);
	return 0;
}

KTRACE(recovered, tcp_cong_state_set, const struct sock *sk, __u8 state)
{
	struct flow *f;

	if (state >= CA_RECOVERY)
		return 0;
	f = flow_of(sk);
	if (f)
		flow_recovered(f);
	return 0;
}

/* The rest is for --exact. */

/* The subflow of an MPTCP socket, if there is only one. The kernel itself takes
 * data out of it, so programs on the subflow do not show what the application
 * does: it is mute until the socket is used.
 */
static __noinline __u64 msk_flow(const struct sock *msk)
{
	struct sock *sk = mptcp_first(msk);
	struct flow *f = sk ? flow_of(sk) : NULL;

	if (!f)
		return 0;
	owner_on_io(msk);
	if (f->shared)
		f->state = FLOW_MUTE;
	else if (f->state == FLOW_MUTE)
		f->state = f->older ? FLOW_FOUND : FLOW_RESTING;
	return (__u64)sk;
}

KTRACE(send, sock_send_length, const struct sock *sk, int ret)
{
	struct flow *f;

	if (ret <= 0)
		return 0;
	if (load_proto(sk) == IPPROTO_MPTCP)
		sk = (void *)msk_flow(sk);
	f = flow_used(sk);
	return f ? flow_sent(f, sk, bpf_ktime_get_ns()) : 0;
}

#define MSG_PEEK 2

KTRACE(received, sock_recv_length, const struct sock *sk, int ret, int flags)
{
	const struct sock *first;
	struct flow *f;

	if (ret <= 0 || load_proto(sk) != IPPROTO_MPTCP || flags & MSG_PEEK)
		return 0;
	first = (void *)msk_flow(sk);
	f = flow_used(first);
	if (!f)
		return 0;
	flow_read(f, first, bpf_ktime_get_ns());
	f->arrived = FIELD(sk, struct sock, sk_receive_queue.qlen) ? f->ended : 0;
	return 0;
}

/* Since 6.16: when a send begins, and for each further piece. */
KTRACE(sending, tcp_sendmsg_locked, const struct sock *sk)
{
	struct flow *f = flow_of(sk);

	if (f)
		flow_piece(f, sk);
	return 0;
}

KTRACE(arrival, sk_data_ready, const struct sock *sk)
{
	struct flow *f = flow_of(sk);

	if (f)
		flow_arrived(f);
	return 0;
}

/* The process and the addresses of a connection; false if a filter excludes it. */
static __always_inline bool flow_name(struct head *h, struct tuple *t, const struct sock *sk, __u64 now)
{
	h->ts = now;
	h->netns = sock_netns(sk);
	if (!tuple_fill(t, sk) || !tuple_wanted(t))
		return false;
	owner_get(&h->who, sk);
	return who_wanted(&h->who);
}

/* The socket is locked, so it does not change meanwhile. */
static __always_inline void flow_about(struct flow_about *a, const struct flow *f, const struct sock *sk, int state, const bool locked)
{
	enum tcp_syn syn = f->older ? SYN_GUESS : f->role == ROLE_CLIENT ? SYN_YES : SYN_NO;
	struct tcp_bytes b = {};
	__u32 rtt = tcp_rtt_least(sk);

	a->sk = (__u64)sk;
	a->service = f->service;
	a->born = f->born;
	a->turns = f->turns;
	if (locked) {
		tcp_sent(&b, (void *)sk, state, syn, false);
		b.rx = tcp_received((void *)sk, false);
	} else {
		tcp_bytes_read(&b, (void *)sk, state, syn);
	}
	a->tx = b.tx;
	a->rx = b.rx;
	a->overlaps = f->overlaps;
	a->fast = f->fast;
	a->tlp = f->tlp;
	a->rto = f->rto;
	a->syn = f->syn;
	a->srtt_us = TCP(sk, srtt_us) >> 3;
	a->min_rtt_us = rtt == ~0U ? 0 : rtt;
	a->role = f->role;
	a->older = f->older;
}

/* The connection of sk has ended. */
static __noinline int ended(struct flow *f, const struct sock *sk, int old, __u64 now)
{
	struct tuple tuple = {};
	struct head head = {};
	struct flow_event *e;

	if (!flow_name(&head, &tuple, sk, now))
		return 0;
	e = EVENT_NEW(struct flow_event);
	if (!e)
		return 0;
	e->head = head;
	e->tuple = tuple;
	__builtin_memcpy(e->part, f->part, sizeof(e->part));
	flow_about(&e->about, f, sk, old, true);
	e->about.closed = 1;
	if (!e->about.service)
		e->about.service = service_of(&head.who, &tuple, head.netns, f->role);
	return event_send(e);
}

/* A subflow that joins a connection belongs to the connection's process. It may
 * end after the connection.
 */
static __noinline int subflow_owner(const struct sock *sk, const struct sock *msk)
{
	struct owner o = {};

	if (owner_of(&o.kept.copy[0].who, msk, owner_entry(msk)))
		owner_give(sk, &o);
	return 0;
}

/* Is sk a subflow? Then it does not show what the application does; and if it
 * is not the first one, the first does not either.
 */
static __always_inline void subflow_established(struct flow *f, const struct sock *sk)
{
	struct sock *msk = mptcp_parent(sk), *first;

	if (!msk)
		return;
	first = mptcp_first(msk);
	if (f->role == ROLE_CLIENT)
		f->state = FLOW_MUTE;
	if (!first || first == sk)
		return;
	f->state = FLOW_MUTE; /* nobody accepts it */
	subflow_owner(sk, msk);
	f = flow_of(first);
	if (f)
		f->shared = 1;
}

static __always_inline void flow_state(const struct sock *sk, int old, int new)
{
	struct flow *f;
	__u64 key = (__u64)sk, now;
	enum flow_end how;

	if (new == TCP_SYN_SENT || (new == TCP_SYN_RECV && old == TCP_LISTEN)) {
		if (!sock_wanted(sk))
			return;
		f = flow_new(sk);
		if (!f)
			return;
		f->born = f->mark = bpf_ktime_get_ns();
		f->role = new == TCP_SYN_SENT ? ROLE_CLIENT : ROLE_SERVER;
		if (new == TCP_SYN_SENT)
			f->cookie = sock_cookie(sk); /* of a child it is the request's: see owner_born() */
		f->state = FLOW_OPENING;
		return;
	}
	f = flow_of(sk);
	if (!f)
		return;
	now = bpf_ktime_get_ns();
	if (new == TCP_ESTABLISHED) {
		if (f->state == FLOW_OPENING)
			flow_established(f, sk, now);
		subflow_established(f, sk);
		return;
	}
	if (new != TCP_CLOSE && new != TCP_CLOSE_WAIT && new != TCP_FIN_WAIT1 && new != TCP_LAST_ACK)
		return;
	how = opaque(f, new == TCP_CLOSE ? END_CLOSE : new == TCP_CLOSE_WAIT ? END_PEERS_FIN : END_FIN);
	old = opaque(f, old);
	new = opaque(f, new);
	flow_leave(f, sk, how, now);
	if (new != TCP_CLOSE)
		return;
	if (f->state)
		ended(f, sk, old, now);
	bpf_map_delete_elem(&flows, &key);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u16 proto = load_proto(sk);

	if (owner_state(old, new) && is_owned(proto))
		owner_on_state(sk, old, new);
	if (new != TCP_LISTEN && new != TCP_FIN_WAIT2 && proto == IPPROTO_TCP)
		flow_state(sk, old, new);
	if (new == TCP_CLOSE)
		owner_end(sk);
	return 0;
}

/* A socket that existed before the tool. */
static void found(struct sock *sk)
{
	struct flow *f;
	__u8 state;

	if (sock_proto(sk) != IPPROTO_TCP)
		return;
	state = sock_state(sk);
	if (state == TCP_LISTEN || state == TCP_CLOSE || state == TCP_SYN_SENT || state == TCP_TIME_WAIT || !sock_wanted(sk) || flow_of(sk))
		return;
	f = flow_new(sk);
	if (!f)
		return;
	flow_found(f, sk, bpf_ktime_get_ns());
	if (mptcp_parent(sk))
		f->state = FLOW_MUTE;
}

/* accept(2) has returned sk, an IP socket that is TCP's or MPTCP's. */
static __noinline int accepted(struct sock *sk)
{
	bool mute = sock_proto(sk) == IPPROTO_MPTCP;
	struct flow *f;

	if (mute)
		sk = mptcp_first(sk);
	if (!sk)
		return 0;
	f = flow_of(sk);
	if (!f) {
		found(sk);
	} else if (f->state == FLOW_QUEUED) {
		flow_charge(f, PART_ACCEPT, bpf_ktime_get_ns());
		f->state = mute ? FLOW_MUTE : FLOW_RESTING;
	}
	return 0;
}

/* Do the parts add up? Not if they changed while they were copied. */
static __always_inline bool whole(const struct flow *f)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < PARTS; i++)
		sum += f->part[i];
	return sum == f->mark - f->born;
}

/* The first part of a row. Returns its service; 0: a filter excludes the row. */
static __noinline __u64 walk_name(struct seq_file *seq, __u64 service, __u32 role, const struct sock *sk, __u64 now)
{
	struct {
		struct head head;
		struct tuple tuple;
	} n = {};

	if (!flow_name(&n.head, &n.tuple, sk, now))
		return 0;
	bpf_seq_write(seq, &n, sizeof(n));
	return service ? service : service_of(&n.head.who, &n.tuple, n.head.netns, role);
}

/* The times of a copy that is charged up to now. */
static __noinline int walk_parts(struct seq_file *seq, const struct flow *live, const struct sock *sk, __u64 now)
{
	struct flow f;

	for (int i = 0; i < 3; i++) {
		f = *live;
		asm volatile("" : : "r"(&f) : "memory");
		if (whole(&f))
			break;
	}
	flow_settle(&f, sk, flow_unread(&f, sk), now, true);
	bpf_seq_write(seq, f.part, sizeof(f.part));
	return 0;
}

static __noinline int walk_about(struct seq_file *seq, const struct flow *live, __u64 service, const struct sock *sk, int state)
{
	struct flow_about a = {};

	flow_about(&a, live, sk, state, false);
	a.service = service;
	bpf_seq_write(seq, &a, sizeof(a));
	return 0;
}

/* Every connection as it is now. The time since its last event counts for the part
 * that it seems to be in. A row is written in pieces: it is too large for the stack.
 */
SEC("iter/bpf_map_elem") int walk__iter__flows(struct bpf_iter__bpf_map_elem *ctx)
{
	const struct flow *live = ctx->value;
	struct seq_file *seq = ctx->meta->seq;
	__u64 *key = ctx->key, now, service;
	const struct sock *sk;
	__u8 state;

	if (!key || !live)
		return 0;
	sk = (void *)*key;
	state = sock_state(sk);
	if (!live->state || flow_stale(live, sk) || state == TCP_CLOSE)
		return 0;
	now = bpf_ktime_get_ns();
	service = walk_name(seq, live->service, live->role, sk, now);
	if (!service)
		return 0;
	walk_parts(seq, live, sk, now);
	return walk_about(seq, live, service, sk, state);
}
