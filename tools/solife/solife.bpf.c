//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* solife - one event for each session of a socket, when nobody holds it any more. */
#include "cgroup.h"
#include "sockcall.h"
#include "sockio.h"
#include "unix.h"

struct life_event {
	struct head head;
	struct tuple tuple;
	__u64 tx, rx;
	__u64 duration; /* NONE: when the session began is not known */
	__u64 seen;	/* how long we watched it */
	__u16 type;	/* SOCK_* */
	__u8 peerless;	/* an unconnected socket: it has no peer, or many */
	__u8 pad[5];
	char path[108], peer[108]; /* of UNIX sockets */
};
EVENT(struct life_event);

/* A session that goes on, by the address of its socket. */
struct life {
	struct who who; /* that began it, or used it last */
	struct tuple tuple;
	__u64 seen;
	__u64 tx, rx;
	__u32 netns;
	__u16 type;
	__u16 flags;
	char path[108], peer[108];
};
#define LIFE_BORN 1 /* seen is its beginning; else it is older */
#define LIFE_IDLE 2 /* older, unconnected, and not used since: perhaps no session */

/* The memory of a UNIX socket may be another one's before its file is gone. */
struct life_key {
	__u64 sk;
	__u64 dentry; /* of the file of a UNIX socket */
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct life_key);
	__type(value, struct life);
} lives SEC(".maps");

static const struct life life_zero = {};

/* UNIX sockets by the dentries of their files. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, __u64);
	__type(value, __u64);
} files SEC(".maps");

static __always_inline struct sock *unix_peer(const struct sock *sk)
{
	return BPF_CORE_READ((struct unix_sock *)sk, peer);
}

/* Is sk of a kind whose end we see, and a program's? The kernel's own sockets,
 * and with them the subflows of MPTCP, have no file.
 */
static __always_inline __u64 life_dentry(const struct sock *sk)
{
	__u16 family = sock_family(sk);

	if (family != AF_UNIX && !is_inet(family))
		return 0;
	return (__u64)BPF_CORE_READ(sk, sk_socket, file, f_path.dentry);
}

static __always_inline struct life_key life_key_of(const struct sock *sk)
{
	struct life_key k = { .sk = (__u64)sk };

	if (sock_family(sk) == AF_UNIX)
		k.dentry = life_dentry(sk);
	return k;
}

static __always_inline struct life *life_of(const struct sock *sk)
{
	struct life_key k = life_key_of(sk);

	return bpf_map_lookup_elem(&lives, &k);
}

static __noinline int life_names(const struct sock *sk, struct life *l)
{
	struct sock *peer = unix_peer(sk);

	if (!l)
		return 0;
	unix_path(l->path, sk);
	if (peer)
		unix_path(l->peer, peer);
	return 0;
}

/* how: BPF_ANY where the socket is new; BPF_NOEXIST where it may have its
 * session already.
 */
static __noinline int life_put(const struct sock *sk, const struct who *who, __u32 flags, __u64 how)
{
	struct life_key key = life_key_of(sk);
	struct life *l;
	int err; /* 5.10 leaves the upper half of the register alone */

	if (!who || !life_dentry(sk) || !sock_wanted(sk))
		return 0;
	err = bpf_map_update_elem(&lives, &key, &life_zero, how);
	if (err) {
		if (err != -17 /* EEXIST */)
			lose(LOSS_SPAN);
		return 0;
	}
	l = bpf_map_lookup_elem(&lives, &key);
	if (!l)
		return 0;
	l->who = *who;
	l->seen = bpf_ktime_get_ns();
	l->flags = flags;
	l->netns = sock_netns(sk);
	l->type = BPF_CORE_READ(sk, sk_type);
	tuple_fill(&l->tuple, sk);
	if (l->tuple.family == AF_UNIX) {
		if (bpf_map_update_elem(&files, &key.dentry, &key.sk, BPF_ANY))
			lose(LOSS_SPAN);
		life_names(sk, l);
	}
	return 0;
}

/* A function of numbers alone, not static: it is verified once, not for each of
 * the messages that a call may move.
 */
__noinline int begin_number(__u64 key, __u32 flags, __u64 how)
{
	const struct sock *sk = (void *)key;
	struct who w = {};

	if (sk && !is_self() && who_current(&w))
		life_put(sk, &w, flags, how);
	return 0;
}

static __always_inline int begin(const struct sock *sk, __u32 flags, __u64 how)
{
	return begin_number((__u64)cgroup_sock((void *)sk), flags, how);
}

/* TCP's connects, by whichever call. One that comes to nothing is no session. */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct life_key key = { .sk = (__u64)sk };

	if (new == TCP_SYN_SENT)
		begin(sk, LIFE_BORN, BPF_NOEXIST);
	else if (old == TCP_SYN_SENT && new == TCP_CLOSE)
		bpf_map_delete_elem(&lives, &key);
	return 0;
}

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret)
{
	struct sock *sk = call_sock(c);

	if (ret < 0 || !sk)
		return 0;
	if (c->op != CALL_CONNECT) {
		begin(sk, LIFE_BORN, BPF_ANY);
		if (c->op == CALL_SOCKETPAIR && sock_family(sk) == AF_UNIX)
			begin(unix_peer(sk), LIFE_BORN, BPF_ANY);
		return 0;
	}
	/* A connect to AF_UNSPEC lets go of the peer. */
	if (sock_family(sk) == AF_UNIX ? !unix_peer(sk) : sock_state(sk) == TCP_CLOSE)
		return 0;
	begin(sk, LIFE_BORN, BPF_NOEXIST);
	if (sock_family(sk) == AF_UNIX)
		life_names(sk, life_of(sk));
	return 0;
}

SOCK_CALL(connect, CALL_CONNECT)
SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL(socketpair, CALL_SOCKETPAIR)
SOCK_CALL_URING(op == URING_CONNECT || op == URING_ACCEPT)

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct life *l = life_of(sk);

	if (ret < 0 || (dir == IO_RECV && flags & (MSG_PEEK | MSG_ERRQUEUE)))
		return 0;
	if (!l) {
		/* Datagrams need no connect. A stream that we do not know is older. */
		begin(sk, BPF_CORE_READ(sk, sk_type) == SOCK_STREAM ? 0 : LIFE_BORN, BPF_NOEXIST);
		l = life_of(sk);
		if (!l)
			return 0;
	}
	l->flags &= ~LIFE_IDLE;
	if (l->who.pid != bpf_get_current_pid_tgid() >> 32) {
		struct who w = {};

		if (who_current(&w))
			l->who = w;
	}
	__sync_fetch_and_add(dir == IO_SEND ? &l->tx : &l->rx, ret);
	return 0;
}

/* The socket is gone, or going. Of UNIX sockets nothing is read any more. */
static __noinline int closed(const struct sock *sk, __u64 dentry)
{
	struct life_key key = { .sk = (__u64)sk, .dentry = dentry };
	struct life *l = bpf_map_lookup_elem(&lives, &key);
	__u64 now = bpf_ktime_get_ns();
	struct life_event *e;
	__u8 state = TCP_CLOSE;

	if (!l)
		return 0;
	if (is_inet(l->tuple.family)) {
		tuple_fill(&l->tuple, sk);
		state = sock_state(sk);
	}
	if (state == TCP_SYN_SENT || l->flags & LIFE_IDLE || !tuple_wanted(&l->tuple) || !who_wanted(&l->who))
		goto out;
	e = EVENT_NEW(struct life_event);
	if (!e)
		goto out;
	e->head.ts = now;
	e->head.netns = l->netns;
	e->head.who = l->who;
	e->tuple = l->tuple;
	e->tx = l->tx;
	e->rx = l->rx;
	e->seen = now - l->seen;
	e->duration = l->flags & LIFE_BORN ? e->seen : NONE;
	e->type = l->type;
	e->peerless = l->type != SOCK_STREAM && state == TCP_CLOSE;
	__builtin_memcpy(e->path, l->path, sizeof(e->path));
	__builtin_memcpy(e->peer, l->peer, sizeof(e->peer));
	event_send(e);
out:
	bpf_map_delete_elem(&lives, &key);
	if (dentry)
		bpf_map_delete_elem(&files, &dentry);
	return 0;
}

SEC("cgroup/sock_release") int release__cgroup(struct cgroup_sk *ctx)
{
	closed(cgroup_sock(ctx), 0);
	return CGROUP_ALLOW;
}

KFUNC(release, inet_release, struct socket *socket)
{
	return closed(BPF_CORE_READ(socket, sk), 0);
}

KFUNC(unixend, unix_release, struct socket *socket)
{
	struct sock *sk = BPF_CORE_READ(socket, sk);

	return closed(sk, life_dentry(sk));
}

/* Without kernel functions, the end of a UNIX socket's file: a dentry as those
 * of sockets is freed with it, not later. The third argument is the cache's name
 * since 5.13, the cache since 6.1; once that of dentries is known, others are
 * left alone at the cost of a comparison.
 */
const volatile __u32 args_kmem_cache_free = 0;
__u64 dentry_cache = 0;

static __always_inline bool is_dentry(const char *name)
{
	char s[8] = {};

	return bpf_probe_read_kernel_str(s, sizeof(s), name) == 7 && *(__u64 *)s == *(__u64 *)"dentry\0";
}

static __noinline bool is_dentry_cache(__u64 cache)
{
	return is_dentry((void *)cache) || is_dentry(BPF_CORE_READ((struct kmem_cache *)cache, name));
}

SEC("raw_tp/kmem_cache_free") int unixend__slab(unsigned long long *ctx)
{
	__u64 object = ctx[1], cache, *sk;

	if (args_kmem_cache_free > 2) {
		cache = ctx[2];
		if (cache != dentry_cache) {
			if (dentry_cache || !is_dentry_cache(cache))
				return 0;
			dentry_cache = cache;
		}
	}
	sk = bpf_map_lookup_elem(&files, &object);
	return sk ? closed((void *)*sk, object) : 0;
}

/* Sessions that were there before. Runs once, after the others are attached. */
SEC("iter/task_file") int owner_seed__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct who w = {};
	struct sock *sk;
	__u8 state;

	if (!task || !file || BPF_CORE_READ(task, pid) != BPF_CORE_READ(task, tgid))
		return 0;
	sk = file_sock(file);
	if (!sk)
		return 0;
	state = sock_state(sk);
	if (state == TCP_LISTEN || (state == TCP_CLOSE && BPF_CORE_READ(sk, sk_type) == SOCK_STREAM))
		return 0;
	who_task(&w, task);
	if (w.pid != filter_self)
		life_put(sk, &w, state == TCP_CLOSE ? LIFE_IDLE : 0, BPF_NOEXIST);
	return 0;
}
