/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* tcpkey.h - the possible keys of counts by TCP socket, in any context of the
 * kernel. Go: kern.TCPKey.
 *
 * A tool with more key fields of its own names their bits in KEY_MORE first.
 */
#pragma once
#include "count.h"
#include "owner.h"
#include "service.h"

struct tcp_key {
	__u64 cgroup;
	__u32 pid, netns;
	char comm[16];
	__u8 laddr[16], raddr[16];
	__u16 lport, rport, port;
	__u16 pad;
};

#ifndef KEY_MORE
#define KEY_MORE
#endif
enum key_bits {
	KEY_cgroup, KEY_pid, KEY_netns, KEY_comm, KEY_laddr, KEY_raddr, KEY_lport, KEY_rport, KEY_port, KEY_MORE
};
KEEP_ENUM(enum key_bits);

#define TCP_KEY_WHO (1ULL << KEY_cgroup | 1ULL << KEY_pid | 1ULL << KEY_comm)
#define TCP_KEY_TUPLE (1ULL << KEY_laddr | 1ULL << KEY_raddr | 1ULL << KEY_lport | 1ULL << KEY_rport | 1ULL << KEY_port)

/* Fill the fields of k that key_mask names, from a sk that LOAD can read; false
 * if a filter excludes it.
 */
static __always_inline bool tcp_key_fill(struct tcp_key *k, const struct sock *sk)
{
	if (!sock_wanted(sk))
		return false;
	if (key_mask & TCP_KEY_TUPLE || filter_on & FILTER_TUPLE) {
		struct tuple t = {};

		tuple_load(&t, sk);
		if (!tuple_wanted(&t))
			return false;
		if (KEY_WANTS(laddr))
			__builtin_memcpy(k->laddr, t.laddr, sizeof(k->laddr));
		if (KEY_WANTS(raddr))
			__builtin_memcpy(k->raddr, t.raddr, sizeof(k->raddr));
		if (KEY_WANTS(lport))
			k->lport = t.lport;
		if (KEY_WANTS(rport))
			k->rport = t.rport;
		if (KEY_WANTS(port))
			k->port = service_port(sk, &t);
	}
	if (key_mask & TCP_KEY_WHO || filter_on & FILTER_WHO) {
		struct who w = {};

		owner_get(&w, sk);
		if (!who_wanted(&w))
			return false;
		if (KEY_WANTS(cgroup))
			k->cgroup = w.cgroup;
		if (KEY_WANTS(pid))
			k->pid = w.pid;
		if (KEY_WANTS(comm))
			__builtin_memcpy(k->comm, w.comm, sizeof(k->comm));
	}
	if (KEY_WANTS(netns))
		k->netns = load_netns(sk);
	return true;
}
