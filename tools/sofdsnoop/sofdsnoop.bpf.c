//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sofdsnoop - each descriptor that goes through a UNIX socket, at both ends. */
#include "filetype.h"
#include "path.h"
#include "span.h"
#include "syscall.h"
#include "unix.h"
#include "who.h"

enum pass_action { PASS_SEND, PASS_RECV }; /* Go: action */

struct pass_event {
	struct head head;
	struct tuple tuple; /* of a socket that was passed */
	__u64 inode;	    /* of what was passed */
	__u64 via_inode;    /* of the socket that it went through */
	__s32 fd, via;	    /* descriptors of the process */
	__u32 action;
	__u32 pad;
	struct file_type type;
	char address[108];  /* of the socket that it went through, or of its peer */
	struct file_path path; /* its names alone hold the name of a UNIX socket that was passed */
};
EVENT(struct pass_event);

/* struct msghdr and struct cmsghdr of 64-bit programs. */
struct message {
	__u64 name, namelen, iov, iovlen, control, controllen, flags;
};
struct control {
	__u64 len;
	__u32 level, type;
};
#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define MMSG_SIZE 64
#define MMSG_MOST 64 /* messages of one call that are looked at */
#define SCM_STEPS (253 + 32) /* descriptors of a message, which are at most 253, and other parts */

/* A call under way on a UNIX socket, and the position in its message. Addresses
 * are of user memory.
 */
struct pass_call {
	struct sock *sk;
	__u64 msg;
	__u64 at, next, end; /* of its control messages */
	__u64 fds;	     /* end of the descriptors in this one */
	__u32 fd;
	__u32 action;
};
SPAN(passes, __u64, struct pass_call);

/* These functions are not static, and take only numbers. So they are verified
 * once, not for each possible message, part and descriptor.
 */
__noinline int pass_fd(__u64 via_sk, __u32 action, int via, int fd)
{
	struct sock *through = (void *)via_sk, *sk, *peer;
	struct file *file = fd_file(fd);
	struct pass_event *e;
	struct who who = {};

	if (!file || !who_current(&who) || !who_wanted(&who))
		return 0;
	e = EVENT_NEW(struct pass_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(through);
	e->head.who = who;
	e->action = action;
	e->fd = fd;
	e->via = via;
	e->inode = BPF_CORE_READ(file, f_inode, i_ino);
	e->via_inode = BPF_CORE_READ(through, sk_socket, file, f_inode, i_ino);
	unix_path(e->address, through);
	peer = BPF_CORE_READ((struct unix_sock *)through, peer);
	if (peer && !e->address[0] && !e->address[1])
		unix_path(e->address, peer);
	file_type_fill(&e->type, file);
	sk = file_sock(file);
	if (!sk) {
		file_path_fill(&e->path, file);
	} else {
		tuple_fill(&e->tuple, sk);
		if (e->tuple.family == AF_UNIX)
			unix_path(e->path.names, sk);
	}
	return event_send(e);
}

/* Read the next item: a descriptor, or a control message; 0 at the end. */
__noinline int pass_step(__u64 thread)
{
	struct pass_call *p = bpf_map_lookup_elem(&passes, &thread);
	struct control c = {};
	int fd = -1;

	if (!p)
		return 0;
	if (p->at + sizeof(fd) <= p->fds) {
		if (bpf_probe_read_user(&fd, sizeof(fd), (void *)p->at))
			lose(LOSS_READ);
		p->at += sizeof(fd);
		pass_fd((__u64)p->sk, p->action, p->fd, fd);
		return 1;
	}
	p->at = p->next;
	if (p->at + sizeof(c) > p->end)
		return 0;
	if (bpf_probe_read_user(&c, sizeof(c), (void *)p->at)) {
		lose(LOSS_READ);
		return 0;
	}
	if (c.len < sizeof(c) || p->at + c.len > p->end)
		return 0;
	p->next = p->at + ((c.len + 7) & ~7ULL);
	if (c.level == SOL_SOCKET && c.type == SCM_RIGHTS) {
		p->fds = p->at + c.len;
		p->at += sizeof(c);
	}
	return 1;
}

/* The descriptors of one message, in all of its parts. */
__noinline int pass_message(__u64 thread, __u32 index)
{
	struct pass_call *p = bpf_map_lookup_elem(&passes, &thread);
	struct message m = {};

	if (!p)
		return 0;
	if (bpf_probe_read_user(&m, sizeof(m), (void *)(p->msg + index * MMSG_SIZE))) {
		lose(LOSS_READ);
		return 0;
	}
	p->next = m.control;
	p->end = m.control + m.controllen;
	p->at = 0;
	p->fds = 0;
	for (int i = 0; i < SCM_STEPS; i++)
		if (!pass_step(thread))
			return 0;
	lose(LOSS_READ);
	return 0;
}

static __noinline int pass_enter(int fd, __u64 msg, __u32 action, bool several)
{
	struct pass_call c = { .sk = fd_sock(fd), .msg = msg, .fd = fd, .action = action };
	__u64 thread = bpf_get_current_pid_tgid();
	struct message m = {};

	if (!c.sk || sock_family(c.sk) != AF_UNIX || is_self())
		return 0;
	if (!netns_wanted(filter_on & FILTER_NETNS ? sock_netns(c.sk) : 0))
		return 0;
	/* Nothing is passed without room for it. Unreadable memory may be readable later. */
	if (!several && !bpf_probe_read_user(&m, sizeof(m), (void *)msg) && !m.controllen)
		return 0;
	span_begin(&passes, &thread, &c);
	return 0;
}

static __noinline int pass_exit(long ret, bool several)
{
	__u64 thread = bpf_get_current_pid_tgid();
	long n = several ? ret : 1;

	if (!bpf_map_lookup_elem(&passes, &thread))
		return 0;
	if (ret >= 0) {
		for (int i = 0; i < MMSG_MOST && i < n; i++)
			pass_message(thread, i);
		if (n > MMSG_MOST)
			__sync_fetch_and_add(&losses[LOSS_READ], n - MMSG_MOST);
	}
	bpf_map_delete_elem(&passes, &thread);
	return 0;
}

#define PASS(call, action, several)                                            \
	SYS_ENTER(pass, call)                                                  \
	{                                                                      \
		return pass_enter(a0, a1, action, several);                    \
	}                                                                      \
	SYS_EXIT(pass, call)                                                   \
	{                                                                      \
		return pass_exit(ret, several);                                \
	}

PASS(sendmsg, PASS_SEND, false)
PASS(sendmmsg, PASS_SEND, true)
PASS(recvmsg, PASS_RECV, false)
PASS(recvmmsg, PASS_RECV, true)
