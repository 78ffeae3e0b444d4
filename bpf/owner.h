/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* owner.h - the process that owns a TCP socket.
 *
 * Much of TCP runs in softirq, where the current task is an unrelated one that was
 * interrupted. So programs record the owner of each socket where the kernel runs in
 * the owner's context: at connect, listen, accept, send and receive. One walk over
 * all open files finds the sockets that are older than the tool.
 *
 * A tool that includes this header gets programs for all of these hooks. Go attaches
 * them automatically (internal/tool/owner.go). A tool that wants it otherwise defines
 * OWNER_OPTIONS before the include: bits of enum owner_option. It may also define code
 * and fields of its own:
 *
 * OWNER_FIELDS: fields of the tool in the entry, for the life of the socket. A tool that
 * runs alone has them in place of the times of OWNER_TIMES.
 * OWNER_FILL(own, sk): fills in these fields when the entry is made.
 * OWNER_ON_FOUND(sk): is called for each socket that the walk finds.
 * OWNER_ON_ACCEPTED(sk): is called for each socket that was accepted.
 *
 * Tools that share an engine also share one table. A separate object writes it
 * (bpf/owners.bpf.c), and the tools only look it up: Go adds OWNER_SHARED to their
 * options. OWNER_FIELDS are then in a map of the tool.
 *
 * The key is the address of the socket, because MPTCP sockets share cookies.
 */
#pragma once
#include "cgroup.h"
#include "fd.h"
#include "kept.h"
#include "listener.h"
#include "mptcp.h"
#include "seen.h"
#include "syscall.h"
#include "tcp.h"
#include "uring.h"
#include "who.h"

/* What differs from tool to tool. Go: ownerOption, same bits. */
enum owner_option {
	OWNER_LISTENERS = 1 << 0,	/* a connection that is not accepted yet has the owner of its listener */
	OWNER_LISTENERS_ONLY = 1 << 1,	/* owners of listeners only: only listen(2) and the end of listeners cost anything */
	OWNER_ALL = 1 << 2,		/* owners of all IP sockets; of one that is not TCP's from its creation to its release */
	OWNER_TIMES = 1 << 3,		/* an entry has the times when the socket was made and established */
	OWNER_GIVES = 1 << 4,		/* the tool calls owner_give(), also for sockets that nobody accepts */
	OWNER_STATE_IN_TOOL = 1 << 5,	/* the tool has its own program on inet_sock_set_state, which calls owner_on_state() */
	OWNER_ENDS_AT_CLOSE = 1 << 6,	/* no owner after CLOSE; a program of the tool on the state calls owner_end() last */
	OWNER_IO_IN_TOOL = 1 << 7,	/* the tool sees reads or sends, and calls owner_on_io() if another process makes them */
	OWNER_COOKIES_IN_TOOL = 1 << 8, /* a change of state makes no cookie: rows have none, or the tool makes it */
	OWNER_FINDS = 1 << 9,		/* set here: the tool has OWNER_ON_FOUND or OWNER_FILL */
	OWNER_ACCEPTS = 1 << 10,	/* set here: the tool has OWNER_ON_ACCEPTED */
	OWNER_OWN = 1 << 11,		/* set here: the tool has OWNER_FIELDS */
	OWNER_TABLE = 1 << 12,		/* the object writes the table that tools share */
	OWNER_SHARED = 1 << 13,		/* set by Go: another object writes the table */
};
#ifndef OWNER_OPTIONS
#define OWNER_OPTIONS 0
#endif

/* The tool's own code; empty if it has none. */
#if defined(OWNER_ON_FOUND) || defined(OWNER_FILL)
#define OWNER_HAS_FOUND OWNER_FINDS
#else
#define OWNER_HAS_FOUND 0
#endif
#ifndef OWNER_ON_FOUND
#define OWNER_ON_FOUND(sk)
#endif
#ifndef OWNER_FILL
#define OWNER_FILL(own, sk)
#endif
#ifdef OWNER_ON_ACCEPTED
#define OWNER_HAS_ACCEPTED OWNER_ACCEPTS
#else
#define OWNER_HAS_ACCEPTED 0
#define OWNER_ON_ACCEPTED(sk)
#endif

/* Its own fields. A tool without any would make the map in vain. */
#ifdef OWNER_FIELDS
#define OWNER_HAS_FIELDS OWNER_OWN
struct owner_own {
	__u64 cookie; /* as in struct owner */
	OWNER_FIELDS
};

/* Used if the table is shared. Otherwise the map has one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct owner_own);
} owner_own SEC(".maps");

static __always_inline struct owner_own *owner_own_entry(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	return bpf_map_lookup_elem(&owner_own, &key);
}

static __always_inline void owner_own_put(const struct sock *sk, const struct owner_own *own, __u64 how)
{
	__u64 key = (__u64)sk;
	int err = bpf_map_update_elem(&owner_own, &key, own, how);

	if (err && err != -17 /* EEXIST */)
		lose(LOSS_OWNER_FULL);
}

/* Make the tool's own entry of a new socket. */
static __always_inline void owner_own_new(const struct sock *sk, __u64 how)
{
	struct owner_own own = { .cookie = sock_cookie(sk) };

	OWNER_FILL(&own, sk);
	owner_own_put(sk, &own, how);
}

static __always_inline void owner_own_end(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	bpf_map_delete_elem(&owner_own, &key);
}
#else
#define OWNER_HAS_FIELDS 0
struct owner_own {
	__u64 cookie;
};

static __always_inline void owner_own_new(const struct sock *sk, __u64 how) {}
static __always_inline void owner_own_end(const struct sock *sk) {}
#endif

/* Go adds OWNER_SHARED, and attaches only the programs that these options leave. */
const volatile enum owner_option owner_options = OWNER_OPTIONS | OWNER_HAS_FOUND | OWNER_HAS_ACCEPTED | OWNER_HAS_FIELDS;

/* Of the table: OWNER_ALL or OWNER_TIMES if a tool has it, OWNER_LISTENERS_ONLY if all have it.
 * Set by Go, also while programs run.
 */
__u32 owner_wants = 0;

/* owner_has(options): is one of these bits of owner_options on? As for plain() of probe.h, Go
 * writes the answer into the program before it loads it (internal/probe). To read the constant
 * would cost two more instructions each time. The loader then removes the other branch.
 */
#define OWNER_HAS 0x5e1f0000
#define owner_has(options)                                                     \
	({                                                                     \
		__u64 __on;                                                    \
									       \
		asm volatile("%0 = %1" : "=r"(__on) : "i"(OWNER_HAS | (options))); \
		__on;                                                          \
	})

/* The same, and in the table it depends on the tools that are there now. */
#define owner_asked(options) (owner_has(OWNER_TABLE) ? owner_wants & (options) : owner_has(options))

/* An entry has more than the process, so it must not be replaced. */
static __always_inline bool owner_keeps(void)
{
	return owner_has(OWNER_TIMES | OWNER_OWN);
}

struct owner {
	struct kept kept;
	union {
		struct {
			__u64 cookie;	   /* of the socket; 0: unknown yet */
			__u64 seen;	   /* time when this entry was made */
			__u64 established; /* 0: not seen */
		};
		struct owner_own own; /* only if the tool does not share the table */
	};
};
/* From 6.1 on the kernel adds 64 bytes to an entry, key included, and rounds the sum up to a
 * power of two. So an entry takes 256 bytes, and with one more word it would take 512.
 */
_Static_assert(sizeof(struct owner) == 192, "an entry is the same for all tools, and has no more");
_Static_assert(!(OWNER_OPTIONS & OWNER_TIMES) || !OWNER_HAS_FIELDS, "the fields are in the place of the times");

/* Flags, in kept.flags. */
#define OWNER_BORN 1	   /* the socket is younger than the tool: seen is its birth */
#define OWNER_RESET 2	   /* the peer has reset the connection */
#define OWNER_ACTIVE 4	   /* it has connected; with OWNER_BORN alone it was accepted */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u64);
	__type(value, struct owner);
} owners SEC(".maps");

/* The tool's own fields, if it does not share the table. */
static __always_inline struct owner_own *owner_own_in(struct owner *o)
{
	if (!o)
		return NULL;
	asm volatile("" : "+r"(o)); /* no sum of what may be NULL */
	return &o->own;
}

static __always_inline struct owner *owner_entry(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	return bpf_map_lookup_elem(&owners, &key);
}

/* Is this the entry of an earlier socket at the address of sk? That happens if the kernel
 * skipped the program at the end of the earlier one and the program at the start of sk. An
 * entry of nothing but the process has no cookie, and that process is written again.
 */
static __always_inline bool owner_stale(const struct owner *o, const struct sock *sk)
{
	return o->cookie && o->cookie != sock_cookie(sk);
}

/* Store the owner of sk. */
static __always_inline void owner_put(const struct sock *sk, struct owner *o, __u32 flags, __u64 how)
{
	int err; /* 5.10 leaves the upper half of the register alone */

	kept_init(&o->kept, (__u64)sk);
	if (owner_has(OWNER_TIMES)) {
		o->seen = bpf_ktime_get_ns();
		o->kept.flags = flags;
	}
	OWNER_FILL(&o->own, sk); /* the tool's own fields */
	/* The key is in the entry too, and the stack of 5.10 is small. */
	err = bpf_map_update_elem(&owners, &o->kept.copy[0].before, o, how);
	if (err && err != -17 /* EEXIST */)
		lose(LOSS_OWNER_FULL);
}

static __always_inline void owner_end(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (owner_has(OWNER_SHARED)) {
		owner_own_end(sk);
		return;
	}
	bpf_map_delete_elem(&owners, &key);
	seen_end(sk);
}

/* The part of owner_take for entries that have more than the process: write the process of mine
 * into the entry of sk. False if there is none, so that mine becomes the entry. It is a function
 * because of the stack: see owner_put.
 */
static __noinline bool owner_again(const struct sock *sk, struct owner *mine, __u32 flags)
{
	struct owner *o;

	mine->cookie = sock_cookie(sk);
	/* A socket that is born has no entry, unless its address is an old one's. */
	o = flags & OWNER_BORN ? NULL : owner_entry(sk);
	if (!o || owner_stale(o, sk))
		return false;
	kept_set(&o->kept, &mine->kept.copy[0].who, mine->kept.exec, (__u64)sk);
	return true;
}

/* The current process owns sk from now on. */
static __noinline void owner_take(const struct sock *sk, __u32 flags)
{
	struct owner mine = {};
	struct who *w = &mine.kept.copy[0].who;

	if (owner_has(OWNER_SHARED)) {
		owner_own_new(sk, BPF_ANY);
		return;
	}
	if (who_current(w)) {
		mine.kept.exec = who_exec();
	} else {
		/* The kernel connects: a subflow of MPTCP is given to its process later. */
		if (!owner_has(OWNER_TABLE) || !(flags & OWNER_ACTIVE))
			return;
	}
	if (owner_keeps() && owner_again(sk, &mine, flags))
		return;
	owner_put(sk, &mine, flags, BPF_ANY);
}

/* The process in the first copy of o owns sk from now on. */
static __always_inline void owner_give(const struct sock *sk, struct owner *o)
{
	struct owner *shared;

	if (!owner_has(OWNER_SHARED)) {
		owner_put(sk, o, 0, BPF_ANY);
		return;
	}
	shared = owner_entry(sk);
	if (shared)
		kept_set(&shared->kept, &o->kept.copy[0].who, 0, (__u64)sk);
}

/* Store a socket without an owner yet. Its cookie is unknown: the kernel gives it that of
 * the request after the change of state. This is a function because an entry is too large
 * for the stack of a caller.
 */
static __noinline void owner_born(const struct sock *sk)
{
	struct owner nobody = {};

	owner_put(sk, &nobody, OWNER_BORN, BPF_ANY);
}

static __always_inline bool is_tcp(__u16 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_MPTCP;
}

static __always_inline bool is_owned(__u16 proto)
{
	return is_tcp(proto) || owner_asked(OWNER_ALL);
}

/* Must owner_on_state run? Half of all changes are steps of a close and do not matter. */
static __always_inline bool owner_state(int old, int new)
{
	if (owner_has(OWNER_SHARED)) /* what else a tool looks at here is an end */
		return new == TCP_CLOSE;
	if (owner_asked(OWNER_LISTENERS_ONLY))
		return new == TCP_LISTEN || (old == TCP_LISTEN && new == TCP_CLOSE);
	if ((new == TCP_SYN_RECV || new == TCP_ESTABLISHED) && owner_asked(OWNER_TIMES))
		return true;
	return new == TCP_SYN_SENT || new == TCP_LISTEN || new == TCP_CLOSE;
}

/* The part of owner_on_state that keeps the addresses of listeners. */
static __always_inline void owner_listener(const struct sock *sk, int old, int new)
{
	if (!owner_has(OWNER_LISTENERS) || owner_has(OWNER_SHARED))
		return;
	if (new == TCP_LISTEN)
		listener_put(sk);
	else if (old == TCP_LISTEN && new == TCP_CLOSE)
		listener_drop(sk);
}

/* Call this on each inet_sock_set_state for which owner_state returns true. */
static __always_inline void owner_on_state(const struct sock *sk, int old, int new)
{
	if (owner_has(OWNER_SHARED))
		return;
	owner_listener(sk, old, new);
	if (new == TCP_SYN_SENT || new == TCP_LISTEN) {
		/* This runs in the context of connect or listen. */
		owner_take(sk, new == TCP_SYN_SENT ? OWNER_BORN | OWNER_ACTIVE : OWNER_BORN);
	} else if (new == TCP_SYN_RECV && owner_has(OWNER_TIMES)) {
		/* A child of a listener: accept will give its owner. If both ends connect
		 * at once, or a socket connects to itself, it comes here from SYN_SENT.
		 */
		if (old == TCP_LISTEN)
			owner_born(sk);
	} else if (new == TCP_ESTABLISHED && owner_has(OWNER_TIMES)) {
		struct owner *o = owner_entry(sk);

		if (o && !owner_stale(o, sk)) {
			o->established = bpf_ktime_get_ns();
			o->cookie = sock_cookie(sk);
		}
	} else if (new == TCP_CLOSE && load_proto(sk) == IPPROTO_MPTCP) {
		/* tcp_destroy_sock does not fire for it, and its memory is reused. */
		owner_end(sk);
	}
}

/* For tcp_sent(), by an entry of OWNER_TIMES. */
static __always_inline enum tcp_syn owner_syn(const struct owner *o)
{
	if (!o || !(o->kept.flags & OWNER_BORN))
		return SYN_GUESS;
	return o->kept.flags & OWNER_ACTIVE ? SYN_YES : SYN_NO;
}

/* Copy the process from the entry of sk. If the entry was replaced meanwhile, look it up again.
 * Returns the PID; 0: unknown. Callers compare it once. A bool would be a comparison here too.
 */
static __noinline __attribute__((unused)) __u32 owner_of(struct who *w, const struct sock *sk, const struct owner *o)
{
	if (o && !kept_get(w, &o->kept, (__u64)sk)) {
		o = owner_entry(sk);
		if (o)
			kept_get(w, &o->kept, (__u64)sk);
	}
	return w->pid;
}

/* Fill in the process that owns sk: that of own, which is owner_entry(sk), or that of the
 * MPTCP connection. False if the owner is unknown.
 */
static __always_inline bool owner_seek(struct who *w, const struct sock *sk, const struct owner *own)
{
	struct sock *parent = mptcp_parent(sk);

	if (parent && owner_of(w, parent, owner_entry(parent)))
		return true;
	if (owner_of(w, sk, own))
		return true;
	if (!owner_has(OWNER_LISTENERS))
		return false;
	/* It is not accepted yet: its listener's process owns it. */
	parent = listener_of(sk);
	return parent && owner_of(w, parent, owner_entry(parent));
}

/* The same, and count a loss if the owner is unknown. A tool calls it after its other filters:
 * a socket that they leave out is not a loss.
 */
static __always_inline bool owner_known(struct who *w, const struct sock *sk, const struct owner *own)
{
	if (owner_seek(w, sk, own))
		return true;
	lose(LOSS_OWNER);
	return false;
}

/* Fill in the owner of sk; count a loss if it is unknown. */
static __always_inline bool owner_get(struct who *w, const struct sock *sk)
{
	return owner_known(w, sk, owner_entry(sk));
}

KTRACE(owner_state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	if (!owner_has(OWNER_COOKIES_IN_TOOL))
		make_cookie(sk);
	if (!owner_state(old, new) || !is_owned(load_proto(sk)))
		return 0;
	owner_on_state(sk, old, new);
	if (new == TCP_CLOSE && owner_has(OWNER_ENDS_AT_CLOSE))
		owner_end(sk);
	return 0;
}

/* The current process owns a socket that it has accepted. */
static __noinline void owner_accepted(struct sock *sk)
{
	struct sock *first;
	__u16 proto;

	if (!sk || !is_inet(sock_family(sk)))
		return;
	proto = sock_proto(sk);
	if (!is_owned(proto))
		return;
	if (owner_has(OWNER_ENDS_AT_CLOSE) && sock_state(sk) == TCP_CLOSE) /* reset before it was accepted */
		return;
	if (!owner_has(OWNER_SHARED)) {
		owner_take(sk, 0);
		if (proto == IPPROTO_MPTCP && (first = mptcp_first(sk)))
			owner_take(first, 0);
	}
	OWNER_ON_ACCEPTED(sk); /* the tool's own */
}

/* A socket that is not of TCP may receive data right after its creation. */
SEC("cgroup/sock_create") int owner_made__cgroup(struct cgroup_sk *ctx)
{
	if (!is_tcp(ctx->protocol))
		owner_take(cgroup_sock(ctx), OWNER_BORN);
	return CGROUP_ALLOW;
}

/* Attached after the tool's own programs, which may still need the owner. */
SEC("cgroup/sock_release") int owner_release__cgroup(struct cgroup_sk *ctx)
{
	if (!is_tcp(ctx->protocol))
		owner_end(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

SYS_EXIT(owner_made, socket)
{
	struct sock *sk = ret < 0 ? NULL : fd_sock(ret);

	if (sk && is_inet(sock_family(sk)) && !is_tcp(sock_proto(sk)))
		owner_take(sk, OWNER_BORN);
	return 0;
}

SYS_EXIT(owner_accept, accept)
{
	if (ret >= 0)
		owner_accepted(fd_sock(ret));
	return 0;
}

SYS_EXIT(owner_accept, accept4)
{
	if (ret >= 0)
		owner_accepted(fd_sock(ret));
	return 0;
}

URING_COMPLETE(owner_uring, op == URING_ACCEPT)
{
	if (res >= 0)
		owner_accepted(fd_sock(res));
	return 0;
}

/* Another process than the owner sends or receives, because a descriptor was inherited or
 * passed on; or the owner has executed another program or changed its name.
 * Returns 1 if the table is right, and the socket is used often.
 */
static __noinline int owner_on_io(const struct sock *sk)
{
	struct owner *o;

	if (owner_has(OWNER_SHARED))
		return 0;
	o = owner_entry(sk);
	if (o && kept_still(&o->kept) && !owner_stale(o, sk))
		return kept_often(&o->kept);
	if (!o && (!is_inet(LOAD(sk, __sk_common.skc_family)) || !is_owned(load_proto(sk))))
		return 0;
	if (!o && owner_has(OWNER_ENDS_AT_CLOSE) && LOAD(sk, __sk_common.skc_state) == TCP_CLOSE)
		return 0;
	owner_take(sk, 0);
	return 0;
}

static __always_inline int owner_io(const struct sock *sk)
{
	if (owner_has(OWNER_SHARED))
		return 0;
	if (!seen_works()) {
		owner_on_io(sk);
		return 0;
	}
	if (is_inet(sk->__sk_common.skc_family) && !seen_still(sk) && owner_on_io(sk) && is_tcp(load_proto(sk)))
		seen_put(sk);
	return 0;
}

KTRACE(owner_send, sock_send_length, const struct sock *sk, int ret)
{
	return owner_io(sk);
}

KTRACE(owner_recv, sock_recv_length, const struct sock *sk, int ret)
{
	return owner_io(sk);
}

/* This also runs in the reader's context, on kernels before 6.3. */
KTRACE(owner_copied, tcp_rcv_space_adjust, const struct sock *sk)
{
	return owner_io(sk);
}

KTRACE(owner_gone, tcp_destroy_sock, const struct sock *sk)
{
	owner_end(sk);
	return 0;
}

/* The process of task has sk open. */
static __always_inline void owner_seed(struct sock *sk, struct task_struct *task)
{
	struct owner o = {};

	if (owner_has(OWNER_SHARED)) {
		owner_own_new(sk, BPF_NOEXIST);
		return;
	}
	if (owner_keeps())
		o.cookie = sock_cookie(sk);
	who_task(&o.kept.copy[0].who, task);
	owner_put(sk, &o, 0, BPF_NOEXIST);
	if (owner_has(OWNER_LISTENERS) && sock_state(sk) == TCP_LISTEN)
		listener_put(sk);
}

static __always_inline void owner_found(struct sock *sk, struct task_struct *task)
{
	if (owner_has(OWNER_ENDS_AT_CLOSE) && sock_state(sk) == TCP_CLOSE)
		return;
	if (owner_asked(OWNER_LISTENERS_ONLY) && sock_state(sk) != TCP_LISTEN)
		return;
	owner_seed(sk, task);
	OWNER_ON_FOUND(sk); /* the tool's own */
}

/* Visit all open sockets. This runs once, after the other programs are attached, so
 * that no socket is missed in between.
 */
SEC("iter/task_file") int owner_seed__iter(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock *sk, *first;
	__u16 proto;

	if (!task || !file || shares_files(task))
		return 0;
	sk = file_sock(file);
	if (!sk || !is_inet(sock_family(sk)))
		return 0;
	proto = sock_proto(sk);
	if (!is_owned(proto))
		return 0;
	owner_found(sk, task);
	if (proto == IPPROTO_MPTCP && (first = mptcp_first(sk)))
		owner_found(first, task);
	return 0;
}
