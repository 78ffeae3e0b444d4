/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* iokey.h - the possible keys of counts of sends and receives. Go: kern.IOKey. */
#pragma once
#include "count.h"
#include "service.h"

struct io_key {
	__u64 cgroup;
	__u32 pid, tid, uid;
	__u32 dir;
	char comm[16], thread[16];
	__u8 laddr[16], raddr[16];
	__u16 lport, port;
	__u16 family, proto;
	__u32 netns;
	__u16 rport;
	__u16 pad;
};

enum key_bits {
	KEY_cgroup, KEY_pid, KEY_tid, KEY_uid, KEY_dir, KEY_comm, KEY_thread, KEY_laddr, KEY_raddr,
	KEY_lport, KEY_port, KEY_family, KEY_proto, KEY_netns, KEY_rport, KEY_ustack,
};
KEEP_ENUM(enum key_bits);

#define WHO_KEYED
#include "sockio.h"
#include "who.h"

#define KEY_WHO (1ULL << KEY_cgroup | 1ULL << KEY_pid | 1ULL << KEY_tid | 1ULL << KEY_uid | 1ULL << KEY_comm | \
		 1ULL << KEY_thread)
#define KEY_TUPLE (1ULL << KEY_laddr | 1ULL << KEY_raddr | 1ULL << KEY_lport | 1ULL << KEY_port | 1ULL << KEY_rport)

/* Fill the fields of k that key_mask names; false if a filter excludes it. A
 * send or receive runs in the context of the process that makes it.
 */
static __always_inline bool io_key_fill(struct io_key *k, const struct sock *sk, enum io_dir dir)
{
	if (is_self() || !sock_wanted(sk))
		return false;
	if (key_mask & KEY_WHO || filter_on & FILTER_WHO) {
		struct who w = {};

		who_current(&w);
		if (!who_wanted(&w))
			return false;
		if (KEY_WANTS(cgroup))
			k->cgroup = w.cgroup;
		if (KEY_WANTS(pid))
			k->pid = w.pid;
		if (KEY_WANTS(tid))
			k->tid = w.tid;
		if (KEY_WANTS(uid))
			k->uid = w.uid;
		if (KEY_WANTS(comm))
			__builtin_memcpy(k->comm, w.comm, sizeof(k->comm));
		if (KEY_WANTS(thread))
			__builtin_memcpy(k->thread, w.thread, sizeof(k->thread));
	}
	if (key_mask & KEY_TUPLE || filter_on & FILTER_TUPLE) {
		struct tuple t = {};

		tuple_fill(&t, sk);
		if (!tuple_wanted(&t))
			return false;
		if (KEY_WANTS(laddr))
			__builtin_memcpy(k->laddr, t.laddr, sizeof(k->laddr));
		if (KEY_WANTS(raddr))
			__builtin_memcpy(k->raddr, t.raddr, sizeof(k->raddr));
		if (KEY_WANTS(lport))
			k->lport = t.lport;
		if (KEY_WANTS(port))
			k->port = service_port(sk, &t);
		if (KEY_WANTS(rport))
			k->rport = t.rport;
	}
	if (KEY_WANTS(dir))
		k->dir = dir;
	if (KEY_WANTS(family))
		k->family = sock_family(sk);
	if (KEY_WANTS(proto))
		k->proto = proto_key(sk);
	if (KEY_WANTS(netns))
		k->netns = sock_netns(sk);
	return true;
}
