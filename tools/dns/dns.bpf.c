//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* dns - each DNS query with its answer. */
#define DNS_QUERIES
#include "dns.h"
#include "latency.h"
#include "pending.h"
#include "span.h"

#define QUESTION_LEN 272 /* header, the longest name, type and class, to the full word */
#define ANSWER_LEN 904	 /* most are shorter by far */

struct dns_event {
	struct head head;
	struct tuple tuple;
	__u64 latency; /* NONE: no answer */
	__u32 retries;
	__u32 pending; /* no answer yet: latency is its age */
	__u16 id;
	__u16 flags, answers; /* of the answer */
	__u16 question_len, answer_len;
	__u16 pad[3];
	__u8 question[QUESTION_LEN];
	__u8 answer[ANSWER_LEN];
};
EVENT(struct dns_event);

struct query_key {
	__u64 sock;
	__u8 server[16];
	__u16 proto, id;
	__u32 pad;
};
struct query {
	__u64 start; /* NONE: it is not filled in yet */
	__u64 last;  /* when it was sent last */
	struct who who;
	__u8 laddr[16];
	__u32 netns;
	__u32 retries;
	__u16 lport, family;
	__u16 len, pad;
	__u8 question[QUESTION_LEN];
};
SPAN(queries, struct query_key, struct query);

/* Too large for the stack. */
const volatile struct query blank = { .start = NONE, .last = NONE };

/* The process that a TCP connection to a server belongs to, as of the last segment
 * that it sent itself. The first one is the SYN.
 */
SPAN_OF(askers, __u64, struct who, 4096);
bool any_askers = false; /* there has been one */

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	__u64 key = sock_cookie(sk);

	dns_end(sk);
	if (any_askers)
		bpf_map_delete_elem(&askers, &key);
	return 0;
}

static __always_inline bool asker(struct who *w, struct __sk_buff *skb, const struct dns *d)
{
	__u64 sock = d->tuple.sock;
	struct who *known;

	if (skb_sender(w, skb_sk(skb), d->tuple.proto)) {
		if (d->tuple.proto == IPPROTO_TCP) {
			any_askers = true;
			bpf_map_update_elem(&askers, &sock, w, BPF_ANY); /* if it is full, that is counted below */
		}
		return true;
	}
	known = d->tuple.proto == IPPROTO_TCP ? bpf_map_lookup_elem(&askers, &sock) : NULL;
	if (!known) {
		if (d->end > d->at)
			lose(LOSS_OWNER);
		return false;
	}
	*w = *known;
	return true;
}

/* Of the answer, answer_len bytes are written, and no others read. */
#define DNS_EVENT_NEW() EVENT_ZERO(struct dns_event, offsetof(struct dns_event, answer))

static __always_inline void query_fill(struct dns_event *e, const struct query_key *k, const struct query *q, __u64 now)
{
	e->head.ts = now;
	e->head.netns = q->netns;
	e->head.who = q->who;
	__builtin_memcpy(e->tuple.laddr, q->laddr, 16);
	__builtin_memcpy(e->tuple.raddr, k->server, 16);
	e->tuple.sock = k->sock;
	e->tuple.lport = q->lport;
	e->tuple.rport = DNS_PORT;
	e->tuple.proto = k->proto;
	e->tuple.family = q->family;
	e->latency = now - q->start;
	e->retries = q->retries;
	e->id = k->id;
	e->question_len = q->len;
	__builtin_memcpy(e->question, q->question, QUESTION_LEN);
}

PENDING(pending, queries, struct query_key, struct query)
{
	__u64 now = bpf_ktime_get_ns();
	struct dns_event *e;

	if (value->start == NONE || !latency_wanted(now - value->start))
		return 0;
	e = DNS_EVENT_NEW();
	if (!e)
		return 0;
	query_fill(e, &key, value, now);
	e->pending = true;
	return event_send(e);
}

static __always_inline void query_key(struct query_key *k, const struct dns *d)
{
	k->sock = d->tuple.sock;
	__builtin_memcpy(k->server, d->tuple.raddr, 16);
	k->proto = d->tuple.proto;
	k->id = d->id;
}

/* Is the message the one that q is already? Its number is the same. */
static __always_inline bool same_question(const struct query *q, struct __sk_buff *skb, const struct dns *d)
{
	struct dns_event *e = DNS_EVENT_NEW(); /* only for its memory: it is never sent */
	const __u64 *a, *b;
	__u64 diff = 0;

	if (!e)
		return true;
	e->question_len = DNS_COPY(e->question, QUESTION_LEN, skb, d);
	a = (const __u64 *)e->question;
	b = (const __u64 *)q->question;
	diff = e->question_len ^ q->len;
#pragma unroll
	for (int i = 0; i < QUESTION_LEN / 8; i++) {
		diff |= a[i] ^ b[i];
		asm volatile("" : "+r"(diff) : : "memory"); /* one after the other: else they fill the stack */
	}
	EVENT_DROP(e);
	return !diff;
}

/* The number is used for another question: the first one has no answer. */
static __noinline int query_ends(struct query_key *k)
{
	struct query *q = k ? bpf_map_lookup_elem(&queries, k) : NULL;
	struct dns_event *e;

	if (!q)
		return 0;
	e = DNS_EVENT_NEW();
	if (e)
		query_fill(e, k, q, bpf_ktime_get_ns());
	if (e)
		e->latency = NONE;
	if (bpf_map_delete_elem(&queries, k)) {
		if (e)
			EVENT_DROP(e);
	} else if (e) {
		event_send(e);
	}
	return 0;
}

static __noinline int query_begins(struct dns *d, struct __sk_buff *skb, struct who *who)
{
	struct query_key k = {};
	struct query *q;
	__u64 now = bpf_ktime_get_ns();

	if (!d || !who)
		return 0;
	query_key(&k, d);
	q = bpf_map_lookup_elem(&queries, &k);
	if (q && same_question(q, skb, d)) {
		__sync_fetch_and_add(&q->retries, 1);
		q->last = now;
		return 0;
	}
	if (q)
		query_ends(&k);
	if (bpf_map_update_elem(&queries, &k, (const void *)&blank, BPF_ANY)) {
		lose(LOSS_SPAN);
		return 0;
	}
	q = bpf_map_lookup_elem(&queries, &k);
	if (!q)
		return 0;
	q->who = *who;
	__builtin_memcpy(q->laddr, d->tuple.laddr, 16);
	q->netns = skb_sk_netns(skb);
	q->lport = d->tuple.lport;
	q->family = d->tuple.family;
	q->len = DNS_COPY(q->question, QUESTION_LEN, skb, d);
	q->last = now;
	q->start = now;
	return 0;
}

DNS_ASKED(asked)

SEC("cgroup_skb/egress") int query__cgroup(struct __sk_buff *skb)
{
	const struct sock *sk;
	struct who who = {};
	struct dns d = {};

	if (!dns_packet(&d, skb, true))
		return CGROUP_ALLOW;
	sk = skb_sk(skb);
	if (asker(&who, skb, &d) && who.pid == filter_self)
		return CGROUP_ALLOW;
	if (!sk || !sock_wanted(sk) || !tuple_wanted(&d.tuple) || !who_wanted(&who))
		return CGROUP_ALLOW;
	DNS_MESSAGES(&d, skb, true)
		query_begins(&d, skb, &who);
	return CGROUP_ALLOW;
}

/* Whoever takes a query out of the map tells of it: this program, or Go, which finds
 * it late.
 */
static __noinline int answered(struct dns *d, struct __sk_buff *skb)
{
	struct query_key k = {};
	struct dns_event *e;
	struct query *q;

	if (!d)
		return 0;
	query_key(&k, d);
	q = bpf_map_lookup_elem(&queries, &k);
	if (!q || q->start == NONE)
		return 0;
	e = DNS_EVENT_NEW();
	if (!e) {
		bpf_map_delete_elem(&queries, &k);
		return 0;
	}
	query_fill(e, &k, q, bpf_ktime_get_ns());
	e->flags = d->flags;
	e->answers = d->answers;
	e->answer_len = DNS_COPY(e->answer, ANSWER_LEN, skb, d);
	if (bpf_map_delete_elem(&queries, &k) || !latency_wanted(e->latency))
		EVENT_DROP(e);
	else
		event_send(e);
	return 0;
}

SEC("cgroup_skb/ingress") int answer__cgroup(struct __sk_buff *skb)
{
	struct dns d = {};

	if (!dns_packet(&d, skb, false))
		return CGROUP_ALLOW;
	DNS_MESSAGES(&d, skb, false)
		answered(&d, skb);
	return CGROUP_ALLOW;
}
