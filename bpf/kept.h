/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* kept.h - a process in an entry of a map, written and read at the same time.
 *
 * A struct who is seven words. Writing it in place while another processor copies it
 * would mix two processes. So a checksum goes with it, and a reader takes only a copy
 * that matches. That needs neither a lock nor an atomic operation that 5.10 lacks.
 *
 * The entry may also become another socket's: the kernel uses the memory of an entry
 * again at once, even while a program still has a pointer to it. So the key stands
 * before and behind the data, and a reader checks both after the copy. The checksum
 * cannot include the key: the verifier forbids arithmetic with a pointer.
 *
 * There are two copies. A writer never touches the valid one, so a reader that
 * interrupts it still finds that. Two writers at once may spoil the other copy. Then
 * readers see the process before them.
 */
#pragma once
#include "who.h"

struct kept_copy {
	__u64 before; /* the key of the entry */
	struct who who;
	__u64 sum;
	__u64 behind; /* the key again */
};
struct kept {
	struct kept_copy copy[2];
	__u8 which;  /* the copy that was written last */
	__u8 right;  /* how often the process was right, up to KEPT_OFTEN */
	__u16 flags; /* of the table: OWNER_BORN and so on */
	__u32 exec;  /* who_exec() of it; 0 if it was found */
};

static __always_inline __u64 kept_sum(const struct who *w)
{
	const __u64 *word = (const void *)w;
	__u64 sum = 0x9e3779b97f4a7c15; /* memory of zeros is not whole */

#pragma unroll
	for (int i = 0; i < sizeof(*w) / 8; i++)
		sum += word[i] * (0xbf58476d1ce4e5b9 + 0x94d049bb133111ea * i);
	return sum;
}

/* Copy one of the two, and the key that it has. 0 if nothing was written to it meanwhile. It is
 * one number, and not three comparisons: the verifier walks what follows a comparison for each
 * of its outcomes.
 */
static __always_inline __u64 kept_copy(struct who *w, const struct kept_copy *c, __u64 *key)
{
	*w = c->who;
	asm volatile("" : : "r"(w) : "memory"); /* what is summed up is the copy */
	*key = c->before;
	return (c->sum ^ kept_sum(w)) | (*key ^ c->behind);
}

/* The number of the copy that was written last. The compiler does not see that there are only
 * two numbers. Else it would make a branch for each, and the verifier would walk all that
 * follows twice.
 */
static __always_inline __u64 kept_last(const struct kept *k)
{
	__u64 which = k->which & 1;

	asm volatile("" : "+r"(which));
	return which & 1;
}

/* Set the process of an entry that nobody else sees yet. */
static __always_inline void kept_init(struct kept *k, __u64 key)
{
	k->copy[0].before = key;
	k->copy[0].sum = kept_sum(&k->copy[0].who);
	k->copy[0].behind = key;
}

/* Set the process of an entry that others may read or write now. */
static __always_inline void kept_set(struct kept *k, const struct who *w, __u32 exec, __u64 key)
{
	__u64 which = kept_last(k);
	struct kept_copy *c = &k->copy[which];

	if (c->sum == kept_sum(&c->who)) {
		which = which + 1 & 1;
		c = &k->copy[which];
	}
	c->before = key;
	c->who = *w;
	c->sum = kept_sum(w);
	c->behind = key;
	asm volatile("" : : : "memory");
	k->which = which;
	k->exec = exec;
}

/* Copy the process out of an entry: w->pid is 0 if it has none. False if neither copy is valid, or
 * the entry is another socket's by now; then w is nobody.
 */
static __always_inline bool kept_get(struct who *w, const struct kept *k, __u64 key)
{
	__u64 which = kept_last(k), has;

	if ((!kept_copy(w, &k->copy[which], &has) || !kept_copy(w, &k->copy[which + 1 & 1], &has)) && has == key)
		return true;
	__builtin_memset(w, 0, sizeof(*w));
	return false;
}

#define KEPT_OFTEN 8

/* The process was right. 1 if it was right often before. */
static __always_inline int kept_often(struct kept *k)
{
	if (k->right >= KEPT_OFTEN)
		return 1;
	k->right++;
	return 0;
}

/* Is the current process the one that was written last? */
static __always_inline bool kept_still(const struct kept *k)
{
	return who_still(&k->copy[kept_last(k)].who, k->exec);
}
