//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* tcpnagle - is Nagle on, and how long did it hold writes?
 *
 * Something holds the data that a send leaves unsent. The kernel checks in this
 * order: the congestion window, the receiver's window, Nagle and cork. The hold
 * ends when a packet with the first held byte goes out.
 */
#include "count.h"
#include "hist.h"
#include "segment.h"
#include "span.h"
#include "tcp.h"
#include "who.h"

/* Bits of tcp_sock.nonagle. PUSH is an argument of a single call. */
#define NAGLE_OFF 1
#define NAGLE_CORK 2

enum metric { HELD_NAGLE, HELD_CORK, HELD_CWND, HELD_RWND, HELD_OTHER };

struct send_key {
	__u8 laddr[16], raddr[16];
	char comm[16];
	__u32 pid, uid;
	__u16 lport, rport;
	__u32 state; /* NAGLE_*; of tcp_write_xmit also PUSH, 4 */
	__u32 netns;
	__u32 pad;
};
enum key_bits {
	KEY_laddr, KEY_raddr, KEY_comm, KEY_pid, KEY_uid, KEY_lport, KEY_rport, KEY_state, KEY_netns,
	KEY_metric, /* always filled */
};
KEEP_ENUM(enum key_bits);
#define KEYS_TUPLE (1 << KEY_laddr | 1 << KEY_raddr | 1 << KEY_lport | 1 << KEY_rport)
#define KEYS_WHO (1 << KEY_comm | 1 << KEY_pid | 1 << KEY_uid)
COUNT_MAP(sends, struct send_key, struct count);

struct held_key {
	struct send_key send;
	__u32 metric;
	__u32 pad;
};
struct held_value {
	struct hist held;
};
COUNT_MAP(helds, struct held_key, struct held_value);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct held_value);
} empty SEC(".maps");

/* The oldest unsent byte of a socket. */
struct hold {
	__u64 since;
	__u32 seq;
	__u32 pad;
	struct held_key key;
};
SPAN(holds, struct sock *, struct hold);

static __always_inline bool key_fill(struct send_key *k, const struct sock *sk, __u32 state)
{
	struct tuple t = {};
	struct who w = {};

	if (is_self() || load_proto(sk) != IPPROTO_TCP || !sock_wanted(sk))
		return false;
	if ((filter_on & FILTER_TUPLE || key_mask & KEYS_TUPLE) && (!tuple_load(&t, sk) || !tuple_wanted(&t)))
		return false;
	if (filter_on & FILTER_WHO || key_mask & KEYS_WHO)
		who_current(&w);
	if (!who_wanted(&w))
		return false;
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k->laddr, t.laddr, sizeof(k->laddr));
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k->raddr, t.raddr, sizeof(k->raddr));
	if (KEY_WANTS(comm))
		__builtin_memcpy(k->comm, w.comm, sizeof(k->comm));
	if (KEY_WANTS(pid))
		k->pid = w.pid;
	if (KEY_WANTS(uid))
		k->uid = w.uid;
	if (KEY_WANTS(lport))
		k->lport = t.lport;
	if (KEY_WANTS(rport))
		k->rport = t.rport;
	if (KEY_WANTS(state))
		k->state = state;
	if (KEY_WANTS(netns))
		k->netns = load_netns(sk);
	return true;
}

static __always_inline enum metric held_by(const struct tcp_sock *tp, __u32 unsent, __u32 state)
{
	__u32 mss = LOAD(tp, mss_cache);
	__u32 next = LOAD(tp, snd_nxt) + (unsent < mss ? unsent : mss);

	if (tcp_in_flight(tp) >= LOAD(tp, snd_cwnd))
		return HELD_CWND;
	if ((__s32)(next - LOAD(tp, snd_una) - LOAD(tp, snd_wnd)) > 0)
		return HELD_RWND;
	if (state & NAGLE_CORK)
		return HELD_CORK;
	if (!state && unsent < mss && LOAD(tp, packets_out))
		return HELD_NAGLE;
	return HELD_OTHER;
}

static __always_inline int sent(struct sock *sk, int ret, __u32 flags)
{
	const struct tcp_sock *tp;
	struct count zero = {}, *c;
	struct hold h = {};
	__u32 unsent, state;

	if (ret <= 0 || !is_inet(LOAD(sk, __sk_common.skc_family)))
		return 0;
	tp = tcp_load(sk);
	if (!tp)
		return 0;
	state = plain() ? BPF_CORE_READ_BITFIELD(tp, nonagle) : BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle);
	state &= NAGLE_OFF | NAGLE_CORK;
	if (!key_fill(&h.key.send, sk, state))
		return 0;
	c = count_at(COUNTED(sends), &h.key.send, &zero);
	if (c) {
		__sync_fetch_and_add(&c->count, 1);
		__sync_fetch_and_add(&c->bytes, ret);
	}
	h.seq = LOAD(tp, snd_nxt);
	unsent = LOAD(tp, write_seq) - h.seq;
	if (!unsent || bpf_map_lookup_elem(&holds, &sk))
		return 0;
	if (flags & MSG_MORE)
		state |= NAGLE_CORK;
	h.key.metric = held_by(tp, unsent, state);
	h.since = bpf_ktime_get_ns();
	span_begin(&holds, &sk, &h);
	return 0;
}

KTRACE(sent, sock_send_length, struct sock *sk, int ret, int flags)
{
	return sent(sk, ret, flags);
}

KEXIT(call, tcp, tcp_sendmsg, 3, 1)
{
	return sent((struct sock *)a0, ret, BPF_CORE_READ((struct msghdr *)a1, msg_flags));
}

/* The packet that carries the first held byte. */
KTRACE(out, net_dev_queue, struct sk_buff *skb)
{
	struct sock *sk = LOAD(skb, sk);
	struct held_value *zero, *v;
	struct segment p = {};
	__u32 first = 0;
	struct hold *h;

	if (!sk)
		return 0;
	h = bpf_map_lookup_elem(&holds, &sk);
	if (!h || !segment_read(&p, skb, segment_ip(skb)) || (__s32)(p.seq + p.len - h->seq) <= 0)
		return 0;
	zero = bpf_map_lookup_elem(&empty, &first);
	v = zero ? count_at(COUNTED(helds), &h->key, zero) : NULL;
	if (v)
		hist_put(&v->held, (bpf_ktime_get_ns() - h->since) / 1000);
	bpf_map_delete_elem(&holds, &sk);
	return 0;
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	struct sock *key = (struct sock *)sk;

	bpf_map_delete_elem(&holds, &key);
	return 0;
}

/* --xmit: the book's form. When a socket's write last returned true. */
SPAN(blocked, struct sock *, __u64);
COUNT_MAP(xmits, struct send_key, struct count);
COUNT_MAP(blocks, struct send_key, struct held_value);

KEXIT(xmit, write, tcp_write_xmit, 5, 2)
{
	struct sock *sk = (struct sock *)a0;
	__u64 now = bpf_ktime_get_ns(), *since;
	struct held_value *empty_hist, *v;
	struct count zero = {}, *c;
	struct send_key k = {};
	__u32 first = 0;

	if (!key_fill(&k, sk, a2 & 7))
		return 0;
	c = count_at(COUNTED(xmits), &k, &zero);
	if (c)
		__sync_fetch_and_add(&c->count, 1);
	since = bpf_map_lookup_elem(&blocked, &sk);
	if (ret & 1) {
		if (!since)
			span_begin(&blocked, &sk, &now);
		return 0;
	}
	if (!since)
		return 0;
	empty_hist = bpf_map_lookup_elem(&empty, &first);
	v = empty_hist ? count_at(COUNTED(blocks), &k, empty_hist) : NULL;
	if (v)
		hist_put(&v->held, (now - *since) / 1000);
	bpf_map_delete_elem(&blocked, &sk);
	return 0;
}
