//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* profile - what processors are doing, sampled n times a second. */
#define STACKS 16384
#include "count.h"
#include "stack.h"

const volatile __u64 period = 0;       /* nanoseconds that a sample stands for */
const volatile bool show_idle = false; /* processors that do nothing, too */

struct sample_key {
	__u32 pid, tid, uid, cpu;
	char comm[16], thread[16];
	__s32 kstack, ustack;
	__s32 layer; /* the kernel stack too, of which Go sees the layer */
	__u32 pad;
};
struct sample_count {
	__u64 count, ns;
};
enum key_bits { KEY_pid, KEY_tid, KEY_uid, KEY_cpu, KEY_comm, KEY_thread, KEY_kstack, KEY_ustack, KEY_layer };
KEEP_ENUM(enum key_bits);
COUNT_MAP(samples, struct sample_key, struct sample_count);

#define THREAD_SIZE (16 << 10)

/* Is the processor idle? Then it runs the idle task on its own stack. An
 * interrupt, such as most of the network's on a quiet machine, has another stack.
 */
static __always_inline bool idle(struct pt_regs *ctx, struct task_struct *task)
{
	return !bpf_get_current_pid_tgid() && PT_REGS_SP(ctx) - (__u64)BPF_CORE_READ(task, stack) < THREAD_SIZE;
}

SEC("perf_event") int sample__perf(struct pt_regs *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct sample_count zero = {}, *c;
	struct sample_key k = {};
	struct who w = {};

	if (is_self() || (!show_idle && idle(ctx, task)))
		return 0;
	if (!who_current(&w))
		who_task(&w, task); /* kernel threads are somebody here */
	if (!who_wanted(&w))
		return 0;
	if (KEY_WANTS(pid))
		k.pid = w.pid;
	if (KEY_WANTS(tid))
		k.tid = w.tid;
	if (KEY_WANTS(uid))
		k.uid = w.uid;
	if (KEY_WANTS(cpu))
		k.cpu = bpf_get_smp_processor_id();
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, w.comm, sizeof(k.comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k.thread, w.thread, sizeof(k.thread));
	k.kstack = -1;
	k.ustack = -1;
	k.layer = -1;
	if (KEY_WANTS(kstack) || KEY_WANTS(layer)) {
		__s32 id = kernel_stack(ctx, 0);

		if (KEY_WANTS(kstack))
			k.kstack = id;
		if (KEY_WANTS(layer))
			k.layer = id;
	}
	if (KEY_WANTS(ustack)) {
		k.ustack = user_stack(ctx);
		/* The addresses of a stack are useless without the process. */
		k.pid = w.pid;
	}
	c = count_at(COUNTED(samples), &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, 1);
	__sync_fetch_and_add(&c->ns, period);
	return 0;
}
