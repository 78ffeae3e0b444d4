/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* owner.h - which process a TCP socket belongs to.
 *
 * Much of TCP runs in softirq, where the current task is whoever was
 * interrupted. So each socket's owner is written down where the kernel is in
 * the owner's context: at connect, listen, accept, and when it sends or
 * receives. Sockets that were there before are found by walking all files once.
 *
 * A tool that includes this header gets programs for all of these moments; Go
 * attaches them without being told (internal/tool/owner.go). A tool with a body
 * of its own on inet_sock_set_state defines OWNER_STATE_IN_TOOL first and calls
 * owner_on_state() there. One that defines OWNER_LISTENERS also knows the
 * process of connections that have not been accepted yet: their listener's.
 *
 * One that asks for no owner after a socket has come to CLOSE may define
 * OWNER_ENDS_AT_CLOSE: that saves it a program that runs for each socket. With a
 * body of its own there it calls owner_end() last.
 *
 * One that sees reads or sends itself, and notices that another process makes them, may define
 * OWNER_IO_IN_TOOL and call owner_on_io() then.
 *
 * Sockets get their cookies when their state changes, unless OWNER_COOKIES_IN_TOOL
 * says that the tool's rows show none, or make them.
 *
 * When sockets were born and established is kept where OWNER_TIMES is defined, and
 * OWNER_FIELDS are a tool's own, kept with the entry as long as the socket lives;
 * OWNER_FILL(own, sk) fills them when the entry is made.
 * One that asks for nobody but listeners defines OWNER_LISTENERS_ONLY, and only
 * listen(2) and the end of listeners cost it anything.
 *
 * A tool that defines OWNER_ALL first gets the owners of all IP sockets. Those
 * that are not TCP's have one from when they are made until they are released.
 *
 * Where tools share an engine they share one table too. An object of its own writes it
 * (bpf/owners.bpf.c, which defines OWNER_TABLE), and the tools only look it up: then
 * owner_shared is true, and the verifier throws away all that would write. Its layout
 * begins as that of every tool; OWNER_FIELDS are then in a map of the tool's own.
 *
 * Keyed by the address of the socket: MPTCP sockets share cookies.
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
#ifdef OWNER_LISTENERS_ONLY
#define OWNER_LISTENERS
#define OWNER_ENDS_AT_CLOSE
#endif

#if defined(OWNER_TIMES) || defined(OWNER_FIELDS)
#define OWNER_KEEPS /* more than the process: an entry is not simply replaced */
#endif

#ifdef OWNER_FIELDS
struct owner_own {
	__u64 cookie; /* as that of struct owner */
	OWNER_FIELDS
};
#endif

/* A table that is shared has what OWNER_TIMES has. Its tools know a part of that, from
 * the beginning on.
 */
struct owner {
	struct kept kept;
#ifdef OWNER_FIELDS
	union {
		__u64 cookie;
		struct owner_own own; /* only of a tool that has the table to itself */
	};
#elif defined(OWNER_KEEPS)
	__u64 cookie; /* of the socket; 0: not known yet */
#endif
#ifdef OWNER_TIMES
	__u64 seen;	   /* when this entry was made */
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
#define OWNER_BORN 1	   /* the socket began after we did: seen is its birth */
#define OWNER_RESET 2	   /* the peer reset it */
#define OWNER_ACTIVE 4	   /* it connected: a socket that is OWNER_BORN without was accepted */

/* What a tool needs of a table that is shared, and which programs it has besides for what
 * is its own. Go: need, same bits.
 */
enum owner_need {
	NEED_USERS = 1 << 0,  /* the processes of more sockets than listeners */
	NEED_TIMES = 1 << 1,  /* OWNER_TIMES, or entries from the birth on */
	NEED_ALL = 1 << 2,    /* OWNER_ALL */
	NEED_WALK = 1 << 3,   /* the tool looks at sockets that are found */
	NEED_ACCEPT = 1 << 4, /* it looks at sockets that are accepted */
	NEED_OWN = 1 << 5,    /* it has OWNER_FIELDS */
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
#define owner_shared false /* others share this one */
__u32 owner_wants = 0;	   /* enum owner_need of all tools that do */
#define OWNER_WANTS(need) (owner_wants & (need))
#else
/* Set by Go: the table is another object's. */
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
/* Where the table is shared; else a map of one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct owner_own);
} owner_own SEC(".maps");

/* That of a tool that has the table to itself. */
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

/* A socket of which the tool knows nothing so far. */
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
/* Is this the entry of an earlier socket at the address of sk? It is where the kernel
 * skipped the programs that end the one and begin the other.
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

/* Write down the owner of sk. Born: the socket came to be just now. */
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

	if (!owner_shared)
		bpf_map_delete_elem(&owners, &key);
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
/* From now on sk is the process's that o has in its first copy. */
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
/* A socket that is nobody's so far. Its cookie is not known: the kernel still gives it
 * that of the request, after the change of state. Entries are too large for the stack
 * of a caller.
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

/* Does owner_on_state have anything to do? Half of all changes are closing steps. */
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

/* The part of owner_on_state that is about addresses. */
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

/* Call on each inet_sock_set_state for which owner_state says so. */
static __always_inline void owner_on_state(const struct sock *sk, int old, int new)
{
	if (owner_shared)
		return;
	owner_listener(sk, old, new);
	if (new == TCP_SYN_SENT || new == TCP_LISTEN) {
		/* in the context of connect or listen */
		owner_take(sk, new == TCP_SYN_SENT ? OWNER_BORN | OWNER_ACTIVE : OWNER_BORN);
#ifdef OWNER_TIMES
	} else if (new == TCP_SYN_RECV) {
		/* A child of a listener; accept will name its owner. Where both ends
		 * connect at once, or to itself, a socket comes here from SYN_SENT.
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
		/* tcp_destroy_sock never comes for it; its memory is used again */
		owner_end(sk);
	}
}

/* Copy the process out of the entry of sk. An entry that was replaced meanwhile is
 * looked up again.
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

/* Fill w with the process that owns sk: that of own, which is owner_entry(sk), or of
 * its MPTCP connection. False when nobody knows.
 */
static __always_inline bool owner_seek(struct who *w, const struct sock *sk, const struct owner *own)
{
	struct sock *parent = mptcp_parent(sk);

	if (parent && owner_of(w, parent, owner_entry(parent)))
		return true;
	if (owner_of(w, sk, own))
		return true;
#ifdef OWNER_LISTENERS
	/* not accepted yet: so far it is its listener's */
	parent = listener_of(sk);
	if (parent && owner_of(w, parent, owner_entry(parent)))
		return true;
#endif
	return false;
}

/* The same, and count it when nobody knows. A tool asks after its other filters: a socket
 * that nobody asked for is no loss.
 */
static __always_inline bool owner_known(struct who *w, const struct sock *sk, const struct owner *own)
{
	if (owner_seek(w, sk, own))
		return true;
	lose(LOSS_OWNER);
	return false;
}

/* Fill w with the owner of sk; count it when there is none. */
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
/* The socket behind an accepted descriptor now has an owner. */
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
/* Data may arrive before anything else is done with a socket that is not TCP's. */
SEC("cgroup/sock_create") int owner_made__cgroup(struct cgroup_sk *ctx)
{
	if (!is_tcp(ctx->protocol))
		owner_take(cgroup_sock(ctx), OWNER_BORN);
	return CGROUP_ALLOW;
}

/* Attached after the tool's own programs, which may still ask for the owner. */
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

/* Sending or receiving in another process than the one we know: a descriptor
 * was inherited or passed on, or it runs another program now, or has another name.
 */
static __noinline int owner_on_io(const struct sock *sk)
{
	struct owner *o;

	if (owner_shared)
		return 0;
	o = owner_entry(sk);
	if (o ? kept_still(&o->kept) && !owner_stale(o, sk) : !is_inet(LOAD(sk, __sk_common.skc_family)) || !is_owned(load_proto(sk)))
		return 0;
#ifdef OWNER_ENDS_AT_CLOSE
	if (!o && LOAD(sk, __sk_common.skc_state) == TCP_CLOSE)
		return 0;
#endif
	owner_take(sk, 0);
	return 0;
}

#ifndef OWNER_IO_IN_TOOL
KTRACE(owner_send, sock_send_length, const struct sock *sk, int ret)
{
	return owner_on_io(sk);
}

KTRACE(owner_recv, sock_recv_length, const struct sock *sk, int ret)
{
	return owner_on_io(sk);
}

/* The reader's context too, on kernels before 6.3. */
KTRACE(owner_copied, tcp_rcv_space_adjust, const struct sock *sk)
{
	return owner_on_io(sk);
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

/* The process of task holds sk. */
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

/* All sockets that are open now. Runs once, after the others are attached, so
 * that nothing falls between.
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
