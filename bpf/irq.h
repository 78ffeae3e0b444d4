/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* irq.h - how long interrupts of either kind take. Each processor has its own
 * counts, and interrupts of one kind do not interrupt each other. So each count
 * has one writer and needs no atomics; Go adds them up. Go: tool.Times.
 *
 * Each interrupt looks up its counts by a small key. The fields that users can
 * group by are written once, beside the counts.
 */
#pragma once
#include "count.h"
#include "hist.h"

const volatile bool counting = false; /* how often, and not how long */
const volatile bool dist = false;     /* the slots of histograms are asked for */

struct irq_value {
	struct hist hist;
};

/* The time since the start, which is then cleared; NONE: the start was not
 * seen.
 */
static __always_inline __u64 irq_end(__u64 *began)
{
	__u64 ns;

	if (!*began)
		return NONE;
	ns = bpf_ktime_get_ns() - *began;
	*began = 0;
	return ns;
}

static __always_inline int irq_put(struct irq_value *v, __u64 ns)
{
	struct hist *h = &v->hist;
	__u32 slot;

	if (!counting)
		hist_bounds(h, ns);
	h->count++;
	if (counting)
		return 0;
	h->sum += ns;
	if (!dist)
		return 0;
	slot = hist_slot(ns);
	/* as in hist_put */
	asm volatile("" : "+r"(slot));
	if (slot < HIST_SLOTS)
		h->slots[slot]++;
	return 0;
}
