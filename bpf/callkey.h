/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* callkey.h - the possible keys of counts of socket calls. Go: kern.CallKey. */
#pragma once
#include "count.h"

struct call_count_key {
	__u64 cgroup;
	__u32 pid, tid, uid;
	__u32 op; /* enum call_op */
	char comm[16], thread[16];
	char prot[32]; /* the kernel's name of the protocol */
	__u16 family, family_name;
	__u16 proto;
	__u16 cpu; /* where processors are not to write to the same memory: Snapshot.Fold */
	__u32 proto_name; /* the family in the high half: numbers differ by it */
	__u32 netns;
};

enum key_bits {
	KEY_cgroup, KEY_pid, KEY_tid, KEY_uid, KEY_op, KEY_comm, KEY_thread, KEY_prot, KEY_family, KEY_family_name,
	KEY_proto, KEY_proto_name, KEY_netns,
};
KEEP_ENUM(enum key_bits);

#define WHO_KEYED
#include "sockcall.h"

/* Does the key have a field of the socket besides its protocol name? */
#define KEY_FAMILY (1ULL << KEY_family | 1ULL << KEY_family_name | 1ULL << KEY_proto_name | 1ULL << KEY_proto)

/* Fill the fields of k that key_mask names from a call on sk, NULL if it failed
 * without one; w is the caller.
 */
static __always_inline void call_key_fill(struct call_count_key *k, enum call_op op, const struct who *w,
					  const struct sock *sk, __u16 family)
{
	__u32 proto = sk ? sock_proto(sk) : 0;

	if (KEY_WANTS(cgroup))
		k->cgroup = w->cgroup;
	if (KEY_WANTS(pid))
		k->pid = w->pid;
	if (KEY_WANTS(tid))
		k->tid = w->tid;
	if (KEY_WANTS(uid))
		k->uid = w->uid;
	if (KEY_WANTS(op))
		k->op = op;
	if (KEY_WANTS(comm))
		__builtin_memcpy(k->comm, w->comm, sizeof(k->comm));
	if (KEY_WANTS(thread))
		__builtin_memcpy(k->thread, w->thread, sizeof(k->thread));
	if (KEY_WANTS(prot) && sk)
		BPF_CORE_READ_STR_INTO(&k->prot, sk, __sk_common.skc_prot, name);
	if (KEY_WANTS(family))
		k->family = family;
	if (KEY_WANTS(family_name))
		k->family_name = family;
	if (KEY_WANTS(proto))
		k->proto = proto;
	if (KEY_WANTS(proto_name))
		k->proto_name = (__u32)family << 16 | proto;
	if (KEY_WANTS(netns))
		k->netns = sk ? sock_netns(sk) : task_netns();
}

/* Did the call fail? A connect in progress has not. */
static __always_inline bool call_failed(long ret)
{
	return ret < 0 && ret != -EINPROGRESS;
}
