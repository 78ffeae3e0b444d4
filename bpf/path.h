/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* path.h - the path of a file, as the current process would write it. Go: kern.FilePath. */
#pragma once
#include "kernel.h"

#define PATH_NAME 256 /* a name and its NUL */
#define PATH_ROOM 708 /* an event is cleared by 1,024 bytes of stores at most */
#define PATH_STEPS 32 /* names and mounts that are looked at */

enum path_end {
	PATH_CUT,   /* there is more above */
	PATH_WHOLE, /* up to the process's root */
	PATH_ALONE, /* a name that is not in a directory: memfd:x */
};

/* The names from the file's own up, each with its NUL. */
struct file_path {
	__u32 len;
	__u32 ends; /* enum path_end */
	char names[PATH_ROOM];
};

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (void *)mnt - (__u64)&((struct mount *)0)->mnt;
}

/* p must be zero. */
static __always_inline void file_path_fill(struct file_path *p, struct file *file)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct dentry *root = BPF_CORE_READ(task, fs, root.dentry), *d = BPF_CORE_READ(file, f_path.dentry), *up;
	struct vfsmount *top = BPF_CORE_READ(task, fs, root.mnt), *mnt = BPF_CORE_READ(file, f_path.mnt);
	struct mount *m, *below;
	__u32 at;
	long n;

	for (int i = 0; i < PATH_STEPS; i++) {
		if (d == root && mnt == top) {
			p->ends = PATH_WHOLE;
			break;
		}
		if (d == BPF_CORE_READ(mnt, mnt_root)) {
			m = mount_of(mnt);
			below = BPF_CORE_READ(m, mnt_parent);
			if (below == m) {
				p->ends = PATH_WHOLE;
				break;
			}
			d = BPF_CORE_READ(m, mnt_mountpoint);
			mnt = &below->mnt;
			continue;
		}
		/* Read back from memory it is an unknown number: otherwise
		 * 5.10's verifier would walk the loop for each possible value.
		 */
		at = *(volatile __u32 *)&p->len;
		if (at > PATH_ROOM - PATH_NAME)
			break;
		n = bpf_probe_read_kernel_str(p->names + at, PATH_NAME, BPF_CORE_READ(d, d_name.name));
		if (n <= 0 || n > PATH_NAME)
			break;
		p->len = at + n;
		up = BPF_CORE_READ(d, d_parent);
		if (up == d) {
			p->ends = PATH_ALONE;
			break;
		}
		d = up;
	}
}
