/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* syscall.h - entry and exit of single system calls.
 *
 * By the call's own tracepoint (tp), which costs only that call, or by
 * sys_enter and sys_exit of all calls (btf) if tracefs is not available.
 */
#pragma once
#include "probe.h"

/* The contexts of syscalls:sys_enter_* and sys_exit_*: ABI. */
struct sys_enter {
	__u64 common;
	long nr;
	unsigned long args[6];
};
struct sys_exit {
	__u64 common;
	long nr;
	long ret;
};

#if defined(__TARGET_ARCH_x86)
#define SYS_read 0
#define SYS_write 1
#define SYS_pread64 17
#define SYS_pwrite64 18
#define SYS_readv 19
#define SYS_writev 20
#define SYS_sendfile64 40
#define SYS_socket 41
#define SYS_connect 42
#define SYS_accept 43
#define SYS_sendto 44
#define SYS_recvfrom 45
#define SYS_sendmsg 46
#define SYS_recvmsg 47
#define SYS_bind 49
#define SYS_listen 50
#define SYS_socketpair 53
#define SYS_splice 275
#define SYS_accept4 288
#define SYS_preadv 295
#define SYS_pwritev 296
#define SYS_recvmmsg 299
#define SYS_sendmmsg 307
#define SYS_preadv2 327
#define SYS_pwritev2 328
#elif defined(__TARGET_ARCH_arm64)
#define SYS_read 63
#define SYS_write 64
#define SYS_readv 65
#define SYS_writev 66
#define SYS_pread64 67
#define SYS_pwrite64 68
#define SYS_preadv 69
#define SYS_pwritev 70
#define SYS_sendfile64 71
#define SYS_splice 76
#define SYS_socket 198
#define SYS_socketpair 199
#define SYS_bind 200
#define SYS_listen 201
#define SYS_accept 202
#define SYS_connect 203
#define SYS_sendto 206
#define SYS_recvfrom 207
#define SYS_sendmsg 211
#define SYS_recvmsg 212
#define SYS_accept4 242
#define SYS_recvmmsg 243
#define SYS_sendmmsg 269
#define SYS_preadv2 286
#define SYS_pwritev2 287
#endif

/* A signal came: the call is made again, or fails with EINTR. The program never
 * sees these.
 */
static __always_inline bool is_restart(long ret)
{
	return ret == -ERESTARTSYS || ret == -ERESTARTNOINTR || ret == -ERESTARTNOHAND || ret == -ERESTART_RESTARTBLOCK;
}

static __always_inline unsigned long sys_arg(const struct pt_regs *regs, int n)
{
#if defined(__TARGET_ARCH_x86)
	const unsigned long *from[] = { &regs->di, &regs->si, &regs->dx, &regs->r10, &regs->r8, &regs->r9 };
	unsigned long v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), from[n]);
#else
	unsigned long v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), &regs->user_regs.regs[n]);
#endif
	return v;
}

#if defined(__TARGET_ARCH_x86)
#define COMPAT_WORD thread_info.status
#define COMPAT_BIT 0x2 /* TS_COMPAT */
#else
#define COMPAT_WORD thread_info.flags
#define COMPAT_BIT 0x400000 /* TIF_32BIT */
#endif

/* Is this a 32-bit call? Its number means another call in the 64-bit table. The
 * tracepoints of single calls never fire for 32-bit calls.
 */
static __always_inline bool sys_compat(void)
{
	struct task_struct *task;

	if (typed_task)
		return bpf_get_current_task_btf()->COMPAT_WORD & COMPAT_BIT;
	task = (void *)bpf_get_current_task();
	return BPF_CORE_READ(task, COMPAT_WORD) & COMPAT_BIT;
}

/* SYS_ENTER(point, call) { body of (a0, a1, a2, a3) } */
#define SYS_ENTER(point, call)                                                 \
	static __always_inline int ____##point##_enter_##call(void *ctx, __u64 a0, __u64 a1, __u64 a2, __u64 a3); \
	SEC("tracepoint/syscalls/sys_enter_" #call) int point##__tp__enter_##call(struct sys_enter *ctx) \
	{                                                                      \
		return ____##point##_enter_##call(ctx, ctx->args[0], ctx->args[1], ctx->args[2], ctx->args[3]); \
	}                                                                      \
	SEC("tp_btf/sys_enter") int point##__btf__enter_##call(unsigned long long *ctx) \
	{                                                                      \
		const struct pt_regs *regs = (void *)ctx[0];                   \
									       \
		if (ctx[1] != SYS_##call || sys_compat())                      \
			return 0;                                              \
		return ____##point##_enter_##call(ctx, sys_arg(regs, 0), sys_arg(regs, 1), \
						  sys_arg(regs, 2), sys_arg(regs, 3)); \
	}                                                                      \
	static __always_inline int ____##point##_enter_##call(void *ctx, __u64 a0, __u64 a1, __u64 a2, __u64 a3)

/* SYS_EXIT(point, call) { body of (ret) }
 * The number at sys_exit is the one that the thread holds now, as at entry.
 */
#define SYS_EXIT(point, call)                                                  \
	static __always_inline int ____##point##_exit_##call(void *ctx, long ret); \
	SEC("tracepoint/syscalls/sys_exit_" #call) int point##__tp__exit_##call(struct sys_exit *ctx) \
	{                                                                      \
		return ____##point##_exit_##call(ctx, ctx->ret);               \
	}                                                                      \
	SEC("tp_btf/sys_exit") int point##__btf__exit_##call(unsigned long long *ctx) \
	{                                                                      \
		if (sys_number((void *)ctx[0]) != SYS_##call || sys_compat())  \
			return 0;                                              \
		return ____##point##_exit_##call(ctx, ctx[1]);                 \
	}                                                                      \
	static __always_inline int ____##point##_exit_##call(void *ctx, long ret)

static __always_inline long sys_number(const struct pt_regs *regs)
{
	long nr = -1;

#if defined(__TARGET_ARCH_x86)
	bpf_probe_read_kernel(&nr, sizeof(nr), &regs->orig_ax);
#else
	int n = -1; /* struct pt_regs: regs, sp, pc, pstate, orig_x0, syscallno */

	bpf_probe_read_kernel(&n, sizeof(n), (const void *)regs + sizeof(struct user_pt_regs) + 8);
	nr = n;
#endif
	return nr;
}
