/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* owner.h - the process that owns a TCP socket.
 *
 * Much of TCP runs in softirq, where the current task is an unrelated one that was
 * interrupted. So programs record the owner of each socket where the kernel runs in
 * the owner's context: at connect, listen, accept, send and receive. One walk over
 * all open files finds the sockets that are older than the tool.
 *
 * A tool that includes this header gets programs for all of these hooks. Go attaches
 * them automatically (internal/tool/owner.go). These macros, defined before the
 * include, change that. OWNER_STATE_IN_TOOL: the tool has its own program on
 * inet_sock_set_state and calls owner_on_state() there. OWNER_LISTENERS: a connection
 * that is not accepted yet has the owner of its listener.
 *
 * OWNER_ENDS_AT_CLOSE: the tool needs no owner after a socket is in CLOSE. That saves
 * a program that runs for each socket. A tool with its own program on the change of
 * state calls owner_end() last.
 *
 * OWNER_IO_IN_TOOL: the tool sees reads or sends itself. It calls owner_on_io() when
 * another process makes them.
 *
 * OWNER_COOKIES_IN_TOOL: the tool's rows have no cookie, or the tool makes it. Without
 * this macro, sockets get their cookies when their state changes.
 *
 * OWNER_TIMES: an entry has the times when the socket was made and established.
 * OWNER_FIELDS: fields of the tool in the entry, for the life of the socket.
 * OWNER_FILL(own, sk): fills in these fields when the entry is made.
 * OWNER_LISTENERS_ONLY: the tool needs the owners of listeners only. Then only
 * listen(2) and the end of listeners cost anything.
 *
 * OWNER_ALL: the tool gets the owners of all IP sockets. A socket that is not of TCP
 * has an owner from its creation to its release.
 *
 * Tools that share an engine also share one table. A separate object writes it
 * (bpf/owners.bpf.c, which defines OWNER_TABLE), and the tools only look it up. Then
 * owner_shared is true, and the verifier removes all code that would write. The entry
 * of each tool is a prefix of its entry. OWNER_FIELDS are then in a map of the tool.
 *
 * The key is the address of the socket, because MPTCP sockets share cookies.
 */
#pragma once
#include "fd.h"
#include "kept.h"
#include "mptcp.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

#ifdef OWNER_ALL
#include "cgroup.h"
#endif
#if !defined(OWNER_IO_IN_TOOL) && !defined(OWNER_LISTENERS_ONLY)
#include "seen.h"
#else
static __always_inline void seen_end(const struct sock *sk) {}
#endif
#ifdef OWNER_LISTENERS_ONLY
#define OWNER_LISTENERS
#define OWNER_ENDS_AT_CLOSE
#endif

#if defined(OWNER_TIMES) || defined(OWNER_FIELDS)
#define OWNER_KEEPS /* an entry has more than the process, so it must not be replaced */
#endif

#ifdef OWNER_FIELDS
struct owner_own {
	__u64 cookie; /* as in struct owner */
	OWNER_FIELDS
};
#endif

/* The shared table has the fields of OWNER_TIMES. The struct of a tool that shares it is
 * a prefix of that.
 */
struct owner {
	struct kept kept;
#ifdef OWNER_FIELDS
	union {
		__u64 cookie;
		struct owner_own own; /* only if the tool does not share the table */
	};
#elif defined(OWNER_KEEPS)
	__u64 cookie; /* of the socket; 0: unknown yet */
#endif
#ifdef OWNER_TIMES
	__u64 seen;	   /* time when this entry was made */
	__u64 established; /* 0: not seen */
#endif
};
#ifdef OWNER_TABLE
/* From 6.1 on the kernel adds 64 bytes to an entry, key included, and rounds the sum up to a
 * power of two. So an entry takes 256 bytes, and with one more word it would take 512.
 */
_Static_assert(sizeof(struct owner) <= 192, "an entry would take twice the memory");
#endif
/* Flags, in kept.flags. */
#define OWNER_BORN 1	   /* the socket is younger than the tool: seen is its birth */
#define OWNER_RESET 2	   /* the peer has reset the connection */
#define OWNER_ACTIVE 4	   /* it has connected; with OWNER_BORN alone it was accepted */

/* The fields of the shared table that a tool needs, and the programs that it has for its own
 * fields. Go: need, same bits.
 */
enum owner_need {
	NEED_USERS = 1 << 0,  /* owners of other sockets than listeners */
	NEED_TIMES = 1 << 1,  /* OWNER_TIMES, or entries from the birth on */
	NEED_ALL = 1 << 2,    /* OWNER_ALL */
	NEED_WALK = 1 << 3,   /* the tool has code for sockets that the walk finds */
	NEED_ACCEPT = 1 << 4, /* the tool has code for sockets that are accepted */
	NEED_OWN = 1 << 5,    /* the tool has OWNER_FIELDS */
};
#ifndef OWNER_LISTENERS_ONLY
#define NEEDS_USERS NEED_USERS
#else
#define NEEDS_USERS 0
#endif
#if defined(OWNER_TIMES) || defined(OWNER_GIVES)
#define NEEDS_TIMES NEED_TIMES
#else
#define NEEDS_TIMES 0
#endif
#ifdef OWNER_ALL
#define NEEDS_ALL NEED_ALL
#else
#define NEEDS_ALL 0
#endif
#if defined(OWNER_ON_FOUND) || defined(OWNER_FILL)
#define NEEDS_WALK NEED_WALK
#else
#define NEEDS_WALK 0
#endif
#ifdef OWNER_ON_ACCEPTED
#define NEEDS_ACCEPT NEED_ACCEPT
#else
#define NEEDS_ACCEPT 0
#endif
#ifdef OWNER_FIELDS
#define NEEDS_OWN NEED_OWN
#else
#define NEEDS_OWN 0
#endif
const volatile __u32 owner_needs = NEEDS_USERS | NEEDS_TIMES | NEEDS_ALL | NEEDS_WALK | NEEDS_ACCEPT | NEEDS_OWN;

#ifdef OWNER_TABLE
#define owner_shared false /* this object writes the table */
__u32 owner_wants = 0;	   /* enum owner_need of all tools that share it */
#define OWNER_WANTS(need) (owner_wants & (need))
#else
/* Go sets it if another object writes the table. */
const volatile bool owner_shared = false;
#define OWNER_WANTS(need) true
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, __u64);
	__type(value, struct owner);
} owners SEC(".maps");

#ifdef OWNER_FIELDS
/* Used if the table is shared. Otherwise the map has one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct owner_own);
} owner_own SEC(".maps");

/* The tool's own fields, if it does not share the table. */
static __always_inline struct owner_own *owner_own_in(struct owner *o)
{
	if (!o)
		return NULL;
	asm volatile("" : "+r"(o)); /* no sum of what may be NULL */
	return &o->own;
}

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

#ifdef OWNER_FILL
	OWNER_FILL(&own, sk);
#endif
	owner_own_put(sk, &own, how);
}
#endif

static __always_inline struct owner *owner_entry(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	return bpf_map_lookup_elem(&owners, &key);
}

#ifdef OWNER_KEEPS
/* Is this the entry of an earlier socket at the address of sk? That happens if the kernel
 * skipped the program at the end of the earlier one and the program at the start of sk.
 */
static __always_inline bool owner_stale(const struct owner *o, const struct sock *sk)
{
	return o->cookie && o->cookie != sock_cookie(sk);
}
#else
static __always_inline bool owner_stale(const struct owner *o, const struct sock *sk)
{
	return false; /* nothing but the process is kept, and that is written again */
}
#endif

/* Store the owner of sk. */
static __always_inline void owner_put(const struct sock *sk, struct owner *o, __u32 flags, __u64 how)
{
	__u64 key = (__u64)sk;
	int err; /* 5.10 leaves the upper half of the register alone */

	kept_init(&o->kept, key);
#ifdef OWNER_TIMES
	o->seen = bpf_ktime_get_ns();
	o->kept.flags = flags;
#endif
#ifdef OWNER_FILL
	OWNER_FILL(&o->own, sk); /* the tool's own fields */
#endif
	err = bpf_map_update_elem(&owners, &key, o, how);
	if (err && err != -17 /* EEXIST */)
		lose(LOSS_OWNER_FULL);
}

static __always_inline void owner_end(const struct sock *sk)
{
	__u64 key = (__u64)sk;

	if (!owner_shared) {
		bpf_map_delete_elem(&owners, &key);
		seen_end(sk);
	}
#ifdef OWNER_FIELDS
	else
		bpf_map_delete_elem(&owner_own, &key);
#endif
}

/* The current process owns sk from now on. */
static __noinline void owner_take(const struct sock *sk, __u32 flags)
{
	struct owner mine = {};
	struct who *w = &mine.kept.copy[0].who;

	if (owner_shared) {
#ifdef OWNER_FIELDS
		owner_own_new(sk, BPF_ANY);
#endif
		return;
	}
	if (who_current(w)) {
		mine.kept.exec = who_exec();
	} else {
#ifdef OWNER_TABLE
		/* The kernel connects: a subflow of MPTCP is given to its process later. */
		if (!(flags & OWNER_ACTIVE))
#endif
			return;
	}
#ifdef OWNER_KEEPS
	mine.cookie = sock_cookie(sk);
	/* A socket that is born has no entry, unless its address is an old one's. */
	struct owner *o = flags & OWNER_BORN ? NULL : owner_entry(sk);

	if (o && !owner_stale(o, sk)) {
		kept_set(&o->kept, w, mine.kept.exec, (__u64)sk);
		return;
	}
#endif
	owner_put(sk, &mine, flags, BPF_ANY);
}

#ifdef OWNER_GIVES
/* The process in the first copy of o owns sk from now on. */
static __always_inline void owner_give(const struct sock *sk, struct owner *o)
{
	struct owner *shared;

	if (!owner_shared) {
		owner_put(sk, o, 0, BPF_ANY);
		return;
	}
	shared = owner_entry(sk);
	if (shared)
		kept_set(&shared->kept, &o->kept.copy[0].who, 0, (__u64)sk);
}
#endif

#ifdef OWNER_TIMES
/* Store a socket without an owner yet. Its cookie is unknown: the kernel gives it that of
 * the request after the change of state. This is a function because an entry is too large
 * for the stack of a caller.
 */
static __noinline void owner_born(const struct sock *sk)
{
	struct owner nobody = {};

	owner_put(sk, &nobody, OWNER_BORN, BPF_ANY);
}
#endif

static __always_inline bool is_tcp(__u16 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_MPTCP;
}

static __always_inline bool is_owned(__u16 proto)
{
#ifdef OWNER_ALL
	if (OWNER_WANTS(NEED_ALL))
		return true;
#endif
	return is_tcp(proto);
}

#ifdef OWNER_LISTENERS
#include "listener.h"
#endif

/* Must owner_on_state run? Half of all changes are steps of a close and do not matter. */
static __always_inline bool owner_state(int old, int new)
{
	if (owner_shared) /* what else a tool looks at here is an end */
		return new == TCP_CLOSE;
#ifdef OWNER_LISTENERS_ONLY
	return new == TCP_LISTEN || (old == TCP_LISTEN && new == TCP_CLOSE);
#endif
	if (!OWNER_WANTS(NEED_USERS))
		return new == TCP_LISTEN || (old == TCP_LISTEN && new == TCP_CLOSE);
#ifdef OWNER_TIMES
	if ((new == TCP_SYN_RECV || new == TCP_ESTABLISHED) && OWNER_WANTS(NEED_TIMES))
		return true;
#endif
	return new == TCP_SYN_SENT || new == TCP_LISTEN || new == TCP_CLOSE;
}

/* The part of owner_on_state that keeps the addresses of listeners. */
static __always_inline void owner_listener(const struct sock *sk, int old, int new)
{
#ifdef OWNER_LISTENERS
	if (owner_shared)
		return;
	if (new == TCP_LISTEN)
		listener_put(sk);
	else if (old == TCP_LISTEN && new == TCP_CLOSE)
		listener_drop(sk);
#endif
}

/* Call this on each inet_sock_set_state for which owner_state returns true. */
static __always_inline void owner_on_state(const struct sock *sk, int old, int new)
{
	if (owner_shared)
		return;
	owner_listener(sk, old, new);
	if (new == TCP_SYN_SENT || new == TCP_LISTEN) {
		/* This runs in the context of connect or listen. */
		owner_take(sk, new == TCP_SYN_SENT ? OWNER_BORN | OWNER_ACTIVE : OWNER_BORN);
#ifdef OWNER_TIMES
	} else if (new == TCP_SYN_RECV) {
		/* A child of a listener: accept will give its owner. If both ends connect
		 * at once, or a socket connects to itself, it comes here from SYN_SENT.
		 */
		if (old == TCP_LISTEN)
			owner_born(sk);
	} else if (new == TCP_ESTABLISHED) {
		struct owner *o = owner_entry(sk);

		if (o && !owner_stale(o, sk)) {
			o->established = bpf_ktime_get_ns();
			o->cookie = sock_cookie(sk);
		}
#endif
	} else if (new == TCP_CLOSE && load_proto(sk) == IPPROTO_MPTCP) {
		/* tcp_destroy_sock does not fire for it, and its memory is reused. */
		owner_end(sk);
	}
}

/* Copy the process from the entry of sk. If the entry was replaced meanwhile, look it
 * up again.
 */
static __noinline __attribute__((unused)) bool owner_of(struct who *w, const struct sock *sk, const struct owner *o)
{
	enum kept_found got = o ? kept_get(w, &o->kept, (__u64)sk) : KEPT_NOBODY;

	if (got == KEPT_BROKEN) {
		o = owner_entry(sk);
		got = o ? kept_get(w, &o->kept, (__u64)sk) : KEPT_NOBODY;
	}
	return got == KEPT_FOUND;
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
#ifdef OWNER_LISTENERS
	/* It is not accepted yet: its listener's process owns it. */
	parent = listener_of(sk);
	if (parent && owner_of(w, parent, owner_entry(parent)))
		return true;
#endif
	return false;
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

#ifndef OWNER_STATE_IN_TOOL
KTRACE(owner_state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
#ifndef OWNER_COOKIES_IN_TOOL
	make_cookie(sk);
#endif
	if (!owner_state(old, new) || !is_owned(load_proto(sk)))
		return 0;
	owner_on_state(sk, old, new);
#ifdef OWNER_ENDS_AT_CLOSE
	if (new == TCP_CLOSE)
		owner_end(sk);
#endif
	return 0;
}
#endif

#ifndef OWNER_LISTENERS_ONLY
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
#ifdef OWNER_ENDS_AT_CLOSE
	if (sock_state(sk) == TCP_CLOSE) /* reset before it was accepted */
		return;
#endif
	if (!owner_shared) {
		owner_take(sk, 0);
		if (proto == IPPROTO_MPTCP && (first = mptcp_first(sk)))
			owner_take(first, 0);
	}
#ifdef OWNER_ON_ACCEPTED
	OWNER_ON_ACCEPTED(sk); /* the tool's own */
#endif
}

#ifdef OWNER_ALL
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
#endif

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

	if (owner_shared)
		return 0;
	o = owner_entry(sk);
	if (o && kept_still(&o->kept) && !owner_stale(o, sk))
		return kept_often(&o->kept);
	if (!o && (!is_inet(LOAD(sk, __sk_common.skc_family)) || !is_owned(load_proto(sk))))
		return 0;
#ifdef OWNER_ENDS_AT_CLOSE
	if (!o && LOAD(sk, __sk_common.skc_state) == TCP_CLOSE)
		return 0;
#endif
	owner_take(sk, 0);
	return 0;
}

#ifndef OWNER_IO_IN_TOOL
static __always_inline int owner_io(const struct sock *sk)
{
	if (owner_shared)
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
#endif
#endif

#ifndef OWNER_ENDS_AT_CLOSE
KTRACE(owner_gone, tcp_destroy_sock, const struct sock *sk)
{
	owner_end(sk);
	return 0;
}
#endif

/* The process of task has sk open. */
static __always_inline void owner_seed(struct sock *sk, struct task_struct *task)
{
	struct owner o = {};

	if (owner_shared) {
#ifdef OWNER_FILL
		owner_own_new(sk, BPF_NOEXIST);
#endif
		return;
	}
#ifdef OWNER_KEEPS
	o.cookie = sock_cookie(sk);
#endif
	who_task(&o.kept.copy[0].who, task);
	owner_put(sk, &o, 0, BPF_NOEXIST);
#ifdef OWNER_LISTENERS
	if (sock_state(sk) == TCP_LISTEN)
		listener_put(sk);
#endif
}

static __always_inline void owner_found(struct sock *sk, struct task_struct *task)
{

#ifdef OWNER_ENDS_AT_CLOSE
	if (sock_state(sk) == TCP_CLOSE)
		return;
#endif
#ifdef OWNER_LISTENERS_ONLY
	if (sock_state(sk) != TCP_LISTEN)
		return;
#endif
	if (!OWNER_WANTS(NEED_USERS) && sock_state(sk) != TCP_LISTEN)
		return;
	owner_seed(sk, task);
#ifdef OWNER_ON_FOUND
	OWNER_ON_FOUND(sk); /* the tool's own */
#endif
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
