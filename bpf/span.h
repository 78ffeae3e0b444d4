/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* span.h - remember a start, take it at the end. It is a plain hash: a start that does
 * not fit is counted as lost, and no older start is evicted for it.
 */
#pragma once
#include "event.h"

#define SPAN(name, K, V) SPAN_OF(name, K, V, 10240)
#define SPAN_OF(name, K, V, most)                                              \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_HASH);                               \
		__uint(max_entries, most);                                     \
		__type(key, K);                                                \
		__type(value, V);                                              \
	} name SEC(".maps")

/* THREAD_SPAN(name, V): the call that each thread is in. It is for calls that are too
 * frequent to insert and delete an entry each time. The tool marks the entry as over,
 * and the thread's next call overwrites it. THREAD_END(name) is the program (point
 * thread) that deletes the entry when the thread ends.
 */
#define THREAD_SPAN(name, V) SPAN_OF(name, __u64, V, 32768)

#define THREAD_END(name)                                                       \
	KTRACE(thread, sched_process_exit, struct task_struct *task)           \
	{                                                                      \
		__u64 thread = bpf_get_current_pid_tgid();                     \
									       \
		bpf_map_delete_elem(&name, &thread);                           \
		return 0;                                                      \
	}

static __always_inline void span_begin(void *map, const void *key, const void *value)
{
	if (bpf_map_update_elem(map, key, value, BPF_ANY))
		lose(LOSS_SPAN);
}

/* The same with a count of the entries. While the count is 0, the lookup can be
 * left out.
 */
static __always_inline void span_begin_counted(void *map, const void *key, const void *value, __u64 *count)
{
	int err = bpf_map_update_elem(map, key, value, BPF_NOEXIST);

	if (!err)
		__sync_fetch_and_add(count, 1);
	else if (err != -17 /* EEXIST */ || bpf_map_update_elem(map, key, value, BPF_EXIST))
		lose(LOSS_SPAN);
}

static __always_inline void span_end_counted(void *map, const void *key, __u64 *count)
{
	int err = bpf_map_delete_elem(map, key);

	if (!err)
		__sync_fetch_and_add(count, -1);
}
