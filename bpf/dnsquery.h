/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dnsquery.h - DNS queries that have no answer yet, each with the process that asks.
 *
 * The points gone, thread, asked and query fill the map. The tool handles
 * answers, and defines query_ends() for a query whose number is reused for
 * another question. Go: family.DNSKey, family.DNSQuery.
 */
#pragma once
#define DNS_QUERIES
#include "dns.h"
#include "span.h"

#define QUESTION_LEN 272 /* header, the longest name, type and class, rounded up to a word */

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
bool any_queries = false; /* there has been one */

/* Too large for the stack. */
const volatile struct query blank = { .start = NONE, .last = NONE };

/* The process of a TCP connection to a server: the last one that sent a segment
 * itself. The first such segment is the SYN.
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

static __always_inline void query_key(struct query_key *k, const struct dns *d)
{
	k->sock = d->tuple.sock;
	__builtin_memcpy(k->server, d->tuple.raddr, 16);
	k->proto = d->tuple.proto;
	k->id = d->id;
}

/* The number of the query is reused for another question, so it gets no answer.
 * This removes it from the map.
 */
static int query_ends(struct query_key *k);

/* Memory for a question that is compared and never sent. */
struct question {
	__u64 len;
	__u8 bytes[QUESTION_LEN];
};

/* Is the message a repetition of q? Its number is the same. */
static __always_inline bool same_question(const struct query *q, struct __sk_buff *skb, const struct dns *d)
{
	struct question *now = EVENT_NEW(struct question);
	const __u64 *a, *b;
	__u64 diff = 0;

	if (!now)
		return true;
	now->len = DNS_COPY(now->bytes, QUESTION_LEN, skb, d);
	a = (const __u64 *)now->bytes;
	b = (const __u64 *)q->question;
	diff = now->len ^ q->len;
#pragma unroll
	for (int i = 0; i < QUESTION_LEN / 8; i++) {
		diff |= a[i] ^ b[i];
		asm volatile("" : "+r"(diff) : : "memory"); /* one after the other: else they fill the stack */
	}
	EVENT_DROP(now);
	return !diff;
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
	any_queries = true;
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
