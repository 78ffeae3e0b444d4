//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sockets - all sockets of all network namespaces.
 *
 * A walk over the open files of all processes finds each socket with its owner. The tcp and udp
 * iterators, run in each network namespace, find sockets that no process has open.
 */
#include "fd.h"
#include "mptcp.h"
#include "sockopt.h"
#include "tcp.h"
#include "tcptime.h"
#include "unix.h"
#include "who.h"

/* Fields that only this tool reads. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct tcp_sock___wait {
	__u32 retrans_stamp; /* in SYN_SENT: the time of the first SYN */
	__u8 tcp_usec_ts : 1;
};
struct request_sock___wait {
	struct sock *sk;
};
struct request_sock_queue___wait {
	struct request_sock___wait *rskq_accept_head;
};
struct inet_connection_sock___wait {
	struct request_sock_queue___wait icsk_accept_queue;
};
struct sock___mark {
	__u32 sk_mark;
};
#pragma clang attribute pop

struct sock_main {
	struct head head;
	struct tuple tuple;
	__u64 sk;
	__u64 inode, peer_inode; /* 0: none */
	__u64 fd;
	__u32 rcvbuf, sndbuf; /* 0: none */
	__u32 drops;
	__u32 holders, last; /* Go fills in these two and the peer */
	__u32 peer_pid;
	char peer_comm[16];
	__u16 type; /* SOCK_* */
	__u8 state;
	__u8 hidden; /* a filter leaves it out; it is kept as a possible peer of a socket that is shown */
	__u32 options; /* OPT_* */
	__u32 ifindex; /* of SO_BINDTODEVICE */
	__u32 mark;
};

/* NONE: the socket does not have this figure. */
struct sock_figures {
	__u64 rx_queue, tx_queue;
	__u64 backlog, backlog_max;
	__u64 tx, rx;
	__u64 sent, received; /* ms ago */
	__u64 waiting;	      /* ms */
	__u64 srtt_us, cwnd, retrans;
	char cc[16]; /* congestion control */
};

/* A further process that has a socket open. Go fills it in. */
struct sock_holder {
	__u32 pid;
	char comm[16];
};
#define HOLDERS 3

/* The record that iterators write, in three parts: the BPF stack is too small for the whole. */
struct sock_entry {
	struct sock_main main;
	struct sock_figures figures;
	char path[108];
	struct sock_holder also[HOLDERS];
	__u64 age;    /* Go fills in all fields after the path */
	__u32 change; /* Go: change */
	__u32 pad;
};
EVENT(struct sock_entry);

static __always_inline __u64 sock_inode(const struct sock *sk)
{
	const struct socket *socket = FIELD(sk, struct sock, sk_socket);
	const struct file *file = socket ? FIELD(socket, struct socket, file) : NULL;
	const struct inode *inode = file ? FIELD(file, struct file, f_inode) : NULL;

	return inode ? FIELD(inode, struct inode, i_ino) : 0;
}

static __always_inline __u64 ago_ms(__u32 jiffies)
{
	__s32 ago = (__u32)bpf_jiffies64() - jiffies;

	return ago > 0 ? ago * tick_ns / 1000000 : 0;
}

/* The time since the first SYN. Its stamp is in microseconds if a route says so (6.7). */
static __always_inline __u64 syn_ms(const struct sock *sk)
{
	const struct tcp_sock___wait *tp = (void *)sk;
	__u32 now = bpf_ktime_get_ns() / 1000, us = 0;

	if (bpf_core_field_exists(tp->tcp_usec_ts) && BPF_CORE_READ_BITFIELD_PROBED(tp, tcp_usec_ts)) {
		us = now - BPF_CORE_READ(tp, retrans_stamp);
		return us / 1000;
	}
	now = bpf_ktime_get_ns() / 1000000;
	return now - BPF_CORE_READ(tp, retrans_stamp);
}

/* The time since the peer last acknowledged data, or since data were first in flight again. If no
 * data are in flight, the peer's window is closed: the time since then, or since data wait for it.
 */
static __always_inline __u64 unacked_ms(const struct sock *sk)
{
	__u64 now = bpf_ktime_get_ns(), at = TCP(sk, delivered_mstamp) * 1000;
	__u64 acked = at < now ? (now - at) / 1000000 : 0, since; /* pacing stamps what leaves later */

	if (TCP(sk, packets_out) || !BPF_CORE_READ_BITFIELD_PROBED((struct tcp_sock *)sk, chrono_type))
		return acked;
	since = ago_ms(TCP(sk, chrono_start));
	return since < acked ? since : acked;
}

/* The age of the oldest connection that waits for accept: its lsndtime is its start. */
static __always_inline __u64 unaccepted_ms(const struct sock *sk)
{
	struct sock *child = BPF_CORE_READ((struct inet_connection_sock___wait *)sk, icsk_accept_queue.rskq_accept_head, sk);

	return child ? ago_ms(TCP(child, lsndtime)) : NONE;
}

/* tcp_bytes_read, by plain loads where the kernel has them and the socket does not change meanwhile. */
static __always_inline void bytes_read(struct tcp_bytes *b, const struct tcp_sock *tp, __u8 state)
{
	if (typed_any) {
		const struct tcp_sock *typed = AS(tp, struct tcp_sock);
		__u32 una = typed->snd_una;

		tcp_bytes_load(b, typed, state, SYN_GUESS);
		if (sock_state((void *)tp) == state && typed->snd_una == una)
			return;
	}
	tcp_bytes_read(b, tp, state, SYN_GUESS);
}

static __always_inline void of_tcp(struct sock_figures *f, const struct sock *sk, __u8 state)
{
	const struct tcp_sock *tp = (void *)sk;
	struct tcp_bytes b = {};
	__s32 unread;

	if (state == TCP_CLOSE)
		return;
	bytes_read(&b, tp, state);
	f->tx = b.tx;
	f->rx = b.rx;
	unread = TCP(tp, rcv_nxt) - TCP(tp, copied_seq);
	f->rx_queue = unread > 0 ? unread : 0;
	f->tx_queue = TCP(tp, write_seq) - TCP(tp, snd_una);
	f->srtt_us = TCP(tp, srtt_us) >> 3;
	f->cwnd = TCP(tp, snd_cwnd);
	f->retrans = TCP(tp, total_retrans);
	if (b.tx)
		f->sent = ago_ms(TCP(tp, lsndtime));
	if (b.rx)
		f->received = ago_ms(TCP(tp, inet_conn.icsk_ack.lrcvtime));
	BPF_CORE_READ_STR_INTO(&f->cc, tp, inet_conn.icsk_ca_ops, name);
	if (state == TCP_SYN_SENT)
		f->waiting = syn_ms(sk);
	else if (f->tx_queue)
		f->waiting = unacked_ms(sk);
	/* Take the longer wait. */
	if (f->rx_queue && f->received != NONE && (f->waiting == NONE || f->waiting < f->received))
		f->waiting = f->received;
}

static __always_inline void of_memory(struct sock_figures *f, const struct sock *sk, __u16 proto)
{
	__s32 rx = BPF_CORE_READ(sk, sk_backlog.rmem_alloc.counter);

	if (proto == IPPROTO_UDP) /* what was read and not given back yet */
		rx -= BPF_CORE_READ((struct udp_sock *)sk, forward_deficit);
	f->rx_queue = rx > 0 ? rx : 0;
	f->tx_queue = BPF_CORE_READ(sk, sk_wmem_alloc.refs.counter) - 1; /* the socket itself is one */
}

enum kind { OTHER, MINI, TCP, PACKETS };

/* A function of its own, because the BPF stack is too small for all parts. */
static __noinline int figures_write(struct seq_file *seq, const struct sock *sk, __u8 state, enum kind kind)
{
	struct sock_figures f = {};

	f.rx_queue = f.tx_queue = f.backlog = f.backlog_max = NONE;
	f.tx = f.rx = f.sent = f.received = f.waiting = NONE;
	f.srtt_us = f.cwnd = f.retrans = NONE;
	if (kind == MINI) {
		f.rx_queue = f.tx_queue = 0;
	} else if (state == TCP_LISTEN) {
		const struct sock *l = sock_proto(sk) == IPPROTO_MPTCP && kind != OTHER ? mptcp_first(sk) : sk;

		f.backlog_max = BPF_CORE_READ(l, sk_max_ack_backlog);
		if (kind != OTHER) /* that of UNIX is the length of another list */
			f.backlog = BPF_CORE_READ(l, sk_ack_backlog);
		if (kind == TCP && f.backlog)
			f.waiting = unaccepted_ms(sk);
	} else if (kind == TCP) {
		of_tcp(&f, sk, state);
	} else if (kind == PACKETS) {
		of_memory(&f, sk, sock_proto(sk));
	}
	bpf_seq_write(seq, &f, sizeof(f));
	return 0;
}

static __noinline int path_write(struct seq_file *seq, const struct sock *sk, __u16 family)
{
	char path[sizeof(struct sock_entry) - __builtin_offsetof(struct sock_entry, path)] = {};

	if (family == AF_UNIX)
		unix_path(path, sk);
	bpf_seq_write(seq, path, sizeof(path));
	return 0;
}

static __always_inline bool wanted(const struct sock_main *e)
{
	__u32 proto = e->tuple.proto;

	if (filter_on & FILTER_PROTO && !bpf_map_lookup_elem(&filter_protos, &proto))
		return false;
	return netns_wanted(e->head.netns) && family_wanted(e->tuple.family) && tuple_wanted(&e->tuple) &&
	       who_wanted(&e->head.who);
}

static __always_inline void begin(struct sock_main *e, const struct sock *sk)
{
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->sk = (__u64)sk;
	e->fd = NONE;
	e->state = sock_state(sk);
	e->type = SOCK_STREAM;
}

/* A full socket. The caller has filled in the tuple. */
static __always_inline void of_sock(struct sock_main *e, const struct sock *sk)
{
	struct sock *peer;

	e->inode = sock_inode(sk);
	e->type = FIELD(sk, struct sock, sk_type);
	e->rcvbuf = FIELD(sk, struct sock, sk_rcvbuf);
	e->sndbuf = FIELD(sk, struct sock, sk_sndbuf);
	e->drops = sock_drops(sk);
	e->options = sock_options(sk);
	e->ifindex = FIELD(sk, struct sock, __sk_common.skc_bound_dev_if);
	e->mark = FIELD(sk, struct sock___mark, sk_mark);
	if (e->tuple.family == AF_UNIX && (peer = BPF_CORE_READ((struct unix_sock *)sk, peer)))
		e->peer_inode = sock_inode(peer);
}

static __always_inline int entry_write(struct seq_file *seq, struct sock_main *e, const struct sock *sk, bool mini)
{
	enum kind kind = OTHER;

	e->hidden = !wanted(e);
	if (mini)
		kind = MINI;
	else if (is_inet(e->tuple.family))
		kind = e->tuple.proto == IPPROTO_TCP ? TCP : e->type == SOCK_STREAM && e->tuple.proto != IPPROTO_MPTCP ? OTHER : PACKETS;
	bpf_seq_write(seq, e, sizeof(*e));
	figures_write(seq, sk, e->state, kind);
	return path_write(seq, sk, e->tuple.family);
}

/* A TIME_WAIT or request socket: it has only the first part of a socket, struct
 * sock_common.
 */
static __always_inline void of_mini(struct sock_main *e, const struct sock *sk)
{
	const struct sock_common *c = (void *)sk;

	e->tuple.family = BPF_CORE_READ(c, skc_family);
	e->tuple.proto = IPPROTO_TCP;
	e->tuple.sock = BPF_CORE_READ(c, skc_cookie.counter);
	e->tuple.lport = BPF_CORE_READ(c, skc_num);
	e->tuple.rport = bpf_ntohs(BPF_CORE_READ(c, skc_dport));
	tuple_addrs(&e->tuple, sk);
	/* A timewait socket may be in FIN_WAIT2. */
	e->state = e->state == TCP_NEW_SYN_RECV ? TCP_SYN_RECV : BPF_CORE_READ((struct inet_timewait_sock *)sk, tw_substate);
}

/* Sockets that the walk has found: the tcp and udp iterators need not read them again. The kernel
 * numbers each run of an iterator: what an earlier run has left here does not count. A socket may
 * replace another one if a set is full. The replaced one is read twice, and Go merges both records.
 */
#define SET_WAYS 4
struct found {
	__u64 sk[SET_WAYS], run[SET_WAYS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 16);
	__type(key, __u32);
	__type(value, struct found);
} walked SEC(".maps");

/* How many entries the map has. Set by Go. */
const volatile __u32 walked_sets = 1;

__u64 walk = 0; /* its last run */

/* The verifier does not compute with a pointer, but it does with a number from a map. */
volatile __u64 address = 0;

static __always_inline struct found *found_set(const struct sock *sk)
{
	__u32 set;

	address = (__u64)sk;
	set = ((address >> 6) * 0x9e3779b97f4a7c15 >> 32) * walked_sets >> 32;
	return bpf_map_lookup_elem(&walked, &set);
}

static __always_inline void found_put(const struct sock *sk, __u64 run)
{
	struct found *f = found_set(sk);
	__u32 way = SET_WAYS - 1;

	walk = run;
	if (!f)
		return;
#pragma unroll
	for (int i = SET_WAYS - 2; i >= 0; i--)
		if (f->run[i] != run)
			way = i;
	f->sk[way & (SET_WAYS - 1)] = address;
	f->run[way & (SET_WAYS - 1)] = run;
}

static __always_inline bool was_walked(const struct sock *sk)
{
	const struct found *f = found_set(sk);

	if (!f)
		return false;
#pragma unroll
	for (int way = 0; way < SET_WAYS; way++)
		if (f->run[way] == walk && f->sk[way] == address)
			return true;
	return false;
}

/* The process of the socket before. A walk has all sockets of a process one after the other. */
struct {
	__u64 run;
	__u32 tid;
	struct who who;
} before = {};

static __always_inline void who_walked(struct who *w, struct task_struct *task, __u64 run)
{
	__u32 tid = task->pid;

	if (before.run != run || before.tid != tid) {
		__builtin_memset(&before.who, 0, sizeof(before.who));
		who_task(&before.who, task);
		before.run = run;
		before.tid = tid;
	}
	*w = before.who;
}

SEC("iter/task_file") int walk__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	__u64 run = ctx->meta->session_id;
	struct sock_main e = {};
	struct sock *sk;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk)
		return 0;
	begin(&e, sk);
	e.fd = ctx->fd;
	tuple_fill(&e.tuple, sk);
	who_walked(&e.head.who, task, run);
	of_sock(&e, sk);
	found_put(sk, run);
	return entry_write(ctx->meta->seq, &e, sk, false);
}

static __always_inline int without(struct seq_file *seq, const struct sock *sk, bool mini)
{
	struct sock_main e = {};

	if (was_walked(sk))
		return 0;
	begin(&e, sk);
	if (mini) {
		of_mini(&e, sk);
	} else {
		tuple_fill(&e.tuple, sk);
		of_sock(&e, sk);
	}
	return entry_write(seq, &e, sk, mini);
}

SEC("iter/tcp") int tcp__iter(struct bpf_iter__tcp *ctx)
{
	struct sock *sk = (void *)ctx->sk_common;
	__u8 state;

	if (!sk)
		return 0;
	state = sock_state(sk);
	return without(ctx->meta->seq, sk, state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV);
}

SEC("iter/udp") int udp__iter(struct bpf_iter__udp *ctx)
{
	struct sock *sk = (void *)ctx->udp_sk;

	return sk ? without(ctx->meta->seq, sk, false) : 0;
}
