/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* fd.h - from a file descriptor of the current process to its socket. */
#pragma once
#include "probe.h"

static __always_inline struct file *fd_file(int fd)
{
	struct file **slots = NULL, *file = NULL;
	__u32 most = 0;

	if (typed_task) {
		struct task_struct *task = bpf_get_current_task_btf();
		struct files_struct *files = typed_any ? AS(task, struct task_struct)->files : task->files; /* as HOP */
		struct fdtable *fdt = files ? files->fdt : NULL;

		if (fdt) {
			most = fdt->max_fds;
			slots = fdt->fd;
		}
	} else {
		struct task_struct *task = (void *)bpf_get_current_task();
		struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);

		most = BPF_CORE_READ(fdt, max_fds);
		slots = BPF_CORE_READ(fdt, fd);
	}
	if (fd < 0 || (__u32)fd >= most)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

static __always_inline struct sock *file_sock(struct file *file)
{
	struct socket *socket;
	struct super_block *sb;
	struct inode *inode;

	if (!file)
		return NULL;
	inode = FIELD(file, struct file, f_inode);
	sb = FIELD(inode, struct inode, i_sb);
	if (FIELD(sb, struct super_block, s_magic) != SOCKFS_MAGIC)
		return NULL;
	socket = FIELD(file, struct file, private_data);
	return socket ? FIELD(socket, struct socket, sk) : NULL;
}

static __always_inline struct sock *fd_sock(int fd)
{
	return file_sock(fd_file(fd));
}

/* A connect of sk is under way, or nobody has asked for its result: another
 * connect call only asks.
 */
static __always_inline bool sock_connecting(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, state) == SS_CONNECTING;
}
