/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* filetype.h - the kind of a file. Go: kern.FileType. */
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
	struct inode *inode = FIELD(file, struct file, f_inode);
	struct super_block *sb = FIELD(inode, struct inode, i_sb);
	unsigned long magic = FIELD(sb, struct super_block, s_magic);
	const unsigned char *name;

	/* Anonymous inodes have no kind in their mode before 6.16, and that of
	 * regular files since. Their file system identifies them.
	 */
	if (magic == ANON_INODE_FS_MAGIC) {
		t->num = FILE_ANON;
		name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
		bpf_probe_read_kernel_str(t->name, sizeof(t->name), name);
		return;
	}
	t->num = FIELD(inode, struct inode, i_mode) >> 12;
	if (magic == SOCKFS_MAGIC) {
		struct socket *socket = FIELD(file, struct file, private_data);
		struct sock *sk = socket ? FIELD(socket, struct socket, sk) : NULL;

		if (sk)
			t->family = FIELD(sk, struct sock, __sk_common.skc_family);
	}
}
