/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* who.h - the current task, or another one, as a struct who. */
#pragma once
#include "filter.h"

/* A tool that only counts by keys defines WHO_KEYED, and its enum key_bits, before
 * this header. Then only the fields that a key or a filter asks for are
 * looked up.
 */
#ifdef WHO_KEYED
#define WHO_NEEDS(field, filters) (KEY_WANTS(field) || filter_on & (filters))
#define WHO_THREAD KEY_WANTS(thread)
#else
#define WHO_NEEDS(field, filters) true
#define WHO_THREAD who_thread
#endif

/* Set by Go: rows show the thread's name. Others do not pay for it. */
const volatile bool who_thread = false;

static __always_inline __u64 cgroup_ancestor(struct cgroup *cg, int level)
{
	if (level > BPF_CORE_READ(cg, level))
		return 0;
	struct cgroup___since61 *new = (void *)cg;
	struct cgroup___until60 *old = (void *)cg;

	if (bpf_core_field_exists(new->ancestors)) {
		struct cgroup *up = NULL;

		bpf_core_read(&up, sizeof(up), &new->ancestors[level & 0xff]);
		return BPF_CORE_READ(up, kn, id);
	} else {
		__u64 id = 0;

		bpf_core_read(&id, sizeof(id), &old->ancestor_ids[level & 0xff]);
		return id;
	}
}

static __always_inline void who_task(struct who *w, struct task_struct *task)
{
	struct cgroup *cg = BPF_CORE_READ(task, cgroups, dfl_cgrp);

	w->pid = BPF_CORE_READ(task, tgid);
	w->tid = BPF_CORE_READ(task, pid);
	w->uid = BPF_CORE_READ(task, cred, uid.val);
	w->cgroup = BPF_CORE_READ(cg, kn, id);
	if (filter_on & FILTER_CGROUP && cgroup_ancestor(cg, filter_cgroup_level) == filter_cgroup)
		w->flags |= WHO_IN_CGROUP;
	BPF_CORE_READ_STR_INTO(&w->comm, task, group_leader, comm);
	if (WHO_THREAD)
		BPF_CORE_READ_STR_INTO(&w->thread, task, comm);
}

/* The name of a task as the kernel keeps it, in two words. */
struct comm_words {
	__u64 half[2];
};

static __always_inline struct comm_words comm_load(const struct task_struct *typed)
{
	return *(const struct comm_words *)&typed->comm;
}

/* Zero what follows the NUL if this half has it. The lowest bit of end is in the first
 * byte that is zero.
 */
static __always_inline bool half_cut(__u64 *half)
{
	__u64 end = (*half - 0x0101010101010101) & ~*half & 0x8080808080808080;

	if (end)
		*half &= ((end & -end) >> 7) - 1;
	return end;
}

/* Older kernels leave the end of a longer name behind a shorter one. */
static __always_inline struct comm_words comm_cut(struct comm_words c)
{
	if (half_cut(&c.half[0]))
		c.half[1] = 0;
	else
		half_cut(&c.half[1]);
	return c;
}

static __always_inline bool comm_is(const char *comm, struct comm_words c)
{
	const struct comm_words *have = (const void *)comm;

	return have->half[0] == c.half[0] && have->half[1] == c.half[1];
}

/* The first thread of the process, which gives the process its name. HOP says why the
 * task is cast first.
 */
static __always_inline const struct task_struct *typed_leader(const struct task_struct *task)
{
	return typed_any ? AS(task, struct task_struct)->group_leader : task->group_leader;
}

/* For a walk over the files of all tasks: does this thread share its files with the
 * first thread, where the walk finds them anyway? The first thread may have exited;
 * then it has no files.
 */
static __always_inline __attribute__((unused)) bool shares_files(struct task_struct *task)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	return task != leader && BPF_CORE_READ(task, files) == BPF_CORE_READ(leader, files);
}

/* A number that each exec of the current process changes. An exec changes the name and
 * perhaps the user, but not the PID. 0 where reading it costs more than a plain load.
 */
static __always_inline __u32 who_exec(void)
{
	return typed_task ? bpf_get_current_task_btf()->self_exec_id : 0;
}

/* The current process, and a hash of its name and its execs; 0 as above. Different names have
 * different hashes, except by chance.
 */
static __always_inline __u32 who_program(__u32 *pid)
{
	struct task_struct *task;
	struct comm_words c;
	__u64 sum;

	if (!typed_task) {
		*pid = bpf_get_current_pid_tgid() >> 32;
		return 0;
	}
	task = bpf_get_current_task_btf();
	*pid = task->tgid;
	c = comm_load(typed_leader(task));
	sum = c.half[0] + c.half[1] * 0x9e3779b97f4a7c15;
	return sum ^ sum >> 32 ^ (__u32)task->self_exec_id * 0x9e3779b1;
}

/* Does w, written when who_exec() was exec, still describe the current process? The
 * process may be another one, run another program, or have another name. Without a
 * typed task (before 5.11) only the first is noticed.
 */
static __always_inline bool who_still(const struct who *w, __u32 exec)
{
	struct task_struct *task;
	struct comm_words now;

	if (!typed_task)
		return w->pid == bpf_get_current_pid_tgid() >> 32;
	task = bpf_get_current_task_btf();
	if (w->pid != task->tgid || exec != (__u32)task->self_exec_id)
		return false;
	now = comm_load(typed_leader(task));
	return comm_is(w->comm, now) || comm_is(w->comm, comm_cut(now));
}

/* A worker of io_uring is a thread of its process. A kernel thread counts as unknown:
 * the process that it works for is not known.
 */
static __noinline __attribute__((unused)) bool who_current(struct who *w)
{
	struct task_struct *task;
	__u32 flags;

	if (typed_task) {
		task = bpf_get_current_task_btf();
		flags = task->flags;
	} else {
		task = (void *)bpf_get_current_task();
		flags = BPF_CORE_READ(task, flags);
	}
	if (flags & PF_KTHREAD)
		return false;
	if (WHO_NEEDS(pid, FILTER_WHO) || WHO_NEEDS(tid, 0)) {
		__u64 id = bpf_get_current_pid_tgid();

		w->pid = id >> 32;
		w->tid = id;
	}
	/* The helper would also map the user id into the initial user namespace,
	 * which gives the same number. Not for a trusted task: see HOP.
	 */
	if (WHO_NEEDS(uid, FILTER_UID))
		w->uid = typed_any ? AS(task, struct task_struct)->cred->uid.val : (__u32)bpf_get_current_uid_gid();
	if (WHO_NEEDS(cgroup, 0))
		w->cgroup = bpf_get_current_cgroup_id();
	if (filter_on & FILTER_CGROUP && cgroup_ancestor(BPF_CORE_READ(task, cgroups, dfl_cgrp), filter_cgroup_level) == filter_cgroup)
		w->flags |= WHO_IN_CGROUP;
	if (typed_task) {
		if (WHO_NEEDS(comm, FILTER_COMM))
			*(struct comm_words *)w->comm = comm_cut(comm_load(typed_leader(task)));
		if (WHO_THREAD)
			*(struct comm_words *)w->thread = comm_cut(comm_load(task));
		return true;
	}
	if (WHO_NEEDS(comm, FILTER_COMM))
		BPF_CORE_READ_STR_INTO(&w->comm, task, group_leader, comm);
	if (WHO_THREAD)
		bpf_get_current_comm(w->thread, sizeof(w->thread));
	return true;
}

static __always_inline bool is_self(void)
{
	return bpf_get_current_pid_tgid() >> 32 == filter_self;
}

static __always_inline __u32 task_netns(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
}
