/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* irq.h - how long interrupts of either kind take, as histograms by key. The key
 * always names the processor, so that no two of them write to the same memory;
 * Go adds up what was not asked for. Go: tool.Times.
 */
#pragma once
#include "count.h"
#include "hist.h"

const volatile bool counting = false; /* how often, and not how long */

struct irq_value {
	struct hist hist;
};
static const struct irq_value irq_zero = {};

/* When what runs on this processor began; an interrupt does not leave its
 * processor, and those of one kind do not interrupt each other.
 */
#define IRQ_BEGAN(name, slots)                                                 \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                       \
		__uint(max_entries, slots);                                    \
		__type(key, __u32);                                            \
		__type(value, __u64);                                          \
	} name SEC(".maps")

static __always_inline void irq_begin(void *began, __u32 slot)
{
	__u64 *t = bpf_map_lookup_elem(began, &slot);

	if (t)
		*t = bpf_ktime_get_ns();
}

/* How long it has been since it began, which is then forgotten; NONE: nobody
 * saw it begin.
 */
static __always_inline __u64 irq_end(void *began, __u32 slot)
{
	__u64 *t = bpf_map_lookup_elem(began, &slot);
	__u64 ns;

	if (!t || !*t)
		return NONE;
	ns = bpf_ktime_get_ns() - *t;
	*t = 0;
	return ns;
}

static __always_inline int irq_took(void *map, const void *key, __u64 ns)
{
	struct irq_value *v;

	if (ns == NONE)
		return 0;
	v = count_at(map, key, &irq_zero);
	if (!v)
		return 0;
	/* Of adding a known 0 the compiler makes an atomic that 5.10 does not have. */
	asm volatile("" : "+r"(ns));
	hist_put(&v->hist, ns);
	return 0;
}
