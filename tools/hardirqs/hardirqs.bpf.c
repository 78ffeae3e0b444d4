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
COUNT_MAP(times, struct hardirq_key, struct irq_value);

IRQ_BEGAN(began, 1);

static __always_inline int took(int irq, const struct irqaction *action, __u64 ns)
{
	struct hardirq_key k = { .irq = irq, .cpu = bpf_get_smp_processor_id() };

	bpf_probe_read_kernel_str(k.hardirq, sizeof(k.hardirq), BPF_CORE_READ(action, name));
	return irq_took(&times, &k, ns);
}

KTRACE(entry, irq_handler_entry, int irq, const struct irqaction *action)
{
	if (counting)
		return took(irq, action, 0);
	irq_begin(&began, 0);
	return 0;
}

KTRACE(exit, irq_handler_exit, int irq, const struct irqaction *action)
{
	return took(irq, action, irq_end(&began, 0));
}
