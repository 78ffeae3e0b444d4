/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* count.h - counts and bytes by key, kept in the kernel. Go: kern.Count. */
#pragma once
#include "event.h"

struct count {
	__u64 count, bytes;
};

/* COUNT_MAP(name, K, V): two maps, name and name_odd. Programs write to
 * COUNTED(name). At each tick Go adds one to count_epoch, waits until all
 * programs that may have read the old number have ended (a grace period of
 * RCU), then reads and empties the map that nobody writes to. So each event is
 * in exactly one output, idle keys take no room, and values begin at zero.
 *
 * Without ticks there is one output: count_ticks is false, and the verifier
 * removes the second map from the programs. Go: tool.Snapshot.
 */
#define COUNT_MAP(name, K, V) COUNT_MAP_OF(BPF_MAP_TYPE_HASH, name, K, V, 1024)
#define COUNT_MAP_OF(kind, name, K, V, most)                                   \
	COUNT_MAP_ONE(kind, name, K, V, most);                                 \
	COUNT_MAP_ONE(kind, name##_odd, K, V, most)
#define COUNT_MAP_ONE(kind, name, K, V, most)                                  \
	struct {                                                               \
		__uint(type, kind);                                            \
		__uint(max_entries, most);                                     \
		__type(key, K);                                                \
		__type(value, V);                                              \
	} name SEC(".maps")

const volatile bool count_ticks = false;
volatile __u64 count_epoch = 0;

/* Both maps, as the first arguments of count_at and count_find. */
#define COUNTED(name) &name, &name##_odd

static __always_inline bool count_odd(void)
{
	return count_ticks && count_epoch & 1;
}

/* Either map has code of its own, up to here: if the verifier knows the map, the kernel calls the
 * look-up of its type directly, and that in an array becomes a few instructions. The
 * compiler would make one call of two with different arguments.
 */
#define COUNT_APART(v) asm volatile("" : "+r"(v))

/* The value of a key, NULL if there is none. */
static __always_inline void *count_find(void *even, void *odd, const void *key)
{
	void *v;

	if (count_odd()) {
		v = bpf_map_lookup_elem(odd, key);
		COUNT_APART(v);
	} else {
		v = bpf_map_lookup_elem(even, key);
		COUNT_APART(v);
	}
	return v;
}

/* count_at in a map that is not one of two. */
static __always_inline void *count_in(void *map, const void *key, const void *zero)
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

/* The value of a key, zero if the key is new; NULL if the map is full, which is
 * counted.
 */
static __always_inline void *count_at(void *even, void *odd, const void *key, const void *zero)
{
	void *v;

	if (count_odd()) {
		v = count_in(odd, key, zero);
		COUNT_APART(v);
	} else {
		v = count_in(even, key, zero);
		COUNT_APART(v);
	}
	return v;
}

/* Which fields of its key a counting tool fills: bits of the tool's own enum
 * key_bits { KEY_pid, KEY_comm, … }, named after the fields. Set by Go.
 */
const volatile __u64 key_mask = 0;
#define KEY_WANTS(field) (key_mask & 1ULL << KEY_##field)

/* Keeps an enum in the object's BTF. */
#define KEEP_ENUM(type) const volatile type keep_enum = 0
