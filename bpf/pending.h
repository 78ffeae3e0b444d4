/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* pending.h - operations that have begun and not ended.
 *
 * PENDING(point, map, K, V) { body of (key, value) }: a program that runs over
 * each entry of a SPAN map, when a run ends and at each interval. Its body
 * reports the entry like an end: its start, its process, and the current values
 * of the socket. Go: tool.Pending.
 *
 * Programs of the tool may write to the map meanwhile. An entry that is
 * inserted before it is filled in has no start until then.
 */
#pragma once
#include "event.h"

#define PENDING(point, map, K, V)                                              \
	static __always_inline int ____##point##_##map(K key, const V *value); \
	SEC("iter/bpf_map_elem") int point##__iter__##map(struct bpf_iter__bpf_map_elem *ctx) \
	{                                                                      \
		K *key = ctx->key;                                             \
		const V *value = ctx->value;                                   \
									       \
		if (!key || !value)                                            \
			return 0;                                              \
		return ____##point##_##map(*key, value);                       \
	}                                                                      \
	static __always_inline int ____##point##_##map(K key, const V *value)

/* PENDING_CALL(point, map, V) { body of (task, value) }: the same for calls
 * that threads are in, kept by thread. The thread gives the process.
 */
#define PENDING_CALL(point, map, V)                                            \
	static __always_inline int ____##point##_##map(struct task_struct *task, const V *value); \
	SEC("iter/task") int point##__iter__##map(struct bpf_iter__task *ctx)  \
	{                                                                      \
		struct task_struct *task = ctx->task;                          \
		__u64 thread;                                                  \
		const V *value;                                                \
									       \
		if (!task)                                                     \
			return 0;                                              \
		thread = (__u64)BPF_CORE_READ(task, tgid) << 32 | BPF_CORE_READ(task, pid); \
		value = bpf_map_lookup_elem(&map, &thread);                    \
		return value ? ____##point##_##map(task, value) : 0;           \
	}                                                                      \
	static __always_inline int ____##point##_##map(struct task_struct *task, const V *value)
