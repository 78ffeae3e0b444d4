/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* hist.h - histograms kept in the kernel: values 0 to 7 have a slot each, then
 * every power of two up to 2^40 has eight slots. Go: kern.Hist.
 */
#pragma once
#include "event.h"

#define HIST_SLOTS 304

struct hist {
	__u64 count, sum;
	__u64 min, max;
	__u64 slots[HIST_SLOTS];
};

static __always_inline __u32 log2_floor(__u64 v)
{
	__u32 e = 0;

	if (v >> 32) { e += 32; v >>= 32; }
	if (v >> 16) { e += 16; v >>= 16; }
	if (v >> 8) { e += 8; v >>= 8; }
	if (v >> 4) { e += 4; v >>= 4; }
	if (v >> 2) { e += 2; v >>= 2; }
	return e + (v >> 1);
}

static __always_inline __u32 hist_slot(__u64 v)
{
	__u32 e, slot;

	if (v < 8)
		return v;
	e = log2_floor(v);
	slot = 8 * (e - 2) + (v >> (e - 3) & 7);
	return slot < HIST_SLOTS ? slot : HIST_SLOTS - 1;
}

/* Called before v is counted. 5.10 has no atomic minimum: if two processors
 * write at the same time, one value may be lost. Then Go takes the bound from
 * the slots, which are exact (kern.Hist.Cell).
 */
static __always_inline void hist_bounds(struct hist *h, __u64 v)
{
	if (!h->count || v < h->min)
		h->min = v;
	if (v > h->max)
		h->max = v;
}

static __always_inline void hist_put_at(struct hist *h, __u64 v, __u32 slot)
{
	hist_bounds(h, v);
	__sync_fetch_and_add(&h->count, 1);
	__sync_fetch_and_add(&h->sum, v);
	/* The compiler knows that the slot is in range; the verifier must see it. */
	asm volatile("" : "+r"(slot));
	if (slot < HIST_SLOTS)
		__sync_fetch_and_add(&h->slots[slot], 1);
}

static __always_inline void hist_put(struct hist *h, __u64 v)
{
	hist_put_at(h, v, hist_slot(v));
}
