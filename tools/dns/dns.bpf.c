//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* dns - each DNS query with its answer. */
#include "dnsquery.h"
#include "latency.h"
#include "pending.h"

#define ANSWER_LEN 904 /* most are shorter by far */

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

/* Only the first answer_len bytes of the answer are written and read. */
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

/* The number is reused for another question: the first one has no answer. */
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

/* Whoever removes a query from the map reports it: this program, or Go after
 * the timeout.
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
