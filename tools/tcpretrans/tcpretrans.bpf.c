//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpretrans - each retransmitted TCP segment, and why. */
#define OWNER_OPTIONS (OWNER_LISTENERS | OWNER_ENDS_AT_CLOSE | OWNER_COOKIES_IN_TOOL)
#include "count.h"
#include "owner.h"

const volatile bool counting = false;	 /* count by flow: no events */
const volatile bool show_probes = false; /* tail loss probes too */
const volatile __u32 args_tcp_retransmit_skb = 0;

enum cause { CAUSE_RTO, CAUSE_FAST, CAUSE_TLP, CAUSE_SYNACK }; /* Go: cause */

struct retrans_event {
	struct head head;
	struct tuple tuple;
	__u32 cause;
	__u32 seq;
	__u32 bytes;
	__u32 segs;   /* that the packet is cut into */
	__u32 row;    /* timeouts in a row, this one included */
	__u32 total;  /* of the socket, in segments */
	__s32 result; /* what sending said, where the kernel tells */
	__u8 state;
	__u8 pad[3];
};
EVENT(struct retrans_event);

struct retrans_key {
	__u32 pid, uid;
	char comm[16];
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u32 cause;
	__u8 state;
	__u8 pad[3];
	__u32 netns;
};
struct retrans_count {
	__u64 count, segs;
};
enum key_bits {
	KEY_pid, KEY_uid, KEY_comm, KEY_laddr, KEY_raddr, KEY_lport, KEY_rport, KEY_cause, KEY_state, KEY_netns,
};
KEEP_ENUM(enum key_bits);
COUNT_MAP(counts, struct retrans_key, struct retrans_count);

/* States of icsk_ca_state and kinds of icsk_pending. */
#define CA_RECOVERY 3
#define CA_LOSS 4
#define PENDING_LOSS_PROBE 5

static __always_inline int count_one(const struct retrans_event *e)
{
	struct retrans_count zero = {}, *c;
	struct retrans_key k = {};

	if (KEY_WANTS(pid))
		k.pid = e->head.who.pid;
	if (KEY_WANTS(uid))
		k.uid = e->head.who.uid;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, e->head.who.comm, sizeof(k.comm));
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k.laddr, e->tuple.laddr, sizeof(k.laddr));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, e->tuple.raddr, sizeof(k.raddr));
	if (KEY_WANTS(lport))
		k.lport = e->tuple.lport;
	if (KEY_WANTS(rport))
		k.rport = e->tuple.rport;
	if (KEY_WANTS(cause))
		k.cause = e->cause;
	if (KEY_WANTS(state))
		k.state = e->state;
	if (KEY_WANTS(netns))
		k.netns = e->head.netns;
	c = count_at(COUNTED(counts), &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, 1);
	__sync_fetch_and_add(&c->segs, e->segs);
	return 0;
}

static __always_inline int tell(const struct retrans_event *e)
{
	struct retrans_event *out;

	if (counting)
		return count_one(e);
	out = EVENT_NEW(struct retrans_event);
	if (!out)
		return 0;
	*out = *e;
	return event_send(out);
}

/* A loss probe is sent while the sender knows of no loss. That a probe is due
 * is not enough: it may also be due when the peer reports a loss.
 */
static __always_inline __u32 cause_of(const struct inet_connection_sock *icsk)
{
	__u8 state = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);

	if (state == CA_LOSS)
		return CAUSE_RTO;
	if (state < CA_RECOVERY && BPF_CORE_READ(icsk, icsk_pending) == PENDING_LOSS_PROBE)
		return CAUSE_TLP;
	return CAUSE_FAST;
}

KTRACE_SK(retrans, tcp_retransmit_skb, const struct sock *sk, const struct sk_buff *skb)
{
	const struct inet_connection_sock *icsk = (void *)sk;
	const struct tcp_skb_cb *cb = (void *)skb->cb;
	struct retrans_event e = {};

	if (!sock_wanted(sk) || !tuple_fill(&e.tuple, sk) || !tuple_wanted(&e.tuple))
		return 0;
	e.cause = cause_of(icsk);
	if (e.cause == CAUSE_TLP && !show_probes)
		return 0;
	owner_get(&e.head.who, sk);
	if (!who_wanted(&e.head.who))
		return 0;
	e.head.ts = bpf_ktime_get_ns();
	e.head.netns = sock_netns(sk);
	e.seq = BPF_CORE_READ(cb, seq);
	e.segs = BPF_CORE_READ(cb, tcp_gso_segs);
	e.bytes = BPF_CORE_READ(skb, len);
	e.row = BPF_CORE_READ(icsk, icsk_retransmits);
	e.total = BPF_CORE_READ((struct tcp_sock *)sk, total_retrans);
	e.state = sock_state(sk);
	if (args_tcp_retransmit_skb > 2)
		e.result = (int)ctx[2];
	if (e.result) { /* it is not sent */
		if (counting)
			return 0;
		if (e.result > 0)
			e.result = -ENOBUFS; /* a queue of this machine has dropped it */
		e.segs = e.bytes = 0;
	}
	return tell(&e);
}

/* The socket is the listener; the connection is still a request. */
KTRACE(synack, tcp_retransmit_synack, const struct sock *sk, const struct request_sock *req)
{
	const struct sock *as_sock = (void *)req;
	struct retrans_event e = {};

	if (!sock_wanted(sk))
		return 0;
	e.tuple.family = BPF_CORE_READ(req, __req_common.skc_family);
	e.tuple.proto = IPPROTO_TCP;
	if (!tuple_addrs(&e.tuple, as_sock))
		return 0;
	e.tuple.lport = BPF_CORE_READ(req, __req_common.skc_num);
	e.tuple.rport = bpf_ntohs(BPF_CORE_READ(req, __req_common.skc_dport));
	if (!tuple_wanted(&e.tuple))
		return 0;
	owner_get(&e.head.who, sk);
	if (!who_wanted(&e.head.who))
		return 0;
	e.head.ts = bpf_ktime_get_ns();
	e.head.netns = sock_netns(sk);
	e.cause = CAUSE_SYNACK;
	e.seq = BPF_CORE_READ((struct tcp_request_sock *)req, snt_isn);
	e.segs = 1;
	e.row = BPF_CORE_READ(req, num_retrans) + 1;
	e.total = e.row;
	e.state = TCP_SYN_RECV;
	return tell(&e);
}
