//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* filetype - reads and writes by the kind of file, counted. */
#include "count.h"
#include "filetype.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"

enum file_op { FILE_READ, FILE_WRITE }; /* Go: kern.Dir */

struct file_key {
	__u64 cgroup;
	__u32 pid, tid, uid;
	__u32 op;
	char comm[16], thread[16];
	struct file_type type;
};
enum key_bits { KEY_cgroup, KEY_pid, KEY_tid, KEY_uid, KEY_op, KEY_comm, KEY_thread, KEY_type };
KEEP_ENUM(enum key_bits);

#define WHO_KEYED
#include "who.h"

struct file_count {
	struct count count;
	__u64 errors;
};
static const struct file_count file_zero = {};

COUNT_MAP(counts, struct file_key, struct file_count);

/* The kind of file is read before the call: the file may be closed meanwhile. */
struct move {
	struct file_type type;
	__u32 under_way;
};
THREAD_SPAN(moving, struct move);

static __noinline int moved(const struct file_type *type, enum file_op op, long ret)
{
	struct file_key k = {};
	struct file_count *v;
	struct who who = {};

	if (ret == -EAGAIN || is_restart(ret) || (filter_on & FILTER_NETNS && !netns_wanted(task_netns())))
		return 0;
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	if (KEY_WANTS(cgroup))
		k.cgroup = who.cgroup;
	if (KEY_WANTS(pid))
		k.pid = who.pid;
	if (KEY_WANTS(tid))
		k.tid = who.tid;
	if (KEY_WANTS(uid))
		k.uid = who.uid;
	if (KEY_WANTS(op))
		k.op = op;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k.comm, who.comm, sizeof(k.comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k.thread, who.thread, sizeof(k.thread));
	if (KEY_WANTS(type))
		k.type = *type;
	v = count_at(COUNTED(counts), &k, &file_zero);
	if (!v)
		return 0;
	__sync_fetch_and_add(&v->count.count, 1);
	if (ret < 0)
		__sync_fetch_and_add(&v->errors, 1);
	else
		__sync_fetch_and_add(&v->count.bytes, ret);
	return 0;
}

static __noinline int move_enter(int fd)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct move m = { .under_way = 1 }, *slot;
	struct file *file;

	if (thread >> 32 == filter_self)
		return 0;
	file = fd_file(fd);
	if (!file)
		return 0;
	file_type_fill(&m.type, file);
	slot = bpf_map_lookup_elem(&moving, &thread);
	if (slot)
		*slot = m;
	else
		span_begin(&moving, &thread, &m);
	return 0;
}

static __noinline int move_exit(enum file_op op, long ret)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct move *m = bpf_map_lookup_elem(&moving, &thread);

	if (!m || !m->under_way)
		return 0;
	m->under_way = 0;
	return moved(&m->type, op, ret);
}

THREAD_END(moving)

#define MOVE(call, op)                                                         \
	SYS_ENTER(move, call)                                                  \
	{                                                                      \
		return move_enter(a0);                                         \
	}                                                                      \
	SYS_EXIT(move, call)                                                   \
	{                                                                      \
		return move_exit(op, ret);                                     \
	}

MOVE(read, FILE_READ)
MOVE(readv, FILE_READ)
MOVE(pread64, FILE_READ)
MOVE(preadv, FILE_READ)
MOVE(preadv2, FILE_READ)
MOVE(write, FILE_WRITE)
MOVE(writev, FILE_WRITE)
MOVE(pwrite64, FILE_WRITE)
MOVE(pwritev, FILE_WRITE)
MOVE(pwritev2, FILE_WRITE)

static __always_inline bool uring_reads(__u8 op)
{
	return op == URING_READ || op == URING_READV || op == URING_READ_FIXED;
}

static __always_inline bool uring_writes(__u8 op)
{
	return op == URING_WRITE || op == URING_WRITEV || op == URING_WRITE_FIXED;
}

URING_FILE(ring, uring_reads(op) || uring_writes(op))
{
	struct file_type t = {};

	if (!file || is_self())
		return 0;
	file_type_fill(&t, file);
	return moved(&t, uring_reads(op) ? FILE_READ : FILE_WRITE, res);
}
