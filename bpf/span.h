/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* span.h - remember at the beginning, take at the end. A plain hash: what does
 * not fit is counted, and nothing that is under way is thrown out for it.
 */
#pragma once
#include "event.h"

#define SPAN(name, K, V)                                                       \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_HASH);                               \
		__uint(max_entries, 10240);                                    \
		__type(key, K);                                                \
		__type(value, V);                                              \
	} name SEC(".maps")

static __always_inline void span_begin(void *map, const void *key, const void *value)
{
	if (bpf_map_update_elem(map, key, value, BPF_ANY))
		lose(LOSS_SPAN);
}

/* The same with a count of what is under way: while that is 0, nothing need be
 * looked for.
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
