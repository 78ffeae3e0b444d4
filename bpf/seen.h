/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* seen.h - the process that the table of owners has for a socket, kept with the socket.
 *
 * Each send and each receive asks whether the table still has the right process. The
 * kernel finds storage of the socket in a third of the time of a look-up in a hash.
 * Only sockets that are used often have such storage, and no more than seen_most. The
 * table stays the truth: an entry here only says that the table was right when the
 * entry was written.
 *
 * Two processes that use one socket at the same moment may leave an entry that the table
 * contradicts. So now and then the table is asked although there is an entry.
 *
 * Storage needs a socket whose type the verifier knows, and 5.11.
 */
#pragma once
#include "who.h"

struct seen {
	struct comm_words name;
	__u32 pid, exec;
	__u32 asked;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct seen);
} seen SEC(".maps");

/* Set by Go: at most so many sockets have an entry. */
const volatile __u32 seen_most = 0;
__u32 seen_count = 0;

#define SEEN_ASKS 64 /* one ask in so many goes to the table */

static __always_inline bool seen_works(void)
{
	return plain() && typed_task && seen_most;
}

/* Does the entry of sk say that the table is right? */
static __always_inline bool seen_still(const struct sock *sk)
{
	struct task_struct *task;
	struct comm_words name;
	struct seen *s = bpf_sk_storage_get(&seen, (void *)sk, NULL, 0);

	if (!s || !(++s->asked % SEEN_ASKS))
		return false;
	task = bpf_get_current_task_btf();
	if (s->pid != task->tgid || s->exec != (__u32)task->self_exec_id)
		return false;
	name = comm_load(typed_leader(task));
	return s->name.half[0] == name.half[0] && s->name.half[1] == name.half[1];
}

/* The table is right about sk and the current process. */
static __always_inline void seen_put(const struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct seen *s = bpf_sk_storage_get(&seen, (void *)sk, NULL, 0);

	if (!s) {
		if (seen_count >= seen_most)
			return;
		s = bpf_sk_storage_get(&seen, (void *)sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
		if (!s)
			return;
		__sync_fetch_and_add(&seen_count, 1);
	}
	s->name = comm_load(typed_leader(task));
	s->pid = task->tgid;
	s->exec = task->self_exec_id;
}

/* The table has nothing of sk from now on. */
static __always_inline void seen_end(const struct sock *sk)
{
	if (seen_works() && seen_count && !bpf_sk_storage_delete(&seen, (void *)sk))
		__sync_fetch_and_add(&seen_count, -1);
}
