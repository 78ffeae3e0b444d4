/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* filter.h - the filters that every tool has, tested in the kernel.
 *
 * Go sets filter_on before the program is loaded, so the verifier
 * removes the tests that are off. The functions that a tool calls decide
 * which filters it has: who_wanted (or task_wanted), sock_wanted,
 * tuple_wanted.
 */
#pragma once
#include "event.h"
#include "sock.h"

/* Go: tool.Filter, same bits. */
enum filter {
	FILTER_PID = 1 << 0,
	FILTER_COMM = 1 << 1,
	FILTER_UID = 1 << 2,
	FILTER_CGROUP = 1 << 3,
	FILTER_NETNS = 1 << 4,
	FILTER_FAMILY = 1 << 5,
	FILTER_PROTO = 1 << 6,
	FILTER_PORT = 1 << 7,
	FILTER_LPORT = 1 << 8,
	FILTER_RPORT = 1 << 9,
	FILTER_ADDR = 1 << 10,
	FILTER_LADDR = 1 << 11,
	FILTER_RADDR = 1 << 12,
	FILTER_IP4 = 1 << 13,
	FILTER_IP6 = 1 << 14,
	FILTER_DEV = 1 << 15,
};
#define FILTER_WHO (FILTER_PID | FILTER_COMM | FILTER_UID | FILTER_CGROUP)
#define FILTER_TUPLE (FILTER_PORT | FILTER_LPORT | FILTER_RPORT | FILTER_ADDR | \
		      FILTER_LADDR | FILTER_RADDR | FILTER_IP4 | FILTER_IP6)

const volatile __u32 filter_on = 0;
const volatile __u32 filter_self = 0; /* seine itself: never shown */
const volatile __u64 filter_cgroup = 0;
const volatile __u32 filter_cgroup_level = 0;
const volatile __u64 filter_families = 0; /* a bit for each address family below 64 */

/* --comm GLOB,… as an automaton: a state is the number of characters of a glob
 * that matched; a star is a state that loops. It makes one step a character.
 */
const volatile __u64 comm_moves[256] = {}; /* states that a character may enter */
const volatile __u64 comm_loops = 0, comm_start = 0, comm_accept = 0;

#define FILTER_SET(name, entries)                                              \
	struct {                                                               \
		__uint(type, BPF_MAP_TYPE_HASH);                               \
		__uint(max_entries, entries);                                  \
		__type(key, __u32);                                            \
		__type(value, __u8);                                           \
	} name SEC(".maps")

FILTER_SET(filter_pids, 1024);
FILTER_SET(filter_uids, 256);
FILTER_SET(filter_netns, 256);
FILTER_SET(filter_protos, 64);

/* Three sets of ports, with a bit for each: either end, local, remote. */
#define PORT_WORDS (65536 / 64)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3 * PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} filter_ports SEC(".maps");

/* Networks, each with the FILTER_ADDR, _LADDR, _RADDR bits it stands for. */
struct net_key {
	__u32 bits;
	__u8 addr[16];
};
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct net_key);
	__type(value, __u32);
} filter_nets SEC(".maps");

static __always_inline bool comm_matches(const char *comm)
{
	__u64 states = comm_start;

#pragma unroll
	for (int i = 0; i < 16; i++) {
		__u8 c = comm[i];

		if (!c)
			break;
		states = (states << 1 & comm_moves[c]) | (states & comm_loops);
	}
	return states & comm_accept;
}

/* Does the process pass the filters? An unknown process never does. */
static __always_inline bool who_wanted(const struct who *w)
{
	if (!(filter_on & FILTER_WHO))
		return true;
	if (!w->pid)
		return false;
	if (filter_on & FILTER_PID && !bpf_map_lookup_elem(&filter_pids, &w->pid))
		return false;
	if (filter_on & FILTER_UID && !bpf_map_lookup_elem(&filter_uids, &w->uid))
		return false;
	if (filter_on & FILTER_CGROUP && !(w->flags & WHO_IN_CGROUP))
		return false;
	return !(filter_on & FILTER_COMM) || comm_matches(w->comm);
}

static __always_inline bool netns_wanted(__u32 netns)
{
	return !(filter_on & FILTER_NETNS) || bpf_map_lookup_elem(&filter_netns, &netns);
}

static __always_inline bool family_wanted(__u16 family)
{
	return !(filter_on & FILTER_FAMILY) || (family < 64 && filter_families >> family & 1);
}

/* Network namespace, family and protocol of sk. */
static __always_inline bool sock_wanted(const struct sock *sk)
{
	if (!netns_wanted(filter_on & FILTER_NETNS ? sock_netns(sk) : 0))
		return false;
	if (filter_on & FILTER_FAMILY && !family_wanted(sock_family(sk)))
		return false;
	if (filter_on & FILTER_PROTO) {
		__u32 proto = proto_key(sk);

		return bpf_map_lookup_elem(&filter_protos, &proto);
	}
	return true;
}

static __always_inline bool port_in(__u32 set, __u16 port)
{
	__u32 word = set * PORT_WORDS + port / 64;
	__u64 *bits = bpf_map_lookup_elem(&filter_ports, &word);

	return bits && *bits >> (port & 63) & 1;
}

static __always_inline bool addr_in(const __u8 *addr, __u32 want)
{
	struct net_key k = { .bits = 128 };
	__u32 *sets;

	__builtin_memcpy(k.addr, addr, 16);
	sets = bpf_map_lookup_elem(&filter_nets, &k);
	return sets && *sets & want;
}

static __always_inline bool is_ip4(const __u8 *addr)
{
	const __u32 *w = (const __u32 *)addr;

	return !w[0] && !w[1] && w[2] == bpf_htonl(0xffff);
}

/* Addresses and ports of t. */
static __always_inline bool tuple_wanted(const struct tuple *t)
{
	if (!(filter_on & FILTER_TUPLE))
		return true;
	if (!is_inet(t->family))
		return false;
	if (filter_on & FILTER_PORT && !port_in(0, t->lport) && !port_in(0, t->rport))
		return false;
	if (filter_on & FILTER_LPORT && !port_in(1, t->lport))
		return false;
	if (filter_on & FILTER_RPORT && !port_in(2, t->rport))
		return false;
	if (filter_on & FILTER_IP4 && !is_ip4(t->raddr))
		return false;
	if (filter_on & FILTER_IP6 && is_ip4(t->raddr))
		return false;
	if (filter_on & FILTER_LADDR && !addr_in(t->laddr, FILTER_LADDR))
		return false;
	if (filter_on & FILTER_RADDR && !addr_in(t->raddr, FILTER_RADDR))
		return false;
	return !(filter_on & FILTER_ADDR) || addr_in(t->laddr, FILTER_ADDR) ||
	       addr_in(t->raddr, FILTER_ADDR);
}
