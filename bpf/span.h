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
