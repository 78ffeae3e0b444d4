/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* uring.h - completions of io_uring requests.
 *
 * The tracepoint has had several layouts. A wrong one loads and reads garbage, so
 * Go chooses by the arguments in BTF (probe.Uring):
 *   cqe  since 6.16: (ctx, req, cqe)
 *   res  since 5.19: (ctx, req, user_data, res, ...)
 *   old  before: (ctx, user_data, res[, cflags]), no request: its opcode and
 *        file are remembered from io_uring_submit_sqe
 */
#pragma once
#include "fd.h"
#include "probe.h"

enum uring_op {
	URING_READV = 1,
	URING_WRITEV = 2,
	URING_READ_FIXED = 4,
	URING_WRITE_FIXED = 5,
	URING_SENDMSG = 9,
	URING_RECVMSG = 10,
	URING_ACCEPT = 13,
	URING_CONNECT = 16,
	URING_READ = 22,
	URING_WRITE = 23,
	URING_SEND = 26,
	URING_RECV = 27,
	URING_SOCKET = 45,
	URING_SEND_ZC = 47,
	URING_SENDMSG_ZC = 48,
	URING_BIND = 56, /* since 6.11 */
	URING_LISTEN = 57,
};

/* Requests in flight, for kernels whose completion does not name them. A program
 * may give several requests the same user_data: the last one is kept, and the
 * others are counted as lost.
 */
struct uring_key {
	__u64 ring, user_data;
};
struct uring_req {
	struct file *file;
	__u64 op;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct uring_key);
	__type(value, struct uring_req);
} urings SEC(".maps");

static __always_inline void uring_begin(const struct uring_key *k, const struct uring_req *r)
{
	int err = bpf_map_update_elem(&urings, k, r, BPF_NOEXIST);

	if (err == -17 /* EEXIST */) {
		lose(LOSS_SAME);
		err = bpf_map_update_elem(&urings, k, r, BPF_EXIST);
	}
	if (err)
		lose(LOSS_SPAN);
}

/* URING_FILE(point, test) { body of (ctx, op, file, res) }: requests whose
 * opcode, op, passes the test, and the file that they were for.
 */
#define URING_FILE(point, test)                                                \
	static __always_inline int ____##point(void *ctx, __u8 op, struct file *file, int res); \
	SEC("tp_btf/io_uring_complete") int point##__btf__cqe(unsigned long long *ctx) \
	{                                                                      \
		struct io_kiocb *req = (void *)ctx[1];                         \
		struct io_uring_cqe *cqe = (void *)ctx[2];                     \
		__u8 op = req ? BPF_CORE_READ(req, opcode) : 0;                \
									       \
		if (!(test))                                                   \
			return 0;                                              \
		return ____##point(ctx, op, BPF_CORE_READ(req, file), BPF_CORE_READ(cqe, res)); \
	}                                                                      \
	SEC("tp_btf/io_uring_complete") int point##__btf__res(unsigned long long *ctx) \
	{                                                                      \
		struct io_kiocb *req = (void *)ctx[1];                         \
		__u8 op = req ? BPF_CORE_READ(req, opcode) : 0;                \
									       \
		if (!(test))                                                   \
			return 0;                                              \
		return ____##point(ctx, op, BPF_CORE_READ(req, file), ctx[3]); \
	}                                                                      \
	SEC("tp_btf/io_uring_submit_sqe") int point##__btf__old_submit(unsigned long long *ctx) \
	{                                                                      \
		struct uring_key k = { ctx[0], ctx[3] };                       \
		__u8 op = ctx[2];                                              \
		struct uring_req r = { .op = op };                             \
									       \
		if (!(test))                                                   \
			return 0;                                              \
		r.file = BPF_CORE_READ((struct io_kiocb *)ctx[1], file);       \
		uring_begin(&k, &r);                                           \
		return 0;                                                      \
	}                                                                      \
	SEC("tp_btf/io_uring_complete") int point##__btf__old(unsigned long long *ctx) \
	{                                                                      \
		struct uring_key k = { ctx[0], ctx[1] };                       \
		struct uring_req *r = bpf_map_lookup_elem(&urings, &k);        \
		struct file *file;                                             \
		__u8 op;                                                       \
									       \
		if (!r)                                                        \
			return 0;                                              \
		file = r->file;                                                \
		op = r->op;                                                    \
		if (!(test)) /* another point's request */                     \
			return 0;                                              \
		bpf_map_delete_elem(&urings, &k);                              \
		return ____##point(ctx, op, file, ctx[2]);                     \
	}                                                                      \
	static __always_inline int ____##point(void *ctx, __u8 op, struct file *file, int res)

/* URING_COMPLETE(point, test) { body of (ctx, op, sk, res) }: the same with the
 * socket that the request was for, NULL if it was for something else.
 */
#define URING_COMPLETE(point, test)                                            \
	static __always_inline int ____##point##_sk(void *ctx, __u8 op, struct sock *sk, int res); \
	URING_FILE(point, test)                                                \
	{                                                                      \
		return ____##point##_sk(ctx, op, file_sock(file), res);        \
	}                                                                      \
	static __always_inline int ____##point##_sk(void *ctx, __u8 op, struct sock *sk, int res)
