//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* pending - what hangs now, and since when.
 *
 * A walk over the open files of all processes looks at each TCP socket. Its
 * sequence numbers say what it waits for, and TCP's own timestamps since when. So
 * operations that began to hang before the tool are seen too, and nothing is
 * slower between walks. DNS queries leave no timestamps; they are seen in packets.
 */
#include "dnsquery.h"
#include "fd.h"
#include "mptcp.h"
#include "room.h"
#include "span.h"
#include "syscall.h"
#include "tcptime.h"
#include "who.h"

/* Go: what. */
enum what {
	ASKER,	 /* no row: a socket that may ask a name server is still there */
	CONNECT, /* the SYN has no answer */
	LOOKUP,	 /* the query has none. Made by Go */
	QUEUED,	 /* nobody accepts the connection */
	SILENT,	 /* it was accepted, and neither side has sent anything */
	REQUEST, /* its answer has not begun */
	UNREAD,	 /* the program does not read */
	BLOCKED, /* a writer waits for room */
	ACCEPT,	 /* a call waits for somebody to connect */
};

struct hang {
	struct head head;
	struct tuple tuple;
	__u64 sk;
	__u64 age;   /* nanoseconds */
	__u64 bytes; /* NONE: it is not about data */
	__u64 count; /* connections in the queue; NONE: it is not about one */
	__u64 name;  /* for Go to fill in, as holders and last */
	__u32 sent, received; /* sequence numbers: how far both sides are */
	__u32 holders, last;
	__u16 retries;
	__u8 unsure; /* of a request: it may have been answered */
	__u8 pad;
	__u16 what;
	__u8 usual;  /* healthy machines have these too: for --all */
	__u8 hidden; /* filters leave it out */
};
EVENT(struct hang);

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct list_head {
	struct list_head *next;
};
struct wait_queue_head {
	struct list_head head;
};
typedef struct wait_queue_head wait_queue_head_t;
struct socket_wq {
	wait_queue_head_t wait;
};
struct sock___waited {
	struct socket_wq *sk_wq;
};
struct request_sock___queued {
	struct sock *sk;
};
struct request_sock_queue___list {
	struct request_sock___queued *rskq_accept_head;
};
struct inet_connection_sock___list {
	struct request_sock_queue___list icsk_accept_queue;
};
struct tcp_sock___stamps {
	__u32 retrans_stamp; /* while connecting: when the first SYN left */
	__u32 snd_wl1;	     /* sequence number of the segment that last updated the window */
	__u32 rcv_tstamp;    /* jiffies: the last ACK */
	__u64 tcp_mstamp;    /* microseconds: the last packet */
	struct {
		__u64 time; /* microseconds: until something is read, when the connection was established */
	} rcvq_space;
};
struct tcp_sock___since67 {
	__u8 tcp_usec_ts : 1; /* retrans_stamp is in microseconds */
};
#pragma clang attribute pop

#define STAMP(sk, field) BPF_CORE_READ((struct tcp_sock___stamps *)(sk), field)

/* What a walk found at a socket. */
struct look {
	__u64 now;
	__u64 age, blocked; /* NONE: it is not */
	__u32 bytes;
	__u16 what; /* 0: nothing besides a writer */
	__u8 usual, unsure;
};

static __always_inline __u64 since(__u64 now, __u64 then)
{
	return now > then ? now - then : 0;
}

static __always_inline __u64 connect_age(const struct sock *sk, __u64 now)
{
	const struct tcp_sock___since67 *tp = (void *)sk;
	__u32 stamp = STAMP(sk, retrans_stamp);

	if (bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD_PROBED(tp, tcp_usec_ts))
		return (__u32)((__u32)(now / 1000) - stamp) * 1000ULL;
	return (__u32)((__u32)(now / 1000000) - stamp) * 1000000ULL;
}

/* Does somebody wait for data of the socket? An epoll that has it counts too. */
static __always_inline bool awaited(const struct sock *sk)
{
	struct socket_wq *wq = BPF_CORE_READ((struct sock___waited *)sk, sk_wq);

	return wq && BPF_CORE_READ(wq, wait.head.next) != &wq->wait.head;
}

enum answered { ANSWERED, UNANSWERED, UNSURE };

/* Has something come since the client last sent? Both stamps are in jiffies. If they
 * are equal, the number of the last segment that acknowledged something decides: for an
 * answer it is before its data, for a bare ACK behind all data. It is also behind them
 * for the answer to a keepalive probe and for a window update: then it is not known.
 */
static __always_inline enum answered is_answered(const struct sock *sk, __u8 state, __u64 now)
{
	__s32 later = TCP(sk, lsndtime) - FIELD(sk, struct inet_connection_sock, icsk_ack.lrcvtime);
	__u64 delivered, acked;

	if (!TCP(sk, bytes_sent))
		return ANSWERED;
	if (later > 0 || !TCP(sk, bytes_received))
		return UNANSWERED;
	if (later < 0)
		return ANSWERED;
	if (state == TCP_ESTABLISHED && TCP(sk, write_seq) != TCP(sk, snd_una))
		return UNANSWERED;
	if (STAMP(sk, snd_wl1) != TCP(sk, rcv_nxt))
		return ANSWERED;
	/* By the clock, nothing has come since the ACK of the request. */
	if (STAMP(sk, tcp_mstamp) == TCP(sk, delivered_mstamp))
		return UNANSWERED;
	delivered = since(now, TCP(sk, delivered_mstamp) * 1000);
	acked = ((__u32)bpf_jiffies64() - STAMP(sk, rcv_tstamp)) * tick_ns;
	return delivered < acked + 2 * tick_ns ? UNANSWERED : UNSURE;
}

/* When the request left. The rate timestamp is that of its last delivered
 * segment or, if none was, of the first one; a FIN resets it.
 */
static __always_inline __u64 request_age(const struct sock *sk, __u64 now)
{
	__u64 age = since(now, TCP(sk, first_tx_mstamp) * 1000);
	__u64 counted = ((__u32)bpf_jiffies64() - TCP(sk, lsndtime)) * tick_ns;

	return counted > age + 2 * tick_ns ? counted : age;
}

static __noinline int look_at(struct look *l, const struct sock *sk)
{
	__u8 state = sock_state(sk);
	enum answered answered;
	__s32 unread;

	if (!l)
		return 0;
	if (state == TCP_SYN_SENT) {
		l->what = CONNECT;
		l->age = connect_age(sk, l->now);
		return 0;
	}
	if (state != TCP_ESTABLISHED && state != TCP_CLOSE_WAIT && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2)
		return 0;
	unread = tcp_data_end(sk) - TCP(sk, copied_seq);
	if (unread > 0) {
		l->what = UNREAD;
		l->age = since(l->now, tcp_arrival(sk, l->now));
		l->bytes = unread;
		l->usual = state == TCP_CLOSE_WAIT; /* the peer has gone: nobody waits */
	} else if (FIELD(sk, struct sock, sk_max_ack_backlog)) { /* a listener's child */
		if (state == TCP_ESTABLISHED && !TCP(sk, bytes_received) && !TCP(sk, bytes_sent)) {
			l->what = SILENT;
			l->age = since(l->now, STAMP(sk, rcvq_space.time) * 1000);
		}
	} else if (state != TCP_CLOSE_WAIT && (answered = is_answered(sk, state, l->now)) != ANSWERED) {
		l->what = REQUEST;
		l->age = request_age(sk, l->now);
		l->usual = !awaited(sk);
		l->unsure = answered == UNSURE;
	}
	/* Since when the peer has taken nothing. */
	if ((state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT) && sock_lacks_room(sk))
		l->blocked = since(l->now, TCP(sk, delivered_mstamp) * 1000);
	if (l->blocked != NONE && l->what == REQUEST)
		l->what = 0; /* it is not written yet */
	return 0;
}

static __always_inline bool wanted(const struct hang *h)
{
	__u32 proto = h->tuple.proto;

	if (filter_on & FILTER_PROTO && !bpf_map_lookup_elem(&filter_protos, &proto))
		return false;
	return netns_wanted(h->head.netns) && family_wanted(h->tuple.family) && tuple_wanted(&h->tuple) && who_wanted(&h->head.who);
}

static __always_inline void write(struct seq_file *seq, struct hang *h, enum what what, __u64 age, __u64 bytes)
{
	h->what = what;
	h->age = age;
	h->bytes = bytes;
	bpf_seq_write(seq, h, sizeof(*h));
}

/* The process and the addresses of a socket. */
static __always_inline void name(struct hang *h, const struct sock *sk, struct task_struct *task, __u64 now)
{
	h->head.ts = now;
	h->head.netns = sock_netns(sk);
	h->sk = (__u64)sk;
	h->count = NONE;
	tuple_fill(&h->tuple, sk);
	who_task(&h->head.who, task);
}

/* A connection of task, with its TCP socket flow. */
static __noinline int tell(struct seq_file *seq, struct task_struct *task, const struct sock *sk, const struct sock *flow, struct look *l)
{
	struct hang h = {};

	if (!l)
		return 0;
	name(&h, sk, task, l->now);
	h.hidden = !wanted(&h);
	h.sent = TCP(flow, write_seq);
	h.received = TCP(flow, copied_seq);
	h.retries = FIELD(flow, struct inet_connection_sock, icsk_retransmits);
	h.usual = l->usual;
	h.unsure = l->unsure;
	if (l->what)
		write(seq, &h, l->what, l->age, l->what == UNREAD ? l->bytes : l->what == REQUEST ? h.sent - TCP(flow, snd_una) : NONE);
	h.usual = h.unsure = 0;
	if (l->blocked != NONE)
		write(seq, &h, BLOCKED, l->blocked, h.sent - TCP(flow, snd_una));
	return 0;
}

/* A listener, and the connection that has waited longest in its queue. */
static __noinline int tell_queue(struct seq_file *seq, struct task_struct *task, const struct sock *sk, const struct sock *flow)
{
	struct request_sock___queued *first = BPF_CORE_READ((struct inet_connection_sock___list *)flow, icsk_accept_queue.rskq_accept_head);
	const struct sock *child = first ? BPF_CORE_READ(first, sk) : NULL;
	__u64 now = bpf_ktime_get_ns();
	struct hang h = {};
	__u64 came;

	if (!child)
		return 0;
	name(&h, child, task, now);
	/* It may have been accepted meanwhile, and more than that. */
	came = STAMP(child, rcvq_space.time) * 1000;
	if (!came || BPF_CORE_READ(child, sk_socket) || h.tuple.lport != bpf_ntohs(FIELD(flow, struct inet_sock, inet_sport)))
		return 0;
	h.sk = (__u64)sk;
	h.count = FIELD(flow, struct sock, sk_ack_backlog);
	h.hidden = !wanted(&h);
	write(seq, &h, QUEUED, since(now, came), NONE);
	return 0;
}

/* Is this a socket that may have asked a name server? */
static __always_inline bool may_ask(const struct sock *sk)
{
	__u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	return any_queries && sock_cookie(sk) && (port == bpf_htons(DNS_PORT) || (!port && sock_proto(sk) == IPPROTO_UDP));
}

/* By itself, for the stack. */
static __noinline int tell_asker(struct seq_file *seq, const struct sock *sk)
{
	struct hang h = { .what = ASKER };

	h.tuple.sock = sock_cookie(sk);
	bpf_seq_write(seq, &h, sizeof(h));
	return 0;
}

SEC("iter/task_file") int walk__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct look l = { .blocked = NONE };
	struct sock *sk, *flow;
	__u16 proto;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk || !is_inet(sock_family(sk)) || BPF_CORE_READ(task, tgid) == filter_self)
		return 0;
	if (may_ask(sk))
		tell_asker(ctx->meta->seq, sk);
	proto = sock_proto(sk);
	if (proto != IPPROTO_TCP && proto != IPPROTO_MPTCP)
		return 0;
	flow = mptcp_flow(sk);
	if (!flow)
		return 0;
	if (sock_state(flow) == TCP_LISTEN)
		return tell_queue(ctx->meta->seq, task, sk, flow);
	/* The subflows do not show what an MPTCP socket has read and sent. */
	if (proto == IPPROTO_MPTCP && sock_state(flow) != TCP_SYN_SENT)
		return 0;
	l.now = bpf_ktime_get_ns();
	look_at(&l, flow);
	return l.what || l.blocked != NONE ? tell(ctx->meta->seq, task, sk, flow, &l) : 0;
}

/* --all: calls of accept, by thread. */
struct call {
	struct sock *sk;
	__u64 since;
};
SPAN(accepts, __u64, struct call);

static __noinline int accept_begins(int fd)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call c = { .sk = fd_sock(fd), .since = bpf_ktime_get_ns() };

	if (c.sk && is_inet(sock_family(c.sk)))
		span_begin(&accepts, &thread, &c);
	return 0;
}

static __noinline int accept_ends(void)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&accepts, &thread);
	return 0;
}

SYS_ENTER(call, accept)
{
	return accept_begins(a0);
}

SYS_EXIT(call, accept)
{
	return accept_ends();
}

SYS_ENTER(call, accept4)
{
	return accept_begins(a0);
}

SYS_EXIT(call, accept4)
{
	return accept_ends();
}

SEC("iter/task") int accepts__iter(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u64 thread, now = bpf_ktime_get_ns();
	const struct call *c;
	struct hang h = {};

	if (!task)
		return 0;
	thread = (__u64)BPF_CORE_READ(task, tgid) << 32 | BPF_CORE_READ(task, pid);
	c = bpf_map_lookup_elem(&accepts, &thread);
	if (!c || thread >> 32 == filter_self)
		return 0;
	name(&h, c->sk, task, now);
	h.sk = thread;
	h.usual = 1;
	h.hidden = !wanted(&h);
	write(ctx->meta->seq, &h, ACCEPT, since(now, c->since), NONE);
	return 0;
}

/* The query has an answer, or will not get one. */
static __noinline int query_ends(struct query_key *k)
{
	if (k)
		bpf_map_delete_elem(&queries, k);
	return 0;
}

static __noinline int answered(struct dns *d)
{
	struct query_key k = {};

	if (!d)
		return 0;
	query_key(&k, d);
	return query_ends(&k);
}

SEC("cgroup_skb/ingress") int answer__cgroup(struct __sk_buff *skb)
{
	struct dns d = {};

	if (!dns_packet(&d, skb, false))
		return CGROUP_ALLOW;
	DNS_MESSAGES(&d, skb, false)
		answered(&d);
	return CGROUP_ALLOW;
}
