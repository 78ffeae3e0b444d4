//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* hardirqs - how often handlers of device interrupts run, and for how long. */
#include "irq.h"

struct hardirq_key {
	__u32 irq;
	__u32 cpu;
	char hardirq[40]; /* its name; devices that share a line have one each */
};
enum key_bits { KEY_irq, KEY_cpu, KEY_hardirq };
KEEP_ENUM(enum key_bits);

/* The place of its counts: the first place of the line with its name. */
struct hardirq_place {
	__u32 irq;
	__u32 cpu;
	__u32 nth; /* of the devices that share the line */
};
#define SHARED 16 /* that may */

struct hardirq_times {
	struct irq_value value;
	struct hardirq_key key;
};
static const struct hardirq_times times_zero = {};
COUNT_MAP(times, struct hardirq_place, struct hardirq_times);

/* When the handler that runs on this processor began. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} began SEC(".maps");

#define WORDS (sizeof(((struct hardirq_key *)0)->hardirq) / 8)

/* Is name the text at the start of memory? It compares words, because it runs
 * at each interrupt. Bytes behind the end of the text do not matter.
 */
static __always_inline bool is_named(const __u64 *name, const __u64 *memory)
{
#pragma unroll
	for (int i = 0; i < WORDS; i++) {
		__u64 w = name[i], differs = w ^ memory[i];
		__u64 ends = (w - 0x0101010101010101) & ~w & 0x8080808080808080; /* its lowest bit is in the first NUL */

		if (ends)
			return !(differs & (((ends & -ends) << 1) - 1));
		if (differs)
			return false;
	}
	return true;
}

static __always_inline int took(int irq, const struct irqaction *action, __u64 ns)
{
	struct hardirq_place at = { .irq = irq, .cpu = bpf_get_smp_processor_id() };
	const char *name = LOAD(action, name);
	struct hardirq_times *t;
	__u64 memory[WORDS];

	/* It does not search for the end of the text, which costs less. The
	 * memory behind it may not exist.
	 */
	if (bpf_probe_read_kernel(memory, sizeof(memory), name))
		bpf_probe_read_kernel_str(memory, sizeof(memory), name);
	memory[WORDS - 1] &= ~0ULL >> 8;
	for (int nth = 0; nth < SHARED; nth++) {
		at.nth = nth;
		t = count_at(COUNTED(times), &at, &times_zero);
		if (!t)
			return 0;
		if (!t->value.hist.count) {
			t->key.irq = irq;
			t->key.cpu = at.cpu;
			bpf_probe_read_kernel_str(t->key.hardirq, sizeof(t->key.hardirq), name);
		}
		if (is_named((void *)t->key.hardirq, memory))
			return irq_put(&t->value, ns);
	}
	lose(LOSS_MAP);
	return 0;
}

KTRACE(entry, irq_handler_entry, int irq, const struct irqaction *action)
{
	__u32 zero = 0;
	__u64 *t;

	if (counting)
		return took(irq, action, 0);
	t = bpf_map_lookup_elem(&began, &zero);
	if (t)
		*t = bpf_ktime_get_ns();
	return 0;
}

KTRACE(exit, irq_handler_exit, int irq, const struct irqaction *action)
{
	__u32 zero = 0;
	__u64 *t = bpf_map_lookup_elem(&began, &zero), ns;

	ns = t ? irq_end(t) : NONE;
	return ns == NONE ? 0 : took(irq, action, ns);
}
