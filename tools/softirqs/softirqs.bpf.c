//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* softirqs - how often softirqs run, for how long, and how long they waited. */
#include "irq.h"

#define VECTORS 16 /* there are 10 */

const volatile __u32 vectors = ~0u; /* that are wanted, a bit each */
const volatile bool waits = false;  /* from raise to run, too */

enum irq_metric { METRIC_RUN, METRIC_WAIT }; /* Go: metric */

struct softirq_key {
	__u32 softirq;
	__u32 cpu;
	__u32 metric;
	__u32 pad;
};
enum key_bits { KEY_softirq, KEY_cpu, KEY_metric };
KEEP_ENUM(enum key_bits);

/* Times so far on this processor, by metric and vector. */
struct softirq_times {
	struct irq_value value;
	struct softirq_key key;
};
COUNT_MAP_OF(BPF_MAP_TYPE_PERCPU_ARRAY, times, __u32, struct softirq_times, 2 * VECTORS);

/* The start of what runs or waits on this processor. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * VECTORS);
	__type(key, __u32);
	__type(value, __u64);
} begins SEC(".maps");

/* NULL: not wanted. */
static __always_inline __u64 *began(__u32 vec, __u32 metric)
{
	__u32 i = metric * VECTORS + vec;

	return vec < VECTORS && vectors >> vec & 1 ? bpf_map_lookup_elem(&begins, &i) : NULL;
}

static __always_inline int took(__u32 vec, __u32 metric, __u64 ns)
{
	__u32 i = metric * VECTORS + vec;
	struct softirq_times *t;

	if (ns == NONE || vec >= VECTORS || !(vectors >> vec & 1))
		return 0;
	t = count_find(COUNTED(times), &i);
	if (!t)
		return 0;
	if (!t->value.hist.count) {
		t->key.softirq = vec;
		t->key.cpu = bpf_get_smp_processor_id();
		t->key.metric = metric;
		barrier();
	}
	return irq_put(&t->value, ns);
}

/* If it is raised again before it runs, the wait counts from the first raise. */
KTRACE(raise, softirq_raise, unsigned int vec)
{
	__u64 *t = began(vec, METRIC_WAIT);

	if (t && !*t)
		*t = bpf_ktime_get_ns();
	return 0;
}

KTRACE(entry, softirq_entry, unsigned int vec)
{
	__u64 *t;

	if (waits && (t = began(vec, METRIC_WAIT)))
		took(vec, METRIC_WAIT, irq_end(t));
	if (counting)
		return took(vec, METRIC_RUN, 0);
	t = began(vec, METRIC_RUN);
	if (t)
		*t = bpf_ktime_get_ns();
	return 0;
}

KTRACE(exit, softirq_exit, unsigned int vec)
{
	__u64 *t = began(vec, METRIC_RUN);

	return t ? took(vec, METRIC_RUN, irq_end(t)) : 0;
}
