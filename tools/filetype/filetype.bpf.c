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

/* Keyed: see Snapshot. A key is large, and it takes the kernel longer to hash and compare it than
 * all the rest takes. So the key of the map is a sum of the fields that are asked for, and of the
 * processor, so that processors do not write to the same memory: Snapshot.Fold.
 */
struct file_counts {
	struct file_count count;
	struct file_key key;
};

COUNT_MAP(counts, __u64, struct file_counts);

/* The kind of file is read before the call: the file may be closed meanwhile. */
struct move {
	struct file_type type __attribute__((aligned(8))); /* is summed up in words */
	__u64 under_way;
};
static const struct move move_zero = {};
THREAD_SPAN(moving, struct move);

/* A call that has ended. */
struct moved {
	struct who who;
	const __u64 *type; /* the words of a struct file_type */
	__u32 op;
};

#define WANTS(field) (wanted & 1ULL << KEY_##field)
#define SUM(i, word) sum += (word) * (0xbf58476d1ce4e5b9 + 0x94d049bb133111ea * (i))

/* Only an anonymous inode has a name. */
static __always_inline bool has_name(const __u64 *type)
{
	return ((const struct file_type *)type)->num == FILE_ANON;
}

static __always_inline __u64 key_sum(const struct moved *m, __u64 wanted)
{
	const __u64 *comm = (const void *)m->who.comm, *thread = (const void *)m->who.thread;
	__u64 sum = 0;

	SUM(0, bpf_get_smp_processor_id());
	if (WANTS(cgroup))
		SUM(1, m->who.cgroup);
	if (WANTS(pid))
		SUM(2, m->who.pid);
	if (WANTS(tid))
		SUM(3, m->who.tid);
	if (WANTS(uid))
		SUM(4, m->who.uid);
	if (WANTS(op))
		SUM(5, m->op);
	if (WANTS(comm)) {
		SUM(6, comm[0]);
		SUM(7, comm[1]);
	}
	if (WANTS(thread)) {
		SUM(8, thread[0]);
		SUM(9, thread[1]);
	}
	if (WANTS(type)) {
		SUM(10, m->type[0]);
		if (has_name(m->type)) {
			SUM(11, m->type[1]);
			SUM(12, m->type[2]);
			SUM(13, m->type[3]);
		}
	}
	return sum ^ sum >> 32;
}

static __always_inline bool words_same(const void *a, const void *b, int words)
{
	const __u64 *one = a, *other = b;
	__u64 differ = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		differ |= one[i] ^ other[i];
	return !differ;
}

static __always_inline bool key_same(const struct file_key *k, const struct moved *m, __u64 wanted)
{
	if (WANTS(cgroup) && k->cgroup != m->who.cgroup)
		return false;
	if (WANTS(pid) && k->pid != m->who.pid)
		return false;
	if (WANTS(tid) && k->tid != m->who.tid)
		return false;
	if (WANTS(uid) && k->uid != m->who.uid)
		return false;
	if (WANTS(op) && k->op != m->op)
		return false;
	if (WANTS(comm) && !words_same(k->comm, m->who.comm, 2))
		return false;
	if (WANTS(thread) && !words_same(k->thread, m->who.thread, 2))
		return false;
	if (!WANTS(type))
		return true;
	return words_same(&k->type, m->type, 1) && (!has_name(m->type) || words_same(&k->type, m->type, 4));
}

/* A key that is new. */
static __noinline int counts_new(void *map, const struct moved *m, __u64 sum)
{
	struct file_counts first = {};
	__u64 wanted = key_mask;

	if (WANTS(cgroup))
		first.key.cgroup = m->who.cgroup;
	if (WANTS(pid))
		first.key.pid = m->who.pid;
	if (WANTS(tid))
		first.key.tid = m->who.tid;
	if (WANTS(uid))
		first.key.uid = m->who.uid;
	if (WANTS(op))
		first.key.op = m->op;
	if (WANTS(comm))
		__builtin_memcpy(first.key.comm, m->who.comm, sizeof(first.key.comm));
	if (WANTS(thread))
		__builtin_memcpy(first.key.thread, m->who.thread, sizeof(first.key.thread));
	if (WANTS(type))
		__builtin_memcpy(&first.key.type, m->type, sizeof(first.key.type));
	bpf_map_update_elem(map, &sum, &first, BPF_NOEXIST);
	return 0;
}

static __always_inline struct file_counts *counts_at(void *map, const struct moved *m, __u64 sum)
{
	struct file_counts *c = bpf_map_lookup_elem(map, &sum);

	if (c)
		return c;
	counts_new(map, m, sum);
	return bpf_map_lookup_elem(map, &sum);
}

static __always_inline int moved(const struct file_type *type, enum file_op op, long ret)
{
	struct moved m = { .type = (const void *)type, .op = op };
	__u64 wanted = key_mask, sum;
	struct file_counts *c;

	if (ret == -EAGAIN || is_restart(ret) || (filter_on & FILTER_NETNS && !netns_wanted(task_netns())))
		return 0;
	if (!who_current(&m.who) || !who_wanted(&m.who))
		return 0;
	sum = key_sum(&m, wanted);
	if (count_odd()) {
		c = counts_at(&counts_odd, &m, sum);
		COUNT_APART(c);
	} else {
		c = counts_at(&counts, &m, sum);
		COUNT_APART(c);
	}
	/* Of two keys with the same sum, the second one finds no room either. */
	if (!c || !key_same(&c->key, &m, wanted)) {
		lose(LOSS_MAP);
		return 0;
	}
	__sync_fetch_and_add(&c->count.count.count, 1);
	if (ret < 0)
		__sync_fetch_and_add(&c->count.errors, 1);
	else
		__sync_fetch_and_add(&c->count.count.bytes, ret);
	return 0;
}

/* As fd_file(), without a call of a helper where the kernel can cast: the slot of the table is read
 * as if it were the member fd of a struct fdtable.
 */
static __always_inline struct file *file_at(int fd)
{
	struct fdtable *fdt;
	void *slot;

	if (!typed_any)
		return fd_file(fd);
	fdt = AS(bpf_get_current_task_btf(), struct task_struct)->files->fdt;
	if (fd < 0 || (__u32)fd >= fdt->max_fds)
		return NULL;
	slot = fdt->fd + fd;
	slot -= bpf_core_field_offset(struct fdtable, fd);
	return (void *)AS(slot, struct fdtable)->fd;
}

static __noinline int move_enter(int fd)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct file *file;
	struct move *m;

	if (thread >> 32 == filter_self)
		return 0;
	file = file_at(fd);
	if (!file)
		return 0;
	m = bpf_map_lookup_elem(&moving, &thread);
	if (!m) {
		span_begin(&moving, &thread, &move_zero);
		m = bpf_map_lookup_elem(&moving, &thread);
		if (!m)
			return 0;
	}
	__builtin_memset(&m->type, 0, sizeof(m->type));
	file_type_fill(&m->type, file);
	m->under_way = 1;
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
	struct file_type t __attribute__((aligned(8))) = {};

	if (!file || is_self())
		return 0;
	file_type_fill(&t, file);
	return moved(&t, uring_reads(op) ? FILE_READ : FILE_WRITE, res);
}
