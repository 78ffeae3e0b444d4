//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* socketio - sends and receives on any socket, counted by key. */
#include "iokey.h"

struct io_count {
	struct count count;
	__u64 errors;
};
static const struct io_count io_zero = {};

COUNT_MAP(counts, struct io_key, struct io_count);

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct io_key k = {};
	struct io_count *c;

	if (io_again(ret) || !io_key_fill(&k, sk, dir))
		return 0;
	c = count_at(COUNTED(counts), &k, &io_zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count.count, 1);
	if (ret < 0)
		__sync_fetch_and_add(&c->errors, 1);
	else if (!(flags & MSG_NOT_RECEIVED))
		__sync_fetch_and_add(&c->count.bytes, ret);
	return 0;
}
