/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* probe.h - one body, several ways in.
 *
 * A point is an event that a tool needs. Each macro below makes one program for
 * each way to see it, named <point>__<way>[__<part>]; programs of one point and
 * one way are attached together. Go takes the best way that the running kernel
 * offers (internal/probe).
 *
 * A body is written once for all ways, so it must read kernel memory through
 * BPF_CORE_READ, which works in all of them. If it runs often, it uses LOAD and
 * FIELD, which are plain loads where the kernel allows them.
 */
#pragma once
#include "kernel.h"
#include "loss.h"

/* Words of the context become arguments of any type. */
#define CAST(stmt)                                                             \
	_Pragma("GCC diagnostic push")                                         \
	_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                 \
	stmt;                                                                  \
	_Pragma("GCC diagnostic pop")

/* KTRACE(point, name, args...) { body }: a tracepoint by its C arguments. */
#define KTRACE(point, name, args...) KTRACE_FIRST(, point, name, ##args)

/* KTRACE_FIRST: as KTRACE, with a statement at the start of its tp_btf
 * program.
 */
#define KTRACE_FIRST(statement, point, name, args...)                          \
	static __always_inline int ____##point(unsigned long long *ctx, ##args); \
	SEC("tp_btf/" #name) int point##__btf(unsigned long long *ctx)         \
	{                                                                      \
		statement;                                                     \
		CAST(return ____##point(___bpf_ctx_cast(args)))                \
	}                                                                      \
	SEC("raw_tp/" #name) int point##__raw(unsigned long long *ctx)         \
	{                                                                      \
		CAST(return ____##point(___bpf_ctx_cast(args)))                \
	}                                                                      \
	static __always_inline int ____##point(unsigned long long *ctx, ##args)

/* LOAD(p, field): a field of something whose type the verifier knows: what an
 * argument of the program points to, or a pointer that LOAD gave. In tp_btf and
 * fentry programs that is a plain load, at a tenth of the cost. In other programs it
 * is BPF_CORE_READ. Any other pointer (from a map, a descriptor, a void pointer or a
 * cast) needs BPF_CORE_READ in all programs. So does a pointer that was used as a
 * map's key: copy it for the key.
 *
 * Go writes into each program, in place of PLAIN, which of the two it is
 * (internal/object). The loader then removes the other branch.
 */
#define PLAIN 0x5e1e10ad
static __always_inline bool plain(void)
{
	__u64 on;

	asm volatile("%0 = %1" : "=r"(on) : "i"(PLAIN));
	return on;
}
#define LOAD(p, field) (plain() ? (p)->field : BPF_CORE_READ(p, field))

/* For a function that serves both kinds of pointers, by its argument `typed`. */
#define READ(p, field) (typed ? LOAD(p, field) : BPF_CORE_READ(p, field))

/* Set by Go: the running kernel lets programs make socket cookies. */
const volatile bool make_cookies = false;

/* Make the cookie of a socket that LOAD can read, if the kernel can (5.12 on, not
 * in raw_tp), so that sock_cookie() finds one. The load is cheaper than the call.
 */
static __always_inline void make_cookie(const struct sock *sk)
{
	if (plain() && make_cookies && !sk->__sk_common.skc_cookie.counter)
		bpf_get_socket_cookie((void *)sk);
}

/* KTRACE_SK: as KTRACE, for tracepoints whose first argument is a socket; it
 * makes the cookie of the socket.
 */
#define KTRACE_SK(point, name, args...) KTRACE_FIRST(make_cookie((void *)ctx[0]), point, name, ##args)

/* Set by Go: the running kernel (5.11 on) gives the current task with its type.
 * Then its fields, and those behind its pointers, can be read by plain loads.
 */
const volatile bool typed_task = false;

/* Set by Go: the running kernel (6.2 on) lets a program cast any pointer for reading.
 * AS(p, struct file) is the cast.
 */
const volatile bool typed_any = false;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;
#define AS(p, type) ((type *)bpf_rdonly_cast(p, bpf_core_type_id_kernel(type)))

/* FIELD(p, struct file, f_inode): one field behind any pointer. It is a plain load
 * where the kernel has AS, else BPF_CORE_READ.
 */
#define FIELD(p, type, field) (typed_any ? AS(p, type)->field : BPF_CORE_READ((type *)(p), field))

/* HOP(p, struct sock, field): LOAD of a field that is a pointer. When a trusted
 * pointer is followed, kernels from 6.3 on search all their types, up to four times,
 * to see whether the new pointer is trusted too. That takes longer than to verify a
 * small program. A pointer from AS is not trusted, so nothing is searched.
 */
#define HOP(p, type, field) (typed_any ? AS(p, type)->field : LOAD(p, field))

/* KFUNC(point, func, args...) { body }: entry of a kernel function. */
#define KFUNC(point, func, args...)                                            \
	static __always_inline int ____##point(void *ctx, ##args);             \
	SEC("fentry/" #func) int point##__fentry(unsigned long long *ctx)      \
	{                                                                      \
		CAST(return ____##point(___bpf_ctx_cast(args)))                \
	}                                                                      \
	SEC("kprobe/" #func) int point##__kprobe(struct pt_regs *ctx)          \
	{                                                                      \
		CAST(return ____##point(___bpf_kprobe_args(args)))             \
	}                                                                      \
	static __always_inline int ____##point(void *ctx, ##args)

/* Arguments of a kernel function between its kprobe and its kretprobe, by
 * thread and function, because a probed function may call another one.
 */
struct call_key {
	__u64 thread;
	__u64 func;
};
struct call_args {
	__u64 arg[3];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct call_key);
	__type(value, struct call_args);
} calls SEC(".maps");

static __always_inline int call_enter(struct pt_regs *ctx, __u64 func)
{
	struct call_key k = { bpf_get_current_pid_tgid(), func };
	struct call_args a = {};

	a.arg[0] = PT_REGS_PARM1(ctx);
	a.arg[1] = PT_REGS_PARM2(ctx);
	a.arg[2] = PT_REGS_PARM3(ctx);
	if (bpf_map_update_elem(&calls, &k, &a, BPF_ANY))
		lose(LOSS_SPAN);
	return 0;
}

static __always_inline bool call_exit(struct call_args *a, __u64 func)
{
	struct call_key k = { bpf_get_current_pid_tgid(), func };
	struct call_args *found = bpf_map_lookup_elem(&calls, &k);

	if (!found)
		return false;
	*a = *found;
	bpf_map_delete_elem(&calls, &k);
	return true;
}

/* KEXIT(point, part, func, n, id) { body of (ctx, a0, a1, a2, ret) }: return of
 * a kernel function of n arguments with its first three. The id distinguishes
 * functions that one thread may be in at the same time.
 */
#define KEXIT(point, part, func, n, id)                                        \
	static __always_inline int ____##point##_##part(void *ctx, __u64 a0, __u64 a1, __u64 a2, long ret); \
	SEC("fexit/" #func) int point##__fexit__##part(unsigned long long *ctx) \
	{                                                                      \
		return ____##point##_##part(ctx, ctx[0], n > 1 ? ctx[n > 1] : 0, \
					    n > 2 ? ctx[(n > 2) * 2] : 0, ctx[n]); \
	}                                                                      \
	SEC("kprobe/" #func) int point##__kprobe__##part(struct pt_regs *ctx)  \
	{                                                                      \
		return call_enter(ctx, id);                                    \
	}                                                                      \
	SEC("kretprobe/" #func) int point##__kprobe__##part##_ret(struct pt_regs *ctx) \
	{                                                                      \
		struct call_args a = {};                                       \
									       \
		if (!call_exit(&a, id))                                        \
			return 0;                                              \
		return ____##point##_##part(ctx, a.arg[0], a.arg[1], a.arg[2], PT_REGS_RC(ctx)); \
	}                                                                      \
	static __always_inline int ____##point##_##part(void *ctx, __u64 a0, __u64 a1, __u64 a2, long ret)

/* KFUNC_PART(point, part, func, args...) { body }: as KFUNC, for a point that takes
 * several functions together.
 */
#define KFUNC_PART(point, part, func, args...)                                 \
	static __always_inline int ____##point##_##part(void *ctx, ##args);    \
	SEC("fentry/" #func) int point##__fentry__##part(unsigned long long *ctx) \
	{                                                                      \
		CAST(return ____##point##_##part(___bpf_ctx_cast(args)))       \
	}                                                                      \
	SEC("kprobe/" #func) int point##__kprobe__##part(struct pt_regs *ctx)  \
	{                                                                      \
		CAST(return ____##point##_##part(___bpf_kprobe_args(args)))    \
	}                                                                      \
	static __always_inline int ____##point##_##part(void *ctx, ##args)
