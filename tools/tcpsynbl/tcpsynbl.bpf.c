//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpsynbl - how full the two queues of listeners are when a SYN comes, and
 * which SYNs do not fit.
 *
 * The SYN queue holds requests: a SYN came, but the ACK of the answer did not
 * yet. The accept queue holds connections that are not accepted yet. Both have
 * the limit of listen(2).
 */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_LISTENERS_ONLY | OWNER_ENDS_AT_CLOSE)
#include "count.h"
#include "hist.h"
#include "owner.h"
#include "segment.h"

enum queue { QUEUE_SYN, QUEUE_ACCEPT };
enum moment { AT_SYN, AT_ACK };

struct synbl_key {
	__u8 laddr[16];
	__u32 queue;
	__u32 limit;
	__u32 pid, uid;
	char comm[16];
	__u32 netns;
	__u16 lport;
	__u16 pad;
};
struct synbl_value {
	struct hist used;
};
enum key_bits { KEY_laddr, KEY_queue, KEY_limit, KEY_pid, KEY_uid, KEY_comm, KEY_netns, KEY_lport };
KEEP_ENUM(enum key_bits);
COUNT_MAP(lengths, struct synbl_key, struct synbl_value);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct synbl_value);
} empty SEC(".maps");

struct synbl_event {
	struct head head;
	struct tuple tuple;
	__u32 at;    /* enum moment */
	__u32 queue; /* that was full */
	__u32 used, limit;
};
EVENT(struct synbl_event);

static __always_inline void length_put(struct synbl_key *k, enum queue queue, __u32 used)
{
	struct synbl_value *zero, *v;
	__u32 first = 0;

	if (KEY_WANTS(queue))
		k->queue = queue;
	zero = bpf_map_lookup_elem(&empty, &first);
	v = zero ? count_at(COUNTED(lengths), k, zero) : NULL;
	if (v)
		hist_put(&v->used, used);
}

static __noinline int checked(struct sock *sk, const struct segment *p, __u32 at)
{
	__u32 used, waiting, limit;
	struct synbl_event *e;
	struct synbl_key k = {};
	struct tuple t = {};
	struct who who = {};
	bool full_syn, full_accept;

	if (!sock_wanted(sk))
		return 0;
	segment_tuple(&t, p, false);
	if (!tuple_wanted(&t))
		return 0;
	owner_get(&who, sk);
	if (!who_wanted(&who))
		return 0;
	waiting = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_accept_queue.qlen.counter);
	used = BPF_CORE_READ(sk, sk_ack_backlog);
	limit = BPF_CORE_READ(sk, sk_max_ack_backlog);
	if (at == AT_SYN) {
		if (KEY_WANTS(laddr)) { /* of the listener: an address of its own, or any */
			t.family = sock_family(sk); /* the packet's may be the other one */
			tuple_addrs(&t, sk);
			__builtin_memcpy(k.laddr, t.laddr, sizeof(k.laddr));
		}
		if (KEY_WANTS(limit))
			k.limit = limit;
		if (KEY_WANTS(pid))
			k.pid = who.pid;
		if (KEY_WANTS(uid))
			k.uid = who.uid;
		if (KEY_WANTS(comm))
			__builtin_memcpy(k.comm, who.comm, sizeof(k.comm));
		if (KEY_WANTS(netns))
			k.netns = sock_netns(sk);
		if (KEY_WANTS(lport))
			k.lport = t.lport;
		length_put(&k, QUEUE_SYN, waiting);
		length_put(&k, QUEUE_ACCEPT, used);
	}
	/* The kernel's checks: both queues hold one more than their limit (the
	 * SYN queue since 2025, also in the stable series of 5.10, 6.1 and
	 * 6.12). A full SYN queue drops nothing if cookies may be sent.
	 */
	full_syn = at == AT_SYN && waiting > limit &&
		   !BPF_CORE_READ(sk, __sk_common.skc_net.net, ipv4.sysctl_tcp_syncookies);
	full_accept = used > limit;
	if (!full_syn && !full_accept)
		return 0;
	e = EVENT_NEW(struct synbl_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.view = 1;
	e->head.netns = sock_netns(sk);
	e->head.who = who;
	segment_tuple(&e->tuple, p, false);
	e->tuple.sock = sock_cookie(sk);
	e->at = at;
	e->queue = full_syn ? QUEUE_SYN : QUEUE_ACCEPT;
	e->used = full_syn ? waiting : used;
	e->limit = limit;
	return event_send(e);
}

static __always_inline int came(struct sock *sk, struct sk_buff *skb, __u32 at)
{
	struct segment p = {};

	return segment_read(&p, skb, segment_ip(skb)) ? checked(sk, &p, at) : 0;
}

/* Each SYN that a listener gets. */
KFUNC(asked, tcp_conn_request, void *rsk_ops, void *af_ops, struct sock *sk, struct sk_buff *skb)
{
	return came(sk, skb, AT_SYN);
}

/* Each SYN that a device receives, for the listener on that address. */
KTRACE(packet, netif_receive_skb, struct sk_buff *skb)
{
	const void *ip = LOAD(skb, data);
	struct segment p = {};
	struct sock *sk;

	if (!segment_asks(ip, LOAD(skb, protocol)))
		return 0;
	if (!segment_read(&p, skb, ip) || (p.flags & (FLAG_SYN | FLAG_ACK)) != FLAG_SYN)
		return 0;
	sk = listener_at(p.daddr, p.dport, skb_netns(skb));
	return sk ? checked(sk, &p, AT_SYN) : 0;
}

/* The last step of a handshake. The IPv6 function passes IPv4 on. */
#define ACKED(part, func, proto)                                               \
	SEC("fentry/" #func) int ack__fentry__##part(unsigned long long *ctx)  \
	{                                                                      \
		struct sk_buff *skb = (void *)ctx[1];                          \
									       \
		if (BPF_CORE_READ(skb, protocol) != bpf_htons(proto))          \
			return 0;                                              \
		return came((void *)ctx[0], skb, AT_ACK);                      \
	}                                                                      \
	SEC("kprobe/" #func) int ack__kprobe__##part(struct pt_regs *ctx)      \
	{                                                                      \
		struct sk_buff *skb = (void *)PT_REGS_PARM2(ctx);              \
									       \
		if (BPF_CORE_READ(skb, protocol) != bpf_htons(proto))          \
			return 0;                                              \
		return came((void *)PT_REGS_PARM1(ctx), skb, AT_ACK);          \
	}

ACKED(v4, tcp_v4_syn_recv_sock, 0x0800)
ACKED(v6, tcp_v6_syn_recv_sock, 0x86dd)
