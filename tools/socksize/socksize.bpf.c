//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* socksize - sizes of sends and receives, as histograms by key. */
#define SOCKIO_CTX
#include "hist.h"
#include "iokey.h"
#include "stack.h"

struct size_key {
	struct io_key io;
	__s32 ustack;
	__u32 pad;
};
struct size_value {
	struct hist hist;
	__u64 errors;
};
static const struct size_value size_zero = {};

COUNT_MAP(sizes, struct size_key, struct size_value);

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct size_key k = {};
	struct size_value *v;

	if (io_again(ret) || flags & MSG_NOT_RECEIVED || !io_key_fill(&k.io, sk, dir))
		return 0;
	if (KEY_WANTS(ustack)) {
		k.ustack = user_stack(ctx);
		/* The addresses of a stack are useless without the process. */
		k.io.pid = bpf_get_current_pid_tgid() >> 32;
	}
	v = count_at(COUNTED(sizes), &k, &size_zero);
	if (!v)
		return 0;
	if (ret < 0)
		__sync_fetch_and_add(&v->errors, 1);
	else
		hist_put(&v->hist, ret);
	return 0;
}
