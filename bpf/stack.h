/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* stack.h - user stacks, by id. Go turns them into names. For that it must read
 * the process's memory map while the process lives. So the first stack of
 * each process sends a notice.
 */
#pragma once
#include "who.h"

#define STACK_DEPTH 127
#ifndef STACKS
#define STACKS 4096
#endif

/* The kernel's map has one slot for each hash of a stack. If another stack has the
 * slot, the new one is refused. Four maps give four slots.
 */
#define STACK_MAP(name)                                                        \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_STACK_TRACE);                        \
		__uint(max_entries, STACKS / 4);                               \
		__uint(key_size, sizeof(__u32));                               \
		__uint(value_size, STACK_DEPTH * sizeof(__u64));               \
	} name SEC(".maps")

STACK_MAP(stacks);
STACK_MAP(stacks1);
STACK_MAP(stacks2);
STACK_MAP(stacks3);

/* Processes that a notice was sent for, with when they began: ids are reused. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} stack_pids SEC(".maps");

static __always_inline void stack_notice(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 since = BPF_CORE_READ(task, group_leader, start_time);
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 *seen = bpf_map_lookup_elem(&stack_pids, &pid);

	if (seen && *seen == since)
		return;
	bpf_map_update_elem(&stack_pids, &pid, &since, BPF_ANY);
	notice(pid);
}

/* An id, with the number of the map above its lower 24 bits; -1 if there is no
 * stack, or if it cannot be kept, which is counted.
 */
static __always_inline __s32 stack_keep(void *ctx, __u64 flags)
{
	long id = bpf_get_stackid(ctx, &stacks, flags);

	if (id >= 0)
		return id;
	if (id == -14 /* EFAULT: a task without user memory, a moment outside of the kernel */)
		return -1;
	id = bpf_get_stackid(ctx, &stacks1, flags);
	if (id >= 0)
		return id | 1 << 24;
	id = bpf_get_stackid(ctx, &stacks2, flags);
	if (id >= 0)
		return id | 2 << 24;
	id = bpf_get_stackid(ctx, &stacks3, flags);
	if (id >= 0)
		return id | 3 << 24;
	lose(LOSS_STACK);
	return -1;
}

/* The current kernel stack without the first skip frames; negative when there
 * is none.
 */
static __always_inline __s32 kernel_stack(void *ctx, __u32 skip)
{
	return stack_keep(ctx, skip & 0xff);
}

/* The current user stack; negative when there is none. */
static __always_inline __s32 user_stack(void *ctx)
{
	__s32 id = stack_keep(ctx, BPF_F_USER_STACK);

	if (id >= 0)
		stack_notice();
	return id;
}
