//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* solife - one event for each session of a socket, when its last descriptor is gone. */
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

/* An open session. It has only the fields that its end needs, because a machine
 * may have many sockets.
 */
struct life {
	struct who who; /* that began it, or used it last */
	__u64 seen;
	__u64 tx, rx;
	__u64 sock; /* cookie of a UNIX socket; others still have theirs at the end */
	__u32 netns;
	__u16 type;
	__u16 family;
	__u8 flags;
	__u8 named; /* bits of enum end */
	__u8 pad[2];
	__u32 exec; /* who_exec() of who; 0 if it was found */
};
#define LIFE_BORN 1 /* seen is its beginning; else it is older */
#define LIFE_IDLE 2 /* older, unconnected, and not used since: perhaps no session */

/* By the address of the socket. For a UNIX socket it is that of its file's
 * dentry, because its memory may be reused before its file is gone.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__type(key, __u64);
	__type(value, struct life);
} lives SEC(".maps");

/* Names of UNIX sockets: in most sessions one end has a name. */
enum end { END_LOCAL = 1, END_PEER = 2 };
struct name_key {
	__u64 life;
	__u64 end;
};
struct name {
	char path[108];
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, struct name_key);
	__type(value, struct name);
} names SEC(".maps");

static const struct name name_zero = {};

static __always_inline struct sock *unix_peer(const struct sock *sk)
{
	return BPF_CORE_READ((struct unix_sock *)sk, peer);
}

/* Is sk of a kind whose end we see, and does it belong to a process? The kernel's
 * own sockets have no file, and MPTCP's first subflow has its connection's.
 */
static __always_inline __u64 life_dentry(const struct sock *sk)
{
	__u16 family = sock_family(sk);
	struct socket *socket;

	if (family != AF_UNIX && !is_inet(family))
		return 0;
	socket = BPF_CORE_READ(sk, sk_socket);
	if (BPF_CORE_READ(socket, sk) != sk)
		return 0;
	return (__u64)BPF_CORE_READ(socket, file, f_path.dentry);
}

static __always_inline __u64 life_key(const struct sock *sk)
{
	return sock_family(sk) == AF_UNIX ? life_dentry(sk) : (__u64)sk;
}

static __always_inline struct life *life_of(const struct sock *sk)
{
	__u64 key = life_key(sk);

	return bpf_map_lookup_elem(&lives, &key);
}

/* Keep the name that sk is bound to, if any, as that of an end of the session. */
static __noinline int name_put(const struct sock *sk, struct life *l, __u64 key, enum end end)
{
	struct name_key k = { .life = key, .end = end };
	struct name *n;

	if (!l || !BPF_CORE_READ((struct unix_sock *)sk, addr))
		return 0;
	if (bpf_map_update_elem(&names, &k, &name_zero, BPF_ANY)) {
		lose(LOSS_SPAN);
		return 0;
	}
	n = bpf_map_lookup_elem(&names, &k);
	if (n)
		unix_path(n->path, sk);
	l->named |= end;
	return 0;
}

static __noinline int names_put(const struct sock *sk)
{
	__u64 key = life_dentry(sk);
	struct life *l = bpf_map_lookup_elem(&lives, &key);
	struct sock *peer = unix_peer(sk);

	name_put(sk, l, key, END_LOCAL);
	if (peer)
		name_put(peer, l, key, END_PEER);
	return 0;
}

/* how: BPF_ANY if the socket is new; BPF_NOEXIST if it may have a session
 * already.
 */
static __noinline int life_put(const struct sock *sk, const struct who *who, __u32 exec, __u32 flags, __u64 how)
{
	struct life l = { .exec = exec, .flags = flags };
	__u64 key = life_key(sk);
	int err; /* 5.10 leaves the upper half of the register alone */

	if (!who || !life_dentry(sk) || !sock_wanted(sk))
		return 0;
	l.who = *who;
	l.seen = bpf_ktime_get_ns();
	l.sock = sock_cookie(sk);
	l.netns = sock_netns(sk);
	l.type = BPF_CORE_READ(sk, sk_type);
	l.family = sock_family(sk);
	err = bpf_map_update_elem(&lives, &key, &l, how);
	if (err) {
		if (err != -17 /* EEXIST */)
			lose(LOSS_SPAN);
		return 0;
	}
	if (l.family == AF_UNIX)
		names_put(sk);
	return 0;
}

/* Not static, and with numbers as arguments: it is verified once, not for each
 * message of a call.
 */
__noinline int begin_number(__u64 key, __u32 flags, __u64 how)
{
	const struct sock *sk = (void *)key;
	struct who w = {};

	if (sk && !is_self() && who_current(&w))
		life_put(sk, &w, who_exec(), flags, how);
	return 0;
}

static __always_inline int begin(const struct sock *sk, __u32 flags, __u64 how)
{
	return begin_number((__u64)cgroup_sock((void *)sk), flags, how);
}

/* TCP's connects, by any call. A failed one is not a session. */
KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	__u64 key = (__u64)sk;

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
	/* A connect to AF_UNSPEC removes the peer. */
	if (sock_family(sk) == AF_UNIX ? !unix_peer(sk) : sock_state(sk) == TCP_CLOSE)
		return 0;
	if (sock_family(sk) == AF_UNIX && life_of(sk))
		return names_put(sk); /* a new peer */
	return begin(sk, LIFE_BORN, BPF_NOEXIST);
}

SOCK_CALL(connect, CALL_CONNECT)
SOCK_CALL(accept, CALL_ACCEPT)
SOCK_CALL(accept4, CALL_ACCEPT)
SOCK_CALL(socketpair, CALL_SOCKETPAIR)
SOCK_CALL_URING(op == URING_CONNECT || op == URING_ACCEPT)

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags)
{
	struct life *l = life_of(sk);

	if (ret < 0 || (dir == IO_RECV && flags & MSG_NOT_RECEIVED))
		return 0;
	if (!l) {
		/* Datagrams need no connect. An unknown stream is older. */
		begin(sk, BPF_CORE_READ(sk, sk_type) == SOCK_STREAM ? 0 : LIFE_BORN, BPF_NOEXIST);
		l = life_of(sk);
		if (!l)
			return 0;
	}
	if (l->flags & LIFE_IDLE)
		l->flags &= ~LIFE_IDLE;
	if (!who_still(&l->who, l->exec)) {
		struct who w = {};

		if (who_current(&w)) {
			l->who = w;
			l->exec = who_exec();
		}
	}
	__sync_fetch_and_add(dir == IO_SEND ? &l->tx : &l->rx, ret);
	return 0;
}

static __always_inline void name_show(char path[108], const struct life *l, __u64 key, enum end end)
{
	struct name_key k = { .life = key, .end = end };
	struct name *n = l->named & end ? bpf_map_lookup_elem(&names, &k) : NULL;

	if (n)
		__builtin_memcpy(path, n->path, sizeof(n->path));
}

static __always_inline void name_forget(const struct life *l, __u64 key, enum end end)
{
	struct name_key k = { .life = key, .end = end };

	if (l->named & end)
		bpf_map_delete_elem(&names, &k);
}

/* Nothing is read from UNIX sockets any more: sk is NULL. */
static __always_inline void life_show(const struct sock *sk, const struct life *l, __u64 key)
{
	struct tuple t = { .family = AF_UNIX, .proto = PROTO_FAMILY | AF_UNIX, .sock = l->sock };
	__u64 now = bpf_ktime_get_ns();
	__u8 state = TCP_CLOSE;
	struct life_event *e;

	if (sk) {
		tuple_fill(&t, sk);
		state = sock_state(sk);
	} else {
		__builtin_memset(t.laddr, 0xff, sizeof(t.laddr)); /* no address: kern.Addr */
		__builtin_memset(t.raddr, 0xff, sizeof(t.raddr));
	}
	if (state == TCP_SYN_SENT || l->flags & LIFE_IDLE || !tuple_wanted(&t) || !who_wanted(&l->who))
		return;
	e = EVENT_NEW(struct life_event);
	if (!e)
		return;
	e->head.ts = now;
	e->head.netns = l->netns;
	e->head.who = l->who;
	e->tuple = t;
	e->tx = l->tx;
	e->rx = l->rx;
	e->seen = now - l->seen;
	e->duration = l->flags & LIFE_BORN ? e->seen : NONE;
	e->type = l->type;
	e->peerless = l->type != SOCK_STREAM && state == TCP_CLOSE;
	name_show(e->path, l, key, END_LOCAL);
	name_show(e->peer, l, key, END_PEER);
	event_send(e);
}

/* The socket is gone, or going. */
static __noinline int closed(const struct sock *sk, __u64 key)
{
	struct life *l = bpf_map_lookup_elem(&lives, &key);

	if (!l || (l->family == AF_UNIX) != !sk)
		return 0;
	life_show(sk, l, key);
	name_forget(l, key, END_LOCAL);
	name_forget(l, key, END_PEER);
	bpf_map_delete_elem(&lives, &key);
	return 0;
}

SEC("cgroup/sock_release") int release__cgroup(struct cgroup_sk *ctx)
{
	const struct sock *sk = cgroup_sock(ctx);

	closed(sk, (__u64)sk);
	return CGROUP_ALLOW;
}

KFUNC(release, inet_release, struct socket *socket)
{
	struct sock *sk = BPF_CORE_READ(socket, sk);

	return closed(sk, (__u64)sk);
}

KFUNC(unixend, unix_release, struct socket *socket)
{
	return closed(NULL, life_dentry(BPF_CORE_READ(socket, sk)));
}

/* Without function tracing, the end of a UNIX socket's file: the dentry of a
 * socket is freed together with it, not later. The third argument is the
 * cache's name since 5.13, and the cache since 6.1. Once the cache of dentries
 * is known, others cost only a comparison.
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
	__u64 cache;

	if (args_kmem_cache_free > 2) {
		cache = ctx[2];
		if (cache != dentry_cache) {
			if (dentry_cache || !is_dentry_cache(cache))
				return 0;
			dentry_cache = cache;
		}
	}
	return closed(NULL, ctx[1]);
}

/* Sessions that are older than the tool. Runs once, after the others are attached. */
SEC("iter/task_file") int owner_seed__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct who w = {};
	struct sock *sk;
	__u8 state;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk)
		return 0;
	state = sock_state(sk);
	if (state == TCP_LISTEN || (state == TCP_CLOSE && BPF_CORE_READ(sk, sk_type) == SOCK_STREAM))
		return 0;
	who_task(&w, task);
	if (w.pid != filter_self)
		life_put(sk, &w, 0, state == TCP_CLOSE ? LIFE_IDLE : 0, BPF_NOEXIST);
	return 0;
}
