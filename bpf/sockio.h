/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sockio.h - each send and receive on any socket.
 *
 * The best way is the tracepoints sock_send_length and sock_recv_length (from
 * 6.3 on). They see every family, io_uring and splice to a socket. Older
 * kernels use the system calls. Probes on sock_sendmsg, __sock_sendmsg and
 * sock_recvmsg can be attached, but the compiler inlines them: on 5.10 they
 * miss the messages of sendmmsg, on newer kernels nearly everything.
 *
 * The tool that includes this header defines sock_io(). ret is the result of the
 * call. If a system call moves several messages, sock_io() runs for each. It is not
 * inlined, because some fifty programs call it. A tool that needs only receives
 * defines SOCKIO_RECV; then sends cost nothing. A tool whose sock_io() uses ctx
 * defines SOCKIO_CTX. Go: tool.SockIO, tool.SockRecv.
 */
#pragma once
#include "count.h"
#include "fd.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

/* Flags of receives that take nothing out of the receive queue: they peek, or read
 * the error queue, which returns bytes as they were sent.
 */
#define MSG_NOT_RECEIVED (MSG_PEEK | MSG_ERRQUEUE)

enum io_dir { IO_RECV, IO_SEND }; /* Go: kern.Dir */

static __noinline int sock_io(void *ctx, const struct sock *sk, enum io_dir dir, long ret, int flags);

/* No data was moved, and it is not a failure: the caller repeats the call. */
static __always_inline bool io_again(long ret)
{
	return ret == -EAGAIN || is_restart(ret);
}

SEC("tp_btf/sock_recv_length") int io__btf__recv(unsigned long long *ctx)
{
	return sock_io(ctx, (void *)ctx[0], IO_RECV, (int)ctx[1], ctx[2]);
}

SEC("raw_tp/sock_recv_length") int io__raw__recv(unsigned long long *ctx)
{
	return sock_io(ctx, (void *)ctx[0], IO_RECV, (int)ctx[1], ctx[2]);
}

#ifndef SOCKIO_RECV
SEC("tp_btf/sock_send_length") int io__btf__send(unsigned long long *ctx)
{
	return sock_io(ctx, (void *)ctx[0], IO_SEND, (int)ctx[1], ctx[2]);
}

SEC("raw_tp/sock_send_length") int io__raw__send(unsigned long long *ctx)
{
	return sock_io(ctx, (void *)ctx[0], IO_SEND, (int)ctx[1], ctx[2]);
}

/* UDP alone, by its own functions, if the filters ask for no other socket. Others
 * then cost nothing. udpv6_sendmsg hands messages to IPv4 on to udp_sendmsg.
 */
SEC("fexit/udp_sendmsg") int udp__fexit__send4(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];

	return sock_family(sk) == AF_INET ? sock_io(ctx, sk, IO_SEND, (int)ctx[3], 0) : 0;
}

SEC("fexit/udpv6_sendmsg") int udp__fexit__send6(unsigned long long *ctx)
{
	return sock_io(ctx, (void *)ctx[0], IO_SEND, (int)ctx[3], 0);
}

/* The receive functions by their number of arguments: (sk, msg, len, noblock, flags,
 * addr_len) until 5.18, without noblock after that, and without addr_len in 7.2.
 */
#define UDP_RECV(args, flags)                                                  \
	SEC("fexit/udp_recvmsg") int udp__fexit__args##args##_4(unsigned long long *ctx) \
	{                                                                      \
		return sock_io(ctx, (void *)ctx[0], IO_RECV, (int)ctx[args], ctx[flags]); \
	}                                                                      \
	SEC("fexit/udpv6_recvmsg") int udp__fexit__args##args##_6(unsigned long long *ctx) \
	{                                                                      \
		return sock_io(ctx, (void *)ctx[0], IO_RECV, (int)ctx[args], ctx[flags]); \
	}

UDP_RECV(4, 3)
UDP_RECV(5, 3)
UDP_RECV(6, 4)
#endif

/* System calls: the arguments, kept until the call returns. */
struct io_call {
	struct sock *sk;
	__u64 msgs; /* of sendmmsg and recvmmsg: user memory */
	__u32 dir;
	__u32 flags;
};
SPAN(io_calls, __u64, struct io_call);

static __noinline int io_enter(int fd, enum io_dir dir, int flags, __u64 msgs)
{
	struct io_call c = { .dir = dir, .flags = flags, .msgs = msgs };
	__u64 thread = bpf_get_current_pid_tgid();

	c.sk = fd_sock(fd);
	if (c.sk && !is_self() && sock_wanted(c.sk))
		span_begin(&io_calls, &thread, &c);
	return 0;
}

static __always_inline bool io_take(struct io_call *c)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct io_call *found = bpf_map_lookup_elem(&io_calls, &thread);

	if (!found)
		return false;
	*c = *found;
	bpf_map_delete_elem(&io_calls, &thread);
	return true;
}

static __noinline int io_exit(void *ctx, long ret)
{
	struct io_call c = {};

	return io_take(&c) ? sock_io(ctx, c.sk, c.dir, ret, c.flags) : 0;
}

#define MMSG_SIZE 64 /* struct mmsghdr of 64-bit programs */
#define MMSG_LEN 56
#define MMSG_MOST 64 /* messages of one call that are looked at */

#ifdef SOCKIO_CTX
#define io_message(ctx, sk, dir, len, flags) sock_io(ctx, sk, dir, len, flags)
#else
/* Not static, and with numbers as arguments: it is verified once, not for each
 * message of a call. All of them are used, else the compiler leaves them unset.
 */
__noinline int io_message_number(__u64 sk, __u32 dir, __u32 len, __u32 flags)
{
	asm volatile("" : "+r"(sk), "+r"(dir), "+r"(len), "+r"(flags));
	return sock_io(0, (void *)sk, dir, len, flags);
}
#define io_message(ctx, sk, dir, len, flags) io_message_number((__u64)(sk), dir, len, flags)
#endif

/* sendmmsg and recvmmsg return the number of messages; each has its length. */
static __noinline int io_exit_msgs(void *ctx, long ret)
{
	struct io_call c = {};

	if (!io_take(&c))
		return 0;
	if (ret < 0)
		return sock_io(ctx, c.sk, c.dir, ret, c.flags);
	for (int i = 0; i < MMSG_MOST && i < ret; i++) {
		__u32 len = 0;

		if (bpf_probe_read_user(&len, sizeof(len), (void *)(c.msgs + i * MMSG_SIZE + MMSG_LEN)))
			lose(LOSS_READ);
		io_message(ctx, c.sk, c.dir, len, c.flags);
	}
	if (ret > MMSG_MOST)
		__sync_fetch_and_add(&losses[LOSS_BATCH], ret - MMSG_MOST);
	return 0;
}

#define IO_CALL(call, dir, flags, msgs, exit)                                  \
	SYS_ENTER(iocall, call)                                                \
	{                                                                      \
		return io_enter(a0, dir, flags, msgs);                         \
	}                                                                      \
	SYS_EXIT(iocall, call)                                                 \
	{                                                                      \
		return exit(ctx, ret);                                         \
	}

#ifndef SOCKIO_RECV
IO_CALL(write, IO_SEND, 0, 0, io_exit)
IO_CALL(writev, IO_SEND, 0, 0, io_exit)
IO_CALL(sendto, IO_SEND, 0, 0, io_exit)
IO_CALL(sendmsg, IO_SEND, 0, 0, io_exit)
IO_CALL(sendmmsg, IO_SEND, 0, a1, io_exit_msgs)
IO_CALL(sendfile64, IO_SEND, 0, 0, io_exit)

/* splice to a socket; the other direction is the point below. */
SYS_ENTER(iocall, splice)
{
	return io_enter(a2, IO_SEND, 0, 0);
}

SYS_EXIT(iocall, splice)
{
	return io_exit(ctx, ret);
}
#endif

IO_CALL(read, IO_RECV, 0, 0, io_exit)
IO_CALL(readv, IO_RECV, 0, 0, io_exit)
IO_CALL(recvfrom, IO_RECV, a3, 0, io_exit)
IO_CALL(recvmsg, IO_RECV, a2, 0, io_exit)
IO_CALL(recvmmsg, IO_RECV, a3, a1, io_exit_msgs)

/* splice from a socket passes neither the tracepoint nor recvmsg. */
SPAN(splices, __u64, struct sock *);

SYS_ENTER(splice, splice)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(a0);

	if (sk && sock_wanted(sk))
		span_begin(&splices, &thread, &sk);
	return 0;
}

SYS_EXIT(splice, splice)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock **found = bpf_map_lookup_elem(&splices, &thread), *sk;

	if (!found)
		return 0;
	sk = *found;
	bpf_map_delete_elem(&splices, &thread);
	return sock_io(ctx, sk, IO_RECV, ret, 0);
}

/* io_uring makes no system call per request: only the system-call way needs this. */
#ifdef SOCKIO_RECV
#define URING_SENDS 0ULL
#else
#define URING_SENDS (1ULL << URING_SEND | 1ULL << URING_SENDMSG | 1ULL << URING_WRITE | 1ULL << URING_WRITEV | \
		     1ULL << URING_WRITE_FIXED | 1ULL << URING_SEND_ZC | 1ULL << URING_SENDMSG_ZC)
#endif
#define URING_RECVS (1ULL << URING_RECV | 1ULL << URING_RECVMSG | 1ULL << URING_READ | 1ULL << URING_READV | \
		     1ULL << URING_READ_FIXED)

URING_COMPLETE(iouring, op < 64 && (URING_SENDS | URING_RECVS) >> op & 1)
{
	return sk ? sock_io(ctx, sk, URING_SENDS >> op & 1 ? IO_SEND : IO_RECV, res, 0) : 0;
}
