/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* count.h - counts and bytes by key, kept in the kernel. Go: kern.Count. */
#pragma once
#include "event.h"

struct count {
	__u64 count, bytes;
};

#define COUNT_MAP(name, K, V)                                                  \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_HASH);                               \
		__uint(max_entries, 1024);                                     \
		__type(key, K);                                                \
		__type(value, V);                                              \
	} name SEC(".maps")

/* The value of a key, made from zero when it is new; NULL when the map is full,
 * which is counted.
 */
static __always_inline void *count_at(void *map, const void *key, const void *zero)
{
	void *v = bpf_map_lookup_elem(map, key);

	if (v)
		return v;
	bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
	v = bpf_map_lookup_elem(map, key);
	if (!v)
		lose(LOSS_MAP);
	return v;
}

/* Which fields of its key a counting tool fills: bits of the tool's own enum
 * key_bits { KEY_pid, KEY_comm, … }, named after the fields. Set by Go.
 */
const volatile __u64 key_mask = 0;
#define KEY_WANTS(field) (key_mask & 1ULL << KEY_##field)

/* Keeps an enum in the object's BTF. */
#define KEEP_ENUM(type) const volatile type keep_enum = 0
