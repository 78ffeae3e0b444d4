//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* udplife - one event for each UDP socket, at its end. */
#include "cgroup.h"
#include "sockio.h"
#include "kept.h"

struct life_event {
	struct head head;
	struct tuple tuple;
	__u64 tx, rx;
	__u64 tx_datagrams, rx_datagrams;
	__u64 duration; /* NONE: the socket is older than we are */
	__u64 seen;	/* how long we watched it */
	__u32 drops;
	__u32 connected;
};
EVENT(struct life_event);

/* A socket that is open, by its address. */
struct life {
	struct kept kept; /* that opened it, or used it last */
	__u64 seen;
	__u64 tx, rx;
	__u64 tx_datagrams, rx_datagrams;
	__u32 drops; /* at that moment */
	__u32 born;  /* then; else it is older */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, __u64);
	__type(value, struct life);
} lives SEC(".maps");

static __always_inline bool is_udp(const struct sock *sk)
{
	return is_inet(sock_family(sk)) && sock_proto(sk) == IPPROTO_UDP;
}

static __always_inline void life_begin(const struct sock *sk, const struct who *who, __u32 born, __u64 how)
{
	struct life l = { .seen = bpf_ktime_get_ns(), .born = born };
	__u64 key = (__u64)sk;
	int err; /* 5.10 leaves the upper half of the register alone */

	l.kept.copy[0].who = *who;
	l.kept.exec = born ? who_exec() : 0;
	kept_init(&l.kept, key);
	l.drops = sock_drops(sk);
	err = bpf_map_update_elem(&lives, &key, &l, how);
	if (err && err != -17 /* EEXIST */)
		lose(LOSS_SPAN);
}

static __noinline int opened(const struct sock *sk)
{
	struct who w = {};

	if (sk && is_udp(sk) && sock_wanted(sk) && !is_self() && who_current(&w))
		life_begin(sk, &w, 1, BPF_ANY);
	return 0;
}

SEC("cgroup/sock_create") int create__cgroup(struct cgroup_sk *ctx)
{
	if (ctx->protocol == IPPROTO_UDP)
		opened(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

SYS_EXIT(create, socket)
{
	return ret >= 0 ? opened(fd_sock(ret)) : 0;
}

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	__u64 key = (__u64)sk;
	struct life *l;

	if (sock_proto(sk) != IPPROTO_UDP) /* nearly all are TCP's */
		return 0;
	l = bpf_map_lookup_elem(&lives, &key);
	if (!l || ret < 0 || (dir == IO_RECV && flags & MSG_NOT_RECEIVED))
		return 0;
	if (!kept_still(&l->kept)) {
		struct who w = {};

		if (who_current(&w))
			kept_set(&l->kept, &w, who_exec(), key);
	}
	if (dir == IO_SEND) {
		__sync_fetch_and_add(&l->tx, ret);
		__sync_fetch_and_add(&l->tx_datagrams, 1);
	} else {
		__sync_fetch_and_add(&l->rx, ret);
		__sync_fetch_and_add(&l->rx_datagrams, 1);
	}
	return 0;
}

/* Whichever process closes it, the row has the one that used it. */
static __noinline int closed(const struct sock *sk)
{
	__u64 key = (__u64)sk, now = bpf_ktime_get_ns();
	struct life *l = bpf_map_lookup_elem(&lives, &key);
	struct tuple t = {};
	struct who w = {};
	struct life_event *e;

	if (!l)
		return 0;
	if (!kept_get(&w, &l->kept, key) || !w.pid)
		lose(LOSS_OWNER);
	if (!tuple_fill(&t, sk) || !tuple_wanted(&t) || !who_wanted(&w))
		goto out;
	e = EVENT_NEW(struct life_event);
	if (!e)
		goto out;
	e->head.ts = now;
	e->head.netns = sock_netns(sk);
	e->head.who = w;
	e->tuple = t;
	e->tx = l->tx;
	e->rx = l->rx;
	e->tx_datagrams = l->tx_datagrams;
	e->rx_datagrams = l->rx_datagrams;
	e->seen = now - l->seen;
	e->duration = l->born ? e->seen : NONE;
	e->drops = sock_drops(sk) - l->drops;
	e->connected = sock_state(sk) == TCP_ESTABLISHED;
	event_send(e);
out:
	bpf_map_delete_elem(&lives, &key);
	return 0;
}

SEC("cgroup/sock_release") int release__cgroup(struct cgroup_sk *ctx)
{
	if (ctx->protocol == IPPROTO_UDP)
		closed(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

/* The socket still has its addresses. */
#define DESTROY(part, func)                                                    \
	SEC("fentry/" #func) int release__fentry__##part(unsigned long long *ctx) \
	{                                                                      \
		return closed((void *)ctx[0]);                                 \
	}                                                                      \
	SEC("kprobe/" #func) int release__kprobe__##part(struct pt_regs *ctx)  \
	{                                                                      \
		return closed((void *)PT_REGS_PARM1(ctx));                     \
	}
DESTROY(4, udp_destroy_sock)
DESTROY(6, udpv6_destroy_sock)

/* Sockets that were open before. Runs once, after the others are attached. */
SEC("iter/task_file") int owner_seed__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct who w = {};
	struct sock *sk;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk || !is_udp(sk) || !sock_wanted(sk))
		return 0;
	who_task(&w, task);
	life_begin(sk, &w, 0, BPF_NOEXIST);
	return 0;
}
