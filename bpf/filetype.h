/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* filetype.h - what kind of file a file is. Go: kern.FileType. */
#pragma once
#include "fd.h"
#include "sock.h"

#define FILE_ANON 16 /* an anonymous inode: eventfd, epoll, a BPF map */

struct file_type {
	__u16 num;    /* S_IF* of the mode, shifted down; or FILE_ANON */
	__u16 family; /* of a socket */
	char name[28]; /* of an anonymous inode: [eventfd] */
};

static __always_inline void file_type_fill(struct file_type *t, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	unsigned long magic = BPF_CORE_READ(inode, i_sb, s_magic);
	const unsigned char *name;

	/* Before 6.16 anonymous inodes have no kind in their mode, since then that
	 * of regular files; their file system tells.
	 */
	if (magic == ANON_INODE_FS_MAGIC) {
		t->num = FILE_ANON;
		name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
		bpf_probe_read_kernel_str(t->name, sizeof(t->name), name);
		return;
	}
	t->num = BPF_CORE_READ(inode, i_mode) >> 12;
	if (magic == SOCKFS_MAGIC) {
		struct sock *sk = file_sock(file);

		if (sk)
			t->family = sock_family(sk);
	}
}
