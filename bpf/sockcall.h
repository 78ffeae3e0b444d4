/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sockcall.h - calls that make, name and join sockets: socket, bind, listen,
 * connect, accept, socketpair, by system call or through io_uring.
 *
 * The tool that includes this header defines sock_call(), and names the calls
 * that it needs: SOCK_CALL(accept, CALL_ACCEPT). Go: family.SockCalls. A tool that defines
 * SOCK_CALL_UNWANTED(ret) does not get the calls for whose result it is true.
 *
 * Shared code is in functions, except sock_call(): 5.10's verifier loses what
 * it knows about a number of the caller, and treats branches on it as dead.
 */
#pragma once
#include "fd.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

/* Go: kern.CallOp. Sends and receives come from sockio.h. */
enum call_op {
	CALL_CONNECT, CALL_ACCEPT, CALL_BIND, CALL_SOCKET, CALL_LISTEN, CALL_SEND, CALL_RECEIVE, CALL_SOCKETPAIR,
};

struct sock_call {
	struct sock *sk; /* of accept the listener; NULL: there is none, or not yet */
	struct sock *made; /* by accept, socket, socketpair */
	__u64 arg[2];	 /* of the system call: the family and the type, or what follows the descriptor */
	__u64 fds;	 /* of socketpair: user memory */
	__u32 op;
	bool uring;	 /* arg is not known */
	__u64 since;	 /* if SOCK_CALL_SINCE is defined; 0: its beginning was not seen */
};

static __always_inline int sock_call(void *ctx, const struct sock_call *c, long ret);

/* The socket of a call, NULL if it failed without one. */
static __always_inline struct sock *call_sock(const struct sock_call *c)
{
	return c->made ? c->made : c->sk;
}

static __always_inline __u16 call_family(const struct sock_call *c)
{
	struct sock *sk = call_sock(c);

	if (sk)
		return sock_family(sk);
	/* what was asked for */
	return (c->op == CALL_SOCKET || c->op == CALL_SOCKETPAIR) && !c->uring ? c->arg[0] : 0;
}

/* Does the call pass the filters? Without a socket, the caller's namespace counts. */
static __always_inline bool call_wanted(const struct sock_call *c, struct who *w)
{
	struct sock *sk = call_sock(c);

	if (is_self())
		return false;
	if (sk ? !sock_wanted(sk) :
		 filter_on & FILTER_PROTO || !family_wanted(call_family(c)) ||
		 (filter_on & FILTER_NETNS && !netns_wanted(task_netns())))
		return false;
	return who_current(w) && who_wanted(w);
}

SPAN(sock_calls, __u64, struct sock_call);

static __noinline int sock_call_enter(enum call_op op, __u64 a0, __u64 a1, __u64 fds)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock_call c = { .op = op };

	if (op == CALL_SOCKET || op == CALL_SOCKETPAIR) {
		c.arg[0] = a0;
		c.arg[1] = a1;
		c.fds = fds;
	} else {
		c.sk = fd_sock(a0);
		c.arg[0] = a1;
	}
#ifdef SOCK_CALL_SINCE
	c.since = bpf_ktime_get_ns();
#endif
	span_begin(&sock_calls, &thread, &c);
	return 0;
}

static __noinline int sock_call_exit(void *ctx, enum call_op op, long ret)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock_call *found, c = {};

#ifdef SOCK_CALL_UNWANTED
	if (SOCK_CALL_UNWANTED(ret)) {
		bpf_map_delete_elem(&sock_calls, &thread);
		return 0;
	}
#endif
	found = bpf_map_lookup_elem(&sock_calls, &thread);
	if (found) {
		c = *found;
		bpf_map_delete_elem(&sock_calls, &thread);
	} else if (op != CALL_ACCEPT) {
		return 0;
	} /* a server waits in accept before we come; what it gets says enough */
	c.op = op;
	if (ret >= 0 && (op == CALL_ACCEPT || op == CALL_SOCKET))
		c.made = fd_sock(ret);
	if (!ret && op == CALL_SOCKETPAIR) {
		int fd = -1;

		if (bpf_probe_read_user(&fd, sizeof(fd), (void *)c.fds))
			lose(LOSS_READ);
		c.made = fd_sock(fd);
	}
	return sock_call(ctx, &c, ret);
}

#define SOCK_CALL(name, op)                                                    \
	SYS_ENTER(call, name)                                                  \
	{                                                                      \
		/* what a call does not have must not be read */               \
		return sock_call_enter(op, a0, a1, op == CALL_SOCKETPAIR ? a3 : 0); \
	}                                                                      \
	SYS_EXIT(call, name)                                                   \
	{                                                                      \
		return sock_call_exit(ctx, op, ret);                           \
	}

static __noinline int sock_call_uring(void *ctx, __u8 op, struct sock *sk, int res)
{
	struct sock_call c = { .sk = sk, .uring = true };

	c.op = op == URING_CONNECT ? CALL_CONNECT : op == URING_ACCEPT ? CALL_ACCEPT :
	       op == URING_BIND ? CALL_BIND : op == URING_LISTEN ? CALL_LISTEN : CALL_SOCKET;
	if (res >= 0 && (c.op == CALL_ACCEPT || c.op == CALL_SOCKET))
		c.made = fd_sock(res);
	if (c.op == CALL_SOCKET)
		c.sk = NULL;
	return sock_call(ctx, &c, res);
}

/* The same calls through io_uring: SOCK_CALL_URING(op == URING_ACCEPT). */
#define SOCK_CALL_URING(test)                                                  \
	URING_COMPLETE(callring, test)                                         \
	{                                                                      \
		return sock_call_uring(ctx, op, sk, res);                      \
	}
