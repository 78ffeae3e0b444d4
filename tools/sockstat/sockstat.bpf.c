//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sockstat - socket calls of every kind, counted. */
#include "callkey.h"
#include "sockio.h"

struct stat_count {
	struct count count;
	__u64 errors;
};
static const struct stat_count stat_zero = {};

COUNT_MAP(counts, struct call_count_key, struct stat_count);

static __always_inline void stat_add(const struct call_count_key *k, long ret, __u64 bytes)
{
	struct stat_count *v = count_at(COUNTED(counts), k, &stat_zero);

	if (!v)
		return;
	__sync_fetch_and_add(&v->count.count, 1);
	if (call_failed(ret))
		__sync_fetch_and_add(&v->errors, 1);
	else if (bytes) /* to add a constant 0 becomes an instruction that 5.10 lacks */
		__sync_fetch_and_add(&v->count.bytes, bytes);
}

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret)
{
	struct call_count_key k = {};
	struct who who = {};

	if (ret == -EAGAIN || is_restart(ret) || !call_wanted(c, &who))
		return 0;
	call_key_fill(&k, c->op, &who, call_sock(c), call_family(c));
	stat_add(&k, ret, 0);
	return 0;
}

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct call_count_key k = {};
	struct who who = {};

	if (ret == -EAGAIN || is_restart(ret) || is_self() || !sock_wanted(sk))
		return 0;
	if (!who_current(&who) || !who_wanted(&who))
		return 0;
	call_key_fill(&k, dir == IO_SEND ? CALL_SEND : CALL_RECEIVE, &who, sk, key_mask & KEY_FAMILY ? sock_family(sk) : 0);
	k.cpu = bpf_get_smp_processor_id();
	stat_add(&k, ret, flags & MSG_NOT_RECEIVED ? 0 : ret);
	return 0;
}

SOCK_CALL(connect, CALL_CONNECT)
SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL(bind, CALL_BIND)
SOCK_CALL(socket, CALL_SOCKET)
SOCK_CALL(listen, CALL_LISTEN)
SOCK_CALL(socketpair, CALL_SOCKETPAIR)
SOCK_CALL_URING(op == URING_CONNECT || op == URING_ACCEPT || op == URING_BIND || op == URING_SOCKET || op == URING_LISTEN)
