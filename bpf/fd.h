/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* fd.h - from a file descriptor of the current process to its socket. */
#pragma once
#include "kernel.h"

static __always_inline struct file *fd_file(int fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *fdt = BPF_CORE_READ(task, files, fdt);
	struct file **slots, *file = NULL;

	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(fdt, max_fds))
		return NULL;
	slots = BPF_CORE_READ(fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), &slots[fd]);
	return file;
}

static __always_inline struct sock *file_sock(struct file *file)
{
	struct socket *socket;

	if (!file || BPF_CORE_READ(file, f_inode, i_sb, s_magic) != SOCKFS_MAGIC)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return socket ? BPF_CORE_READ(socket, sk) : NULL;
}

static __always_inline struct sock *fd_sock(int fd)
{
	return file_sock(fd_file(fd));
}

/* A connect is under way on sk, or its end has not been asked for: another call
 * of connect only asks.
 */
static __always_inline bool sock_connecting(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_socket, state) == SS_CONNECTING;
}
