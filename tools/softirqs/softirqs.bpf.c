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
COUNT_MAP(times, struct softirq_key, struct irq_value);

IRQ_BEGAN(began, VECTORS);
IRQ_BEGAN(raised, VECTORS);

static __always_inline bool wanted(__u32 vec)
{
	return vec < VECTORS && vectors >> vec & 1;
}

static __always_inline int took(__u32 vec, __u32 metric, __u64 ns)
{
	struct softirq_key k = { .softirq = vec, .cpu = bpf_get_smp_processor_id(), .metric = metric };

	return irq_took(&times, &k, ns);
}

/* Raised again before it runs, it is still the first time that it waits from. */
KTRACE(raise, softirq_raise, unsigned int vec)
{
	__u64 *t;

	if (!wanted(vec))
		return 0;
	t = bpf_map_lookup_elem(&raised, &vec);
	if (t && !*t)
		*t = bpf_ktime_get_ns();
	return 0;
}

KTRACE(entry, softirq_entry, unsigned int vec)
{
	if (!wanted(vec))
		return 0;
	if (waits)
		took(vec, METRIC_WAIT, irq_end(&raised, vec));
	if (counting)
		return took(vec, METRIC_RUN, 0);
	irq_begin(&began, vec);
	return 0;
}

KTRACE(exit, softirq_exit, unsigned int vec)
{
	return wanted(vec) ? took(vec, METRIC_RUN, irq_end(&began, vec)) : 0;
}
