//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* gethostlatency - how long lookups of hosts take, by calls of the C library's
 * resolver. Go finds the library and attaches the uprobes.
 */
#include "latency.h"
#include "pending.h"
#include "span.h"
#include "who.h"

/* Go: calls, same order. */
enum call {
	CALL_getaddrinfo,
	CALL_gethostbyname,
	CALL_gethostbyname2,
	CALL_gethostbyname_r,
	CALL_gethostbyname2_r,
	CALL_gethostbyaddr,
	CALL_gethostbyaddr_r,
	CALL_other, /* --lib PATH:SYMBOL */
};

#define HOST_LEN 256
#define CODE_FAILED (-0x7fffffff - 1) /* nobody says why */

struct lookup_event {
	struct head head;
	__u64 latency;
	__u32 inflight;
	__s32 code; /* of getaddrinfo: EAI_*; of others: h_errno, or CODE_FAILED */
	__u32 call;
	__u32 addr_len; /* host is an address of so many bytes; 0: a name */
	char host[HOST_LEN];
	__u32 pending; /* it has not returned: latency is its age */
	__u32 pad;
};
EVENT(struct lookup_event);

struct lookup {
	__u64 start; /* 0: it is over */
	__u64 sp; /* of the outermost call; the stack grows down */
	const char *name; /* read at the end: it is the caller's until then */
	struct who who;
	/* Of the innermost _r call: */
	const int *h_errnop;
	void *const *result;
	__u32 inflight;
	__s32 h_errno;
	__u32 call;
	__u32 addr_len;
	__u32 netns;
	__u32 pad;
	char host[HOST_LEN]; /* as it was at the beginning, if its page was there then */
};
/* Too large for the stack. */
static const struct lookup lookup_zero = {};
THREAD_SPAN(lookups, struct lookup);

__u64 under_way = 0;

static __always_inline __u64 user_sp(const struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return ctx->sp;
#else
	return ctx->user_regs.sp;
#endif
}

/* Argument n of a user function, from 0. */
static __always_inline __u64 user_arg(const struct pt_regs *ctx, int n)
{
#if defined(__TARGET_ARCH_x86)
	__u64 v = 0;

	switch (n) {
	case 0:
		return ctx->di;
	case 1:
		return ctx->si;
	case 4:
		return ctx->r8;
	case 5:
		return ctx->r9;
	}
	/* The rest is on the stack, above the return address. */
	if (bpf_probe_read_user(&v, sizeof(v), (void *)ctx->sp + 8 * (n - 5)))
		lose(LOSS_READ);
	return v;
#else
	__u64 v;

	/* Written out: otherwise the compiler merges the loads into one at a
	 * variable offset. The verifier needs constant offsets into a context.
	 */
	asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"(offsetof(struct pt_regs, user_regs.regs) + 8 * n));
	return v;
#endif
}

/* The resolver has read the name, so its page is in memory. At the start of the
 * call it need not be.
 */
static __always_inline bool read_host(char *host, __u32 addr_len, const char *name)
{
	if (!name)
		return true;
	if (addr_len == 4)
		return !bpf_probe_read_user(host, 4, name);
	if (addr_len)
		return !bpf_probe_read_user(host, 16, name);
	return bpf_probe_read_user_str(host, HOST_LEN, name) >= 0;
}

/* Was this function entered by a jump from another probed function? That one
 * has a return probe already, so the kernel has replaced the return address by
 * the address of its trampoline, which is at the start of a page.
 */
static __always_inline bool jumped_to(struct pt_regs *ctx)
{
	__u64 to = 0;

#if defined(__TARGET_ARCH_x86)
	if (bpf_probe_read_user(&to, sizeof(to), (void *)ctx->sp))
		return false;
#else
	to = user_arg(ctx, 30); /* the link register */
#endif
	return to && !(to & 4095);
}

/* Two probes may be on a function: then it is entered twice at one stack pointer
 * within a short time. Later it is a new call, and the old one was left by longjmp.
 */
#define SAME_CALL_NS 10000000

/* Where a _r call puts its result and its error. A function of its own: see begin. */
static __noinline int begin_r(struct pt_regs *ctx, struct lookup *l, enum call call)
{
	__u64 h_errnop = 0, result = 0;

	if (call == CALL_gethostbyname_r) {
		result = user_arg(ctx, 4);
		h_errnop = user_arg(ctx, 5);
	} else if (call == CALL_gethostbyname2_r) {
		result = user_arg(ctx, 5);
		h_errnop = user_arg(ctx, 6);
	} else if (call == CALL_gethostbyaddr_r) {
		result = user_arg(ctx, 6);
		h_errnop = user_arg(ctx, 7);
	}
	if (h_errnop) {
		l->h_errnop = (const int *)h_errnop;
		l->result = (void *const *)result;
	}
	return 0;
}

/* No function of a uprobe uses 64 bytes of stack or more. From 6.13 on such a function
 * has one stack for each processor, which is safe where the kernel skips a program that
 * runs there already. It does not skip uprobes: a task that is preempted in one would
 * find its variables overwritten by the next task.
 */
static __noinline bool begin_who(struct lookup *l)
{
	__builtin_memset(&l->who, 0, sizeof(l->who));
	return who_current(&l->who) && who_wanted(&l->who);
}

static __noinline int begin_args(struct pt_regs *ctx, struct lookup *l, enum call call)
{
	bool is_addr = call == CALL_gethostbyaddr || call == CALL_gethostbyaddr_r;

	l->sp = user_sp(ctx);
	l->name = (const char *)user_arg(ctx, 0);
	l->netns = task_netns();
	l->addr_len = is_addr ? user_arg(ctx, 1) : 0;
	l->h_errnop = NULL;
	l->result = NULL;
	l->h_errno = 0;
	l->inflight = under_way;
	l->call = call;
	l->host[0] = 0;
	begin_r(ctx, l, call);
	read_host(l->host, l->addr_len, l->name);
	return 0;
}

static __always_inline int begin(struct pt_regs *ctx, enum call call)
{
	__u64 sp = user_sp(ctx), thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	struct lookup *l = bpf_map_lookup_elem(&lookups, &thread);
	bool inside = l && l->start;

	if (inside && (sp < l->sp || (sp == l->sp && (now - l->start < SAME_CALL_NS || jumped_to(ctx)))))
		return begin_r(ctx, l, call);
	if (is_self() || !netns_wanted(filter_on & FILTER_NETNS ? task_netns() : 0))
		return 0;
	if (!l) {
		span_begin(&lookups, &thread, &lookup_zero);
		l = bpf_map_lookup_elem(&lookups, &thread);
		if (!l)
			return 0;
	}
	if (!begin_who(l)) {
		if (inside)
			__sync_fetch_and_add(&under_way, -1);
		bpf_map_delete_elem(&lookups, &thread);
		return 0;
	}
	if (!inside)
		__sync_fetch_and_add(&under_way, 1);
	begin_args(ctx, l, call);
	l->start = now;
	return 0;
}

static __always_inline void lookup_fill(struct lookup_event *e, const struct lookup *l, __u64 now)
{
	e->head.ts = now;
	e->head.netns = l->netns;
	e->head.who = l->who;
	e->latency = now - l->start;
	e->inflight = l->inflight;
	e->call = l->call;
	e->addr_len = l->addr_len;
}

PENDING(pending, lookups, __u64, struct lookup)
{
	__u64 now = bpf_ktime_get_ns();
	struct lookup_event *e;

	if (!value->start || !latency_wanted(now - value->start))
		return 0;
	e = EVENT_NEW(struct lookup_event);
	if (!e)
		return 0;
	lookup_fill(e, value, now);
	__builtin_memcpy(e->host, value->host, HOST_LEN);
	e->pending = true;
	return event_send(e);
}

static __always_inline int end(struct pt_regs *ctx, enum call call)
{
	bool has_h_errnop = call == CALL_gethostbyname_r || call == CALL_gethostbyname2_r || call == CALL_gethostbyaddr_r;
	__u64 thread = bpf_get_current_pid_tgid(), latency;
	struct lookup *l = bpf_map_lookup_elem(&lookups, &thread);
	struct lookup_event *e;
	long ret = PT_REGS_RC(ctx);
	void *result = NULL;
	int code = 0;

	if (!l || !l->start)
		return 0;
	/* A plain call makes a _r call, with its own place for h_errno. It is
	 * valid only if there is no result: in other cases musl does not write it.
	 */
	if (has_h_errnop) {
		if (bpf_probe_read_user(&result, sizeof(result), l->result) ||
		    bpf_probe_read_user(&code, sizeof(code), l->h_errnop))
			lose(LOSS_READ);
		l->h_errno = result ? 0 : code;
	}
	if (user_sp(ctx) < l->sp)
		return 0;
	__sync_fetch_and_add(&under_way, -1);
	latency = bpf_ktime_get_ns() - l->start;
	if (!latency_wanted(latency))
		goto out;
	e = EVENT_NEW(struct lookup_event);
	if (!e)
		goto out;
	lookup_fill(e, l, l->start + latency);
	if (call == CALL_getaddrinfo || call == CALL_other)
		e->code = (int)ret;
	else if (has_h_errnop ? !result : !ret)
		e->code = l->h_errno ? l->h_errno : CODE_FAILED;
	if (!read_host(e->host, e->addr_len, l->name))
		lose(LOSS_READ);
	event_send(e);
out:
	l->start = 0;
	return 0;
}

#define LOOKUP(func)                                                           \
	SEC("uprobe/" #func) int lookup__uprobe__##func(struct pt_regs *ctx)   \
	{                                                                      \
		return begin(ctx, CALL_##func);                                \
	}                                                                      \
	SEC("uretprobe/" #func) int lookup__uprobe__##func##_ret(struct pt_regs *ctx) \
	{                                                                      \
		return end(ctx, CALL_##func);                                  \
	}

LOOKUP(getaddrinfo)
LOOKUP(gethostbyname)
LOOKUP(gethostbyname2)
LOOKUP(gethostbyname_r)
LOOKUP(gethostbyname2_r)
LOOKUP(gethostbyaddr)
LOOKUP(gethostbyaddr_r)
LOOKUP(other)

/* Since 6.6, one program on all functions of a file, detached at once. The
 * cookie is the call.
 */
SEC("uprobe.multi") int lookup__multi__enter(struct pt_regs *ctx)
{
	return begin(ctx, bpf_get_attach_cookie(ctx));
}

SEC("uretprobe.multi") int lookup__multi__return(struct pt_regs *ctx)
{
	return end(ctx, bpf_get_attach_cookie(ctx));
}

/* A thread may end in the middle of a lookup. */
KTRACE(gone, sched_process_exit, const struct task_struct *task)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct lookup *l = bpf_map_lookup_elem(&lookups, &thread);

	if (!l)
		return 0;
	if (l->start)
		__sync_fetch_and_add(&under_way, -1);
	bpf_map_delete_elem(&lookups, &thread);
	return 0;
}

/* A new program may use a C library that no process used before. Go reads its
 * memory map, unless the same program was started there just before.
 */
#define LOOK_AGAIN_NS 1000000000

struct exec_key {
	__u64 inode;
	__u32 dev, mnt_ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct exec_key);
	__type(value, __u64);
} execs SEC(".maps");

KTRACE(exec, sched_process_exec, struct task_struct *task, int old_pid, const struct linux_binprm *bprm)
{
	struct inode *inode = BPF_CORE_READ(bprm, file, f_inode);
	__u64 now = bpf_ktime_get_ns(), *last;
	struct exec_key k = {};

	k.inode = BPF_CORE_READ(inode, i_ino);
	k.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	k.mnt_ns = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	last = bpf_map_lookup_elem(&execs, &k);
	if (last && now - *last < LOOK_AGAIN_NS)
		return 0;
	bpf_map_update_elem(&execs, &k, &now, BPF_ANY);
	notice(bpf_get_current_pid_tgid() >> 32);
	return 0;
}
