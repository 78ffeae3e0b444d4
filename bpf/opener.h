/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* opener.h - which process opened a socket other than TCP.
 *
 * A packet may leave in softirq, if it had to wait for its neighbour's
 * address; then the current task is unrelated. So the opener is recorded at
 * socket(2), and for older sockets by one walk over all files. (TCP: see
 * owner.h.)
 *
 * The tool that includes this header defines opener_kept(): the sockets to
 * keep. A reused address is recorded again when it is opened, so entries need
 * no end: the oldest make room. A missing entry is counted when its socket is
 * looked up.
 */
#pragma once
#include "fd.h"
#include "syscall.h"
#include "who.h"

static __always_inline bool opener_kept(const struct sock *sk);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct who);
} openers SEC(".maps");

static __always_inline bool opener_get(struct who *w, const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct who *found = bpf_map_lookup_elem(&openers, &key);

	if (!found) {
		lose(LOSS_OWNER);
		return false;
	}
	*w = *found;
	return true;
}

SYS_EXIT(opener, socket)
{
	struct sock *sk = ret >= 0 ? fd_sock(ret) : NULL;
	__u64 key = (__u64)sk;
	struct who w = {};

	if (sk && opener_kept(sk) && who_current(&w))
		bpf_map_update_elem(&openers, &key, &w, BPF_ANY);
	return 0;
}

/* Runs once, after the others are attached. */
SEC("iter/task_file") int owner_seed__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct who w = {};
	struct sock *sk;
	__u64 key;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk || !opener_kept(sk))
		return 0;
	who_task(&w, task);
	key = (__u64)sk;
	bpf_map_update_elem(&openers, &key, &w, BPF_NOEXIST);
	return 0;
}
