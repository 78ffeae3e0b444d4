/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* callcount.h - connects and accepts, counted. A tool that includes this header
 * needs no other C code: Go declares the keys. Go: kern.CallCount.
 */
#pragma once
#include "callkey.h"

struct call_count {
	__u64 count, errors;
};
static const struct call_count call_zero = {};

COUNT_MAP(counts, struct call_count_key, struct call_count);

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret)
{
	struct call_count_key k = {};
	struct call_count *v;
	struct who who = {};

	if (ret == -EAGAIN || is_restart(ret) || !call_wanted(c, &who))
		return 0;
	call_key_fill(&k, c->op, &who, call_sock(c), call_family(c));
	v = count_at(COUNTED(counts), &k, &call_zero);
	if (!v)
		return 0;
	__sync_fetch_and_add(&v->count, 1);
	if (call_failed(ret))
		__sync_fetch_and_add(&v->errors, 1);
	return 0;
}

SOCK_CALL(connect, CALL_CONNECT)
SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL_URING(op == URING_CONNECT || op == URING_ACCEPT)
