//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* qdisclat - time that packets spend in queueing disciplines, and counts of
 * packets without such a time: given back by a driver, dropped, bypassed.
 *
 * The tracepoints fire for queues that a device's transmit queue points to: its
 * root, or those below mq. A packet is recorded when the stack hands it to such
 * a queue, and deleted when the driver gets it.
 */
#include "dev.h"
#include "hist.h"
#include "span.h"

const volatile char only_kind[16] = {};

struct queue_key {
	struct dev_key dev;
	char kind[16];
	__u32 handle, parent;
};
enum key_bits { KEY_dev, KEY_netns, KEY_kind, KEY_handle, KEY_parent };
KEEP_ENUM(enum key_bits);

/* dequeued is all of the histogram's, requeued and unknown. */
struct queue_value {
	struct hist hist;
	__u64 dequeued;
	__u64 split; /* of the histogram: pieces that the queue cut a packet into */
	__u64 requeued, unknown;
	__u64 bypassed, dropped;
};
static const struct queue_value queue_zero = {};

COUNT_MAP(queues, struct queue_key, struct queue_value);

enum state {
	OFFERED, /* before 5.15 also in the queue */
	WAITING, /* in the queue */
	TAKEN,	 /* out of it, but not with the driver yet */
};

struct queued {
	__u64 ts;
	const struct Qdisc *q;
	__u64 state;
};
SPAN(packets, const struct sk_buff *, struct queued);
SPAN(children, const struct sk_buff *, struct queued); /* below another queue */

#define TCQ_F_CAN_BYPASS 4

/* The pieces of packets that a queue cut when it took them (tbf, cake) are new
 * packets. Their times are kept by queue: runs of pieces and of whole packets,
 * first in, first out. The queue's lock is held here.
 *
 * A full queue drops some pieces while it cuts. The growth of its length says
 * how many it kept.
 */
#define SPLITS 128
#define SPLITS_NEAR 8 /* runs that are looked at */
struct splits {
	__u32 head, tail;
	__u32 left; /* of all runs */
	__u32 qlen; /* of the queue, as it was last seen */
	__u64 cake; /* keeps the time in its packets: nothing else is used */
	struct {
		__u64 ts, left; /* ts is 0 of whole packets */
	} ring[SPLITS];
};
static const struct splits splits_zero = {};
SPAN_OF(splits, const struct Qdisc *, struct splits, 128);

/* Some queue has cut a packet. Until then no lookup is needed. */
static bool cutting;

/* n packets, or pieces if they have a time, came into the queue. */
static __always_inline void run_put(struct splits *s, __u64 ts, __u32 n)
{
	__u32 last = (s->tail - 1) % SPLITS, i = s->tail % SPLITS;

	if (!n)
		return;
	if (!ts && s->tail != s->head && !s->ring[last].ts) {
		s->ring[last].left += n;
	} else if (s->tail - s->head < SPLITS) {
		s->ring[i].ts = ts;
		s->ring[i].left = n;
		s->tail++;
	} else {
		lose(LOSS_SPAN);
		return;
	}
	s->left += n;
}

/* A piece, or a whole packet, left the queue. Returns its time. */
static __always_inline __u64 run_take(struct splits *s, bool whole)
{
	__u64 ts = 0;

	for (__u32 i = 0; i < SPLITS_NEAR; i++) {
		__u32 at = (s->head + i) % SPLITS;

		if (s->head + i == s->tail)
			break;
		if (!s->ring[at].left || !s->ring[at].ts != whole)
			continue;
		ts = s->ring[at].ts;
		s->ring[at].left--;
		s->left--;
		break;
	}
	for (int i = 0; i < SPLITS_NEAR; i++) {
		if (s->head == s->tail || s->ring[s->head % SPLITS].left)
			break;
		s->head++;
	}
	return ts;
}

/* The queue has this many packets, and some leave it now. Records beyond these
 * are of packets that left unseen or were dropped: the oldest.
 */
static __always_inline void split_sync(struct splits *s, __u32 qlen, __u32 leaving)
{
	s->qlen = qlen;
	for (int i = 0; i < SPLITS_NEAR; i++) {
		__u32 at = s->head % SPLITS, over;

		if (s->head == s->tail || s->left <= qlen + leaving)
			return;
		over = s->left - qlen - leaving;
		if (over >= s->ring[at].left) {
			over = s->ring[at].left;
			s->head++;
		}
		s->ring[at].left -= over;
		s->left -= over;
	}
}

static __always_inline struct splits *splits_of(const struct Qdisc *q)
{
	return cutting ? bpf_map_lookup_elem(&splits, &q) : NULL;
}

/* The queue took pieces of a packet with n pieces. Returns how many it dropped. */
static __always_inline __u32 split_put(const struct Qdisc *q, __u64 ts, __u32 segs)
{
	__u32 qlen = BPF_CORE_READ(q, q.qlen), taken;
	struct splits *s = splits_of(q);

	if (s) {
		taken = qlen > s->qlen ? qlen - s->qlen : 0;
		if (taken > segs)
			taken = segs;
	} else {
		char kind[8] = {};

		cutting = true;
		s = count_in(&splits, &q, &splits_zero);
		if (!s)
			return 0;
		BPF_CORE_READ_STR_INTO(&kind, q, ops, id);
		s->cake = *(__u64 *)kind == *(__u64 *)"cake\0\0\0";
		taken = qlen < segs ? qlen : segs;
		run_put(s, 0, qlen - taken);
	}
	s->qlen = qlen;
	if (!s->cake)
		run_put(s, ts, taken);
	return segs - taken;
}

/* Since when a piece was in the queue; 0: not known. */
static __always_inline __u64 split_take(const struct Qdisc *q, const struct sk_buff *skb)
{
	const struct qdisc_skb_cb *cb = (void *)skb->cb;
	struct splits *s = splits_of(q);
	__u64 ts = 0;

	if (!s)
		return 0;
	if (!s->cake)
		return run_take(s, false);
	bpf_probe_read_kernel(&ts, sizeof(ts), cb->data);
	return ts;
}

static __always_inline bool kind_wanted(const char *kind)
{
	if (!only_kind[0])
		return true;
#pragma unroll
	for (int i = 0; i < 16; i++) {
		if (kind[i] != only_kind[i])
			return false;
		if (!kind[i])
			break;
	}
	return true;
}

/* Fill k; false if a filter excludes the queue. */
static __noinline bool queue_key_fill(struct queue_key *k, const struct Qdisc *q)
{
	char kind[16] = {};

	if (KEY_WANTS(kind) || only_kind[0])
		BPF_CORE_READ_STR_INTO(&kind, q, ops, id);
	if (!kind_wanted(kind) || !dev_key_fill(&k->dev, BPF_CORE_READ(q, dev_queue, dev)))
		return false;
	if (KEY_WANTS(kind))
		__builtin_memcpy(k->kind, kind, sizeof(kind));
	if (KEY_WANTS(handle))
		k->handle = BPF_CORE_READ(q, handle);
	if (KEY_WANTS(parent))
		k->parent = BPF_CORE_READ(q, parent);
	return true;
}

static __noinline struct queue_value *queue_at(const struct Qdisc *q)
{
	struct queue_key k = {};

	return queue_key_fill(&k, q) ? count_at(COUNTED(queues), &k, &queue_zero) : NULL;
}

#define ADD(q, field) ADD_N(q, field, 1)
#define ADD_N(q, field, n)                                                     \
	({                                                                     \
		struct queue_value *__v = queue_at(q);                         \
		__u64 __n = n;                                                 \
									       \
		if (__v)                                                       \
			__sync_fetch_and_add(&__v->field, __n);                \
		0;                                                             \
	})

/* The queue that skb goes to, NULL if the device has none (noqueue) or a filter
 * excludes it.
 */
static __always_inline const struct Qdisc *queue_of(const struct sk_buff *skb, const struct net_device *dev)
{
	const struct netdev_queue *txq = (void *)BPF_CORE_READ(dev, _tx) +
					 BPF_CORE_READ(skb, queue_mapping) * bpf_core_type_size(struct netdev_queue);
	const struct Qdisc *q = BPF_CORE_READ(txq, qdisc);
	struct queue_key k = {};

	if (!q || !BPF_CORE_READ(q, enqueue))
		return NULL;
	if ((filter_on || only_kind[0]) && !queue_key_fill(&k, q))
		return NULL;
	return q;
}

KTRACE(queue, net_dev_queue, const struct sk_buff *skb)
{
	struct queued e = { .state = OFFERED };

	e.q = queue_of(skb, BPF_CORE_READ(skb, dev));
	if (!e.q)
		return 0;
	e.ts = bpf_ktime_get_ns();
	span_begin(&packets, &skb, &e);
	return 0;
}

/* Since 5.15: it is in the queue now, after the wait for the queue's lock. A
 * packet that was cut is freed, and must not be read.
 */
KTRACE(enqueue, qdisc_enqueue, const struct Qdisc *q, const void *txq, const struct sk_buff *skb)
{
	struct queued *e = bpf_map_lookup_elem(&packets, &skb);
	struct splits *s;

	if (!e || e->state != OFFERED)
		return 0;
	e->state = WAITING;
	e->ts = bpf_ktime_get_ns();
	s = splits_of(q);
	if (s) {
		run_put(s, 0, 1);
		split_sync(s, BPF_CORE_READ(q, q.qlen), 0);
	}
	return 0;
}

/* A packet has left its queue. Not static: it is verified by itself, once. */
__noinline int left(__u64 qdisc, __u64 packet)
{
	const struct sk_buff *skb = (void *)packet;
	const struct Qdisc *q = (void *)qdisc;
	struct queue_value *v = queue_at(q);
	__u64 now = bpf_ktime_get_ns(), ts;
	struct queued *e;

	if (!v)
		return 0;
	__sync_fetch_and_add(&v->dequeued, 1);
	e = bpf_map_lookup_elem(&packets, &skb);
	if (e && e->state == TAKEN) {
		__sync_fetch_and_add(&v->requeued, 1);
		return 0;
	}
	if (e) {
		struct splits *s = splits_of(q);

		e->state = TAKEN;
		ts = e->ts;
		if (s)
			run_take(s, true);
	} else {
		struct queued piece = { .q = q, .state = TAKEN };

		ts = split_take(q, skb);
		if (!ts) {
			__sync_fetch_and_add(&v->unknown, 1);
			return 0;
		}
		__sync_fetch_and_add(&v->split, 1);
		span_begin(&packets, &skb, &piece);
	}
	hist_put(&v->hist, (now - ts) / 1000);
	return 0;
}

/* Several at once, as a list: up to 64 more than the first (dev_weight). */
#define BULK 128

KTRACE(dequeue, qdisc_dequeue, const struct Qdisc *q, const void *txq, int packets, const struct sk_buff *skb)
{
	__u64 plain[4] = {}; /* of the arguments: left() takes no pointers */
	struct splits *s = splits_of(q);

	if (s)
		split_sync(s, BPF_CORE_READ(q, q.qlen), skb ? packets : 0);
	if (!skb) /* nothing was there, or nothing may leave yet */
		return 0;
	bpf_probe_read_kernel(plain, sizeof(plain), ctx);
	for (int i = 0; i < BULK; i++) {
		if (i >= packets)
			break;
		left(plain[0], plain[3]);
		plain[3] = (__u64)BPF_CORE_READ((struct sk_buff *)plain[3], next);
	}
	return 0;
}

KTRACE(gone, qdisc_destroy, const struct Qdisc *q)
{
	if (cutting)
		bpf_map_delete_elem(&splits, &q);
	return 0;
}

/* A packet that has not left the queue bypassed it, because it was empty. */
KTRACE(transmit, net_dev_start_xmit, const struct sk_buff *skb)
{
	struct queued *e = bpf_map_lookup_elem(&packets, &skb);

	if (!e)
		return 0;
	if (e->state == OFFERED)
		ADD(e->q, bypassed);
	bpf_map_delete_elem(&packets, &skb);
	return 0;
}

/* The driver gives it back, and it will leave the queue again. */
KTRACE(busy, net_dev_xmit, const struct sk_buff *skb, int rc, const struct net_device *dev)
{
	struct queued e = { .state = TAKEN };

	if (rc != XMIT_BUSY)
		return 0;
	e.q = queue_of(skb, dev);
	if (e.q)
		span_begin(&packets, &skb, &e);
	return 0;
}

/* Packets that were cut are consumed: by the queue, or behind it. A queue that
 * packets can bypass cuts none.
 */
KTRACE(consumed, consume_skb, const struct sk_buff *skb)
{
	const struct sk_buff *key = skb; /* what a map has looked at is no pointer for LOAD */
	struct queued *e = bpf_map_lookup_elem(&packets, &key);
	const struct Qdisc *q;

	if (only_kind[0])
		bpf_map_delete_elem(&children, &key);
	if (!e)
		return 0;
	q = e->q;
	if (e->state == OFFERED) {
		if (BPF_CORE_READ(q, flags) & TCQ_F_CAN_BYPASS)
			ADD(q, bypassed);
		else
			ADD_N(q, dropped, split_put(q, bpf_ktime_get_ns(), skb_segs(skb)));
	}
	bpf_map_delete_elem(&packets, &key);
	return 0;
}

KTRACE(dropped, kfree_skb, const struct sk_buff *skb)
{
	struct queued *e = bpf_map_lookup_elem(&packets, &skb);

	if (e) {
		if (e->state != TAKEN)
			ADD(e->q, dropped);
		bpf_map_delete_elem(&packets, &skb);
	}
	if (!only_kind[0])
		return 0;
	e = bpf_map_lookup_elem(&children, &skb);
	if (e) {
		ADD(e->q, dropped);
		bpf_map_delete_elem(&children, &skb);
	}
	return 0;
}

/* Queues below others, by the functions of one kind. Go attaches to
 * enqueue(skb, q, to_free), and to dequeue, which returns the packet.
 */
SEC("kprobe") int child__kprobe__enqueue(struct pt_regs *ctx)
{
	const struct sk_buff *skb = (void *)PT_REGS_PARM1(ctx);
	const struct Qdisc *q = (void *)PT_REGS_PARM2(ctx);
	struct queued e = { .q = q };

	if (BPF_CORE_READ(q, dev_queue, qdisc) == q)
		return 0; /* the tracepoints tell */
	e.ts = bpf_ktime_get_ns();
	span_begin(&children, &skb, &e);
	return 0;
}

static __always_inline int child_left(const struct sk_buff *skb)
{
	struct queue_value *v;
	struct queued *e;

	if (!skb)
		return 0;
	e = bpf_map_lookup_elem(&children, &skb);
	if (!e)
		return 0;
	v = queue_at(e->q);
	if (v) {
		__sync_fetch_and_add(&v->dequeued, 1);
		hist_put(&v->hist, (bpf_ktime_get_ns() - e->ts) / 1000);
	}
	bpf_map_delete_elem(&children, &skb);
	return 0;
}

SEC("kretprobe") int child__kprobe__dequeue(struct pt_regs *ctx)
{
	return child_left((void *)PT_REGS_RC(ctx));
}

/* For codel, which takes a packet out of the queue to peek at it. */
SEC("kretprobe") int child__kprobe__peek(struct pt_regs *ctx)
{
	return child_left((void *)PT_REGS_RC(ctx));
}
