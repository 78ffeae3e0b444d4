/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* who.h - the current task, or another one, as a struct who. */
#pragma once
#include "filter.h"

/* A tool that only counts, by keys, defines WHO_KEYED and has its enum key_bits
 * before this header: then what neither a key nor a filter asks for is not
 * looked up.
 */
#ifdef WHO_KEYED
#define WHO_NEEDS(field, filters) (KEY_WANTS(field) || filter_on & (filters))
#else
#define WHO_NEEDS(field, filters) true
#endif

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
	BPF_CORE_READ_STR_INTO(&w->comm, task, comm);
}

/* Which of the programs that the current process has run this is: exec changes its
 * name, and may its user, not its PID. 0 where it costs more than a plain load.
 */
static __always_inline __u32 who_exec(void)
{
	return typed_task ? bpf_get_current_task_btf()->self_exec_id : 0;
}

/* A worker of io_uring is a thread of its process with a name of its own; show
 * the process's. A kernel thread is nobody: it works for somebody unknown.
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
	/* What the helper does besides: it asks the first user namespace what it
	 * calls this user, which is the same. Not of a task that is trusted: see HOP.
	 */
	if (WHO_NEEDS(uid, FILTER_UID))
		w->uid = typed_any ? AS(task, struct task_struct)->cred->uid.val : (__u32)bpf_get_current_uid_gid();
	if (WHO_NEEDS(cgroup, 0))
		w->cgroup = bpf_get_current_cgroup_id();
	if (filter_on & FILTER_CGROUP && cgroup_ancestor(BPF_CORE_READ(task, cgroups, dfl_cgrp), filter_cgroup_level) == filter_cgroup)
		w->flags |= WHO_IN_CGROUP;
	if (flags & PF_IO_WORKER)
		BPF_CORE_READ_STR_INTO(&w->comm, task, group_leader, comm);
	else if (WHO_NEEDS(comm, FILTER_COMM))
		bpf_get_current_comm(w->comm, sizeof(w->comm));
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
