//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* udpconnect - UDP sockets that are connected to a peer, and the first datagram
 * of a socket to each peer that it is not connected to.
 */
#include "cgroup.h"
#include "fd.h"
#include "span.h"
#include "syscall.h"
#include "uring.h"
#include "who.h"

enum { HOW_CONNECT, HOW_DATAGRAM };

struct udp_event {
	struct head head;
	struct tuple tuple;
	__u32 how;
	__u32 pad;
};
EVENT(struct udp_event);

/* The current process has a new peer for sk. Peer: port and address, or NULL
 * for the one that sk is connected to.
 */
struct peer {
	__u8 addr[16];
	__u16 port;
};

static __always_inline int peer_new(const struct sock *sk, const struct peer *peer, __u32 how)
{
	struct tuple t = {};
	struct who w = {};
	struct udp_event *e;

	if (!tuple_fill(&t, sk))
		return 0;
	if (peer) {
		__builtin_memcpy(t.raddr, peer->addr, 16);
		t.rport = peer->port;
	}
	if (!tuple_wanted(&t) || !who_current(&w) || !who_wanted(&w))
		return 0;
	e = EVENT_NEW(struct udp_event);
	if (!e)
		return 0;
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->head.who = w;
	e->tuple = t;
	e->how = how;
	return event_send(e);
}

static __always_inline bool is_udp(const struct sock *sk)
{
	return is_inet(sock_family(sk)) && sock_proto(sk) == IPPROTO_UDP;
}

/* The socket that a thread is connecting. */
SPAN(connecting, __u64, struct sock *);

SYS_ENTER(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock *sk = fd_sock(a0);

	if (sk && is_udp(sk) && !is_self() && sock_wanted(sk))
		span_begin(&connecting, &thread, &sk);
	return 0;
}

/* A connect to AF_UNSPEC succeeds too, and leaves the socket without a peer. */
static __always_inline int connected(const struct sock *sk, long ret)
{
	return ret || sock_state(sk) != TCP_ESTABLISHED ? 0 : peer_new(sk, NULL, HOW_CONNECT);
}

SYS_EXIT(connect, connect)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sock **found = bpf_map_lookup_elem(&connecting, &thread), *sk;

	if (!found)
		return 0;
	sk = *found;
	bpf_map_delete_elem(&connecting, &thread);
	return connected(sk, ret);
}

URING_COMPLETE(uring, op == URING_CONNECT)
{
	if (!sk || !is_udp(sk) || is_self() || !sock_wanted(sk))
		return 0;
	return connected(sk, res);
}

/* Peers that a socket has sent to. The inode distinguishes sockets that had the
 * same address one after the other. The oldest entries make room: a forgotten
 * peer is shown again, and none is lost.
 */
struct peer_key {
	const struct sock *sk;
	__u64 inode;
	__u8 addr[16];
	__u64 port;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct peer_key);
	__type(value, __u8);
} peers SEC(".maps");

static __always_inline int sent_to(const struct sock *sk, const struct peer *peer)
{
	struct peer_key k = { .sk = sk, .port = peer->port };
	__u8 one = 1;
	int err;

	if (!is_udp(sk) || is_self() || !sock_wanted(sk))
		return 0;
	k.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	__builtin_memcpy(k.addr, peer->addr, 16);
	if (bpf_map_lookup_elem(&peers, &k))
		return 0;
	err = bpf_map_update_elem(&peers, &k, &one, BPF_NOEXIST);
	if (err == -17 /* EEXIST: another thread was faster */)
		return 0;
	return peer_new(sk, peer, HOW_DATAGRAM);
}

SEC("cgroup/sendmsg4") int datagram__cgroup__4(struct cgroup_addr *ctx)
{
	struct peer p = { .port = bpf_ntohs(ctx->user_port) };

	addr4(p.addr, ctx->user_ip4);
	sent_to(cgroup_sock(ctx->sk), &p);
	return CGROUP_ALLOW;
}

SEC("cgroup/sendmsg6") int datagram__cgroup__6(struct cgroup_addr *ctx)
{
	struct peer p = { .port = bpf_ntohs(ctx->user_port) };
	__u32 *addr = (__u32 *)p.addr;

	addr[0] = ctx->user_ip6[0];
	addr[1] = ctx->user_ip6[1];
	addr[2] = ctx->user_ip6[2];
	addr[3] = ctx->user_ip6[3];
	sent_to(cgroup_sock(ctx->sk), &p);
	return CGROUP_ALLOW;
}

/* udpv6_sendmsg calls udp_sendmsg for an IPv4 peer: one key, one row. */
static __always_inline int sent_msg(const struct sock *sk, const struct msghdr *msg)
{
	const void *name = BPF_CORE_READ(msg, msg_name);
	struct peer p = {};
	__u8 raw[28] = {};
	__u16 family;

	if (!name || bpf_probe_read_kernel(raw, 16, name))
		return 0; /* connected */
	family = *(__u16 *)raw;
	if (family == AF_INET6)
		bpf_probe_read_kernel(raw, 28, name);
	else if (family != AF_INET)
		return 0;
	p.port = raw[2] << 8 | raw[3];
	if (family == AF_INET)
		addr4(p.addr, *(__be32 *)&raw[4]);
	else
		__builtin_memcpy(p.addr, &raw[8], 16);
	return sent_to(sk, &p);
}

#define SENDMSG(part, func)                                                    \
	SEC("fentry/" #func) int datagram__fentry__##part(unsigned long long *ctx) \
	{                                                                      \
		return sent_msg((void *)ctx[0], (void *)ctx[1]);               \
	}                                                                      \
	SEC("kprobe/" #func) int datagram__kprobe__##part(struct pt_regs *ctx) \
	{                                                                      \
		return sent_msg((void *)PT_REGS_PARM1(ctx), (void *)PT_REGS_PARM2(ctx)); \
	}
SENDMSG(4, udp_sendmsg)
SENDMSG(6, udpv6_sendmsg)
