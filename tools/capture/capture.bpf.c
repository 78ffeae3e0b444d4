//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* capture - packets with their process, where packet sockets see them. */
#define OWNER_OPTIONS (OWNER_ALL | OWNER_LISTENERS | OWNER_GIVES | OWNER_STATE_IN_TOOL)
#define OWNER_ON_FOUND socket_found
#include "cgskb.h"
#include "skb.h"

static __always_inline void socket_found(const struct sock *sk);
#include "owner.h"

#define BPF_MAP_TYPE_PERF_EVENT_ARRAY 4
#define BPF_F_CURRENT_CPU 0xffffffffULL
#define IFF_LOOPBACK 8
#define ARPHRD_ETHER 1
#define ARPHRD_LOOPBACK 772

/* Fields of devices and packets that only this tool reads. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device___link {
	unsigned int flags;
	unsigned short type; /* ARPHRD_* */
};
struct sk_buff___link {
	__be16 vlan_proto;
	__u16 vlan_tci;
	__u16 mac_header;
};
struct sk_buff___until61 {
	__u8 vlan_present : 1; /* newer kernels: vlan_proto is not 0 */
};
#pragma clang attribute pop

#define MAC_LEN 16

enum { LINK_ETHERNET, LINK_IP };

/* The header of a packet in the perf buffer. */
struct packet_event {
	struct head head; /* the process that sends or receives it */
	struct tuple tuple;
	char dev[16];
	__u32 ifindex;
	__u32 len;  /* length of the packet, with the link-layer header */
	__u32 size; /* number of packet bytes that follow */
	__u32 lost; /* lost packets of this device so far */
	__u32 to_pid; /* the receiver of a packet that stays on this host */
	char to_comm[16];
	__u16 vlan_proto, vlan_tci; /* a tag that the device has removed or will insert; 0: none */
	__u16 echo;	/* identifier of an ICMP echo */
	__u16 skip;	/* bytes before the IP header */
	__u8 dir, link; /* enum packet_dir, LINK_* */
	__u8 mac_len;
	__u8 mac[MAC_LEN]; /* the link-layer header, if the bytes that follow do not have it */
	__u8 pad[5];
};
EVENT(struct packet_event);

/* bpf_skb_output copies packets. It can write to perf buffers only. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} packets SEC(".maps");

/* A record of a perf buffer has at most 64 KB, with the header of the packet. */
#define PACKET_MOST 65024
const volatile __u32 snaplen = PACKET_MOST;

/* Packets that did not fit the buffer. */
struct lost_key {
	__u32 netns, ifindex;
};
SPAN_OF(lost, struct lost_key, __u64, 1024);
bool any_lost = false;

/* A conversation, by the addresses of its packets on the device. With NAT the socket has other
 * addresses. The last packets may come after the socket was closed.
 */
struct flow_key {
	__u8 laddr[16], raddr[16];
	__u16 lport, rport;
	__u16 proto, echo;
	__u32 netns;
};
struct flow {
	struct sock *sk; /* NULL: none yet, or no more */
	__u64 cookie;
	struct who who;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* UDP sockets by the address that they are bound to. */
SPAN_OF(bound, struct listener_key, struct sock *, 4096);

static __always_inline void flow_key(struct flow_key *k, const struct tuple *t, __u32 netns)
{
	__builtin_memcpy(k->laddr, t->laddr, 16);
	__builtin_memcpy(k->raddr, t->raddr, 16);
	k->lport = t->lport;
	k->rport = t->rport;
	k->proto = t->proto;
	k->netns = netns;
}

static __always_inline struct flow *flow_make(const struct flow_key *k)
{
	struct flow *f = bpf_map_lookup_elem(&flows, k), zero = {};

	if (f)
		return f;
	bpf_map_update_elem(&flows, k, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, k);
}

static __noinline void flow_of_socket(const struct sock *sk)
{
	struct flow_key k = {};
	struct tuple t = {};
	struct flow *f;

	if (!tuple_fill(&t, sk))
		return;
	flow_key(&k, &t, sock_netns(sk));
	f = flow_make(&k);
	if (f) {
		f->sk = (struct sock *)sk;
		f->cookie = t.sock;
	}
}

static __always_inline bool bound_key(struct listener_key *k, const struct sock *sk)
{
	struct tuple t = {};

	if (!tuple_fill(&t, sk))
		return false;
	__builtin_memcpy(k->addr, t.laddr, 16);
	k->netns = sock_netns(sk);
	k->port = BPF_CORE_READ(sk, __sk_common.skc_num);
	return k->port;
}

static __noinline void bound_put(const struct sock *sk)
{
	struct listener_key k = {};

	if (bound_key(&k, sk))
		span_begin(&bound, &k, &sk);
}

static __always_inline void socket_found(const struct sock *sk)
{
	__u16 proto = sock_proto(sk);

	if (proto == IPPROTO_UDP)
		bound_put(sk);
	else if (proto == IPPROTO_TCP && sock_state(sk) != TCP_LISTEN)
		flow_of_socket(sk);
}

/* The socket that is bound to this address, else the one that is bound to any address. The entry
 * shows the binding at the time of bind.
 */
static __always_inline struct sock *bound_at(const __u8 *addr, __u16 port, __u32 netns)
{
	struct listener_key k = { .netns = netns, .port = port };
	struct sock **found, *sk;

	__builtin_memcpy(k.addr, addr, 16);
	found = bpf_map_lookup_elem(&bound, &k);
	if (!found && is_ip4(addr)) {
		addr4(k.addr, 0);
		found = bpf_map_lookup_elem(&bound, &k);
	}
	if (!found) {
		__builtin_memset(k.addr, 0, 16);
		found = bpf_map_lookup_elem(&bound, &k);
	}
	if (!found)
		return NULL;
	sk = *found;
	if (sock_proto(sk) != IPPROTO_UDP || BPF_CORE_READ(sk, __sk_common.skc_num) != port || sock_netns(sk) != netns)
		return NULL;
	return sk;
}

/* The process at the local end of a packet, or at the other end on the loopback device. */
static __noinline bool who_at(struct who *w, const struct packet_event *e, bool other)
{
	struct flow_key k = { .echo = e->echo, .netns = e->head.netns, .proto = e->tuple.proto };
	bool met = false; /* a socket whose process is unknown */
	struct sock *sk;
	struct flow *f;

	__builtin_memcpy(k.laddr, other ? e->tuple.raddr : e->tuple.laddr, 16);
	__builtin_memcpy(k.raddr, other ? e->tuple.laddr : e->tuple.raddr, 16);
	k.lport = other ? e->tuple.rport : e->tuple.lport;
	k.rport = other ? e->tuple.lport : e->tuple.rport;
	f = bpf_map_lookup_elem(&flows, &k);
	if (f) {
		sk = f->sk;
		if (sk && (!f->cookie || f->cookie == sock_cookie(sk))) {
			if (owner_seek(w, sk, owner_entry(sk)))
				return true;
			met = true;
		}
		if (f->who.pid) {
			*w = f->who;
			return true;
		}
	}
	if (k.proto == IPPROTO_TCP)
		sk = listener_at(k.laddr, k.lport, k.netns);
	else if (k.proto == IPPROTO_UDP)
		sk = bound_at(k.laddr, k.lport, k.netns);
	else
		sk = NULL;
	if (sk && owner_seek(w, sk, owner_entry(sk)))
		return true;
	if (sk || met)
		lose(LOSS_OWNER);
	return false;
}

/* The process that sends on sk. It also owns the answers to the packet. */
static __noinline void who_sends(struct packet_event *e, const struct sock *sk)
{
	struct flow_key k = { .echo = e->echo };
	struct flow *f;

	flow_key(&k, &e->tuple, e->head.netns);
	owner_get(&e->head.who, sk);
	f = flow_make(&k);
	if (!f)
		return;
	f->sk = (struct sock *)sk;
	f->cookie = e->tuple.sock;
	if (f->who.pid != e->head.who.pid)
		f->who = e->head.who;
}

/* Fill in the addresses of e; false if it is not an IP packet. */
static __noinline bool packet_addrs(struct packet_event *e, const struct sk_buff *skb, enum packet_dir dir)
{
	struct packet p = {};
	__u8 l4[8] = {};
	bool out = dir == PACKET_OUT;

	if (!packet_parse(&p, skb, dir))
		return false;
	e->tuple.family = p.version == 4 ? AF_INET : AF_INET6;
	e->tuple.proto = p.proto;
	__builtin_memcpy(out ? e->tuple.laddr : e->tuple.raddr, p.saddr, 16);
	__builtin_memcpy(out ? e->tuple.raddr : e->tuple.laddr, p.daddr, 16);
	if (!packet_read(&p, 0, l4, sizeof(l4)))
		return true;
	if (p.proto == IPPROTO_TCP || p.proto == IPPROTO_UDP) {
		__u16 from = l4[0] << 8 | l4[1], to = l4[2] << 8 | l4[3];

		e->tuple.lport = out ? from : to;
		e->tuple.rport = out ? to : from;
	} else if ((p.proto == IPPROTO_ICMP && (l4[0] == 8 || !l4[0])) || (p.proto == IPPROTO_ICMPV6 && (l4[0] == 128 || l4[0] == 129))) {
		e->echo = l4[4] << 8 | l4[5];
	}
	return true;
}

static __always_inline void turn(struct tuple *t)
{
	__u16 port = t->lport;
	__u8 addr[16];

	__builtin_memcpy(addr, t->laddr, 16);
	__builtin_memcpy(t->laddr, t->raddr, 16);
	__builtin_memcpy(t->raddr, addr, 16);
	t->lport = t->rport;
	t->rport = port;
}

/* Test the filters by address. On the loopback device either end may match. */
static __noinline bool addrs_wanted(const struct packet_event *e, bool stays)
{
	struct tuple t = e->tuple;

	if (!family_wanted(t.family))
		return false;
	if (filter_on & FILTER_PROTO) {
		__u32 proto = t.proto;

		if (!bpf_map_lookup_elem(&filter_protos, &proto))
			return false;
	}
	if (tuple_wanted(&t))
		return true;
	if (!stays)
		return false;
	turn(&t);
	return tuple_wanted(&t);
}

/* Fill in the process at the other end, on the loopback device; true if it passes the
 * filters.
 */
static __noinline bool receiver(struct packet_event *e)
{
	struct who to = {};

	if (!who_at(&to, e, true))
		return false;
	e->to_pid = to.pid;
	__builtin_memcpy(e->to_comm, to.comm, 16);
	return who_wanted(&to);
}

static __always_inline bool vlan_tagged(const struct sk_buff *skb)
{
	const struct sk_buff___until61 *old = (void *)skb;

	if (bpf_core_field_exists(old->vlan_present))
		return BPF_CORE_READ_BITFIELD_PROBED(old, vlan_present);
	return LOAD((struct sk_buff___link *)skb, vlan_proto) || LOAD((struct sk_buff___link *)skb, vlan_tci);
}

/* Find the link-layer header and the IP header; false if the packet has neither. */
static __always_inline bool packet_link(struct packet_event *e, const struct sk_buff *skb, const struct net_device *dev, bool ip)
{
	const struct sk_buff___link *more = (void *)skb;
	__u16 type = LOAD((struct net_device___link *)dev, type);
	/* as integers: the verifier does not allow subtraction of pointers */
	long head = (long)BPF_CORE_READ(skb, head), data = (long)BPF_CORE_READ(skb, data), before;

	if (type != ARPHRD_ETHER && type != ARPHRD_LOOPBACK) {
		e->link = LINK_IP;
		if (e->dir == PACKET_OUT)
			e->skip = head + LOAD(skb, network_header) - data;
		return ip;
	}
	if (vlan_tagged(skb)) {
		e->vlan_proto = bpf_ntohs(LOAD(more, vlan_proto));
		e->vlan_tci = LOAD(more, vlan_tci);
	}
	if (e->dir == PACKET_OUT)
		return true;
	before = data - (head + LOAD(more, mac_header));
	if (before < 0 || before > MAC_LEN)
		return false;
	e->mac_len = before;
	return !bpf_probe_read_kernel(e->mac, MAC_LEN, (void *)(data - before));
}

static __always_inline __u64 *lost_at(const struct packet_event *e, bool make)
{
	struct lost_key k = { .netns = e->head.netns, .ifindex = e->ifindex };
	__u64 zero = 0, *n = bpf_map_lookup_elem(&lost, &k);

	if (n || !make)
		return n;
	bpf_map_update_elem(&lost, &k, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&lost, &k);
}

static __always_inline int packet_send(struct packet_event *e, struct sk_buff *skb)
{
	__u64 *n;
	int err;

	e->size = LOAD(skb, len);
	e->len = e->size + e->mac_len;
	if (e->size > snaplen)
		e->size = snaplen;
	if (e->size > PACKET_MOST)
		e->size = PACKET_MOST;
	n = any_lost ? lost_at(e, false) : NULL;
	if (n)
		e->lost = *n;
	e->head.ts = bpf_ktime_get_ns();
	e->head.tool = tool_id;
	err = bpf_skb_output(skb, &packets, BPF_F_CURRENT_CPU | (__u64)e->size << 32, e, sizeof(*e));
	if (!err)
		return 0;
	any_lost = true;
	lose(LOSS_RING);
	n = lost_at(e, true);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

/* True for a socket of a process: not one of the kernel, a request or TIME_WAIT. */
static __always_inline bool sends(const struct sock *sk)
{
	__u8 state;

	if (!sk || !is_inet(LOAD(sk, __sk_common.skc_family)))
		return false;
	state = LOAD(sk, __sk_common.skc_state);
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV)
		return false;
	return load_proto(sk) != IPPROTO_TCP || LOAD(sk, sk_type) != SOCK_RAW;
}

/* A packet on the loopback device is captured here only, where it is sent. */
SEC("tp_btf/net_dev_start_xmit") int out__btf(unsigned long long *ctx)
{
	struct packet_event e = { .dir = PACKET_OUT };
	struct sk_buff *skb = (void *)ctx[0];
	const struct net_device *dev = (void *)ctx[1];
	const struct net *net = LOAD(dev, nd_net.net);
	const struct sock *sk = LOAD(skb, sk);
	bool stays = LOAD((struct net_device___link *)dev, flags) & IFF_LOOPBACK, ip, to;

	e.head.netns = LOAD(net, ns.inum);
	BPF_CORE_READ_STR_INTO(&e.dev, dev, name);
	if (!netns_wanted(e.head.netns) || !dev_wanted(e.dev))
		return 0;
	ip = packet_addrs(&e, skb, PACKET_OUT);
	if (!addrs_wanted(&e, stays) || !packet_link(&e, skb, dev, ip))
		return 0;
	e.ifindex = LOAD(dev, ifindex);
	if (ip && sends(sk)) {
		e.tuple.sock = sock_cookie(sk);
		who_sends(&e, sk);
	} else if (ip) {
		who_at(&e.head.who, &e, false);
	}
	to = ip && stays && receiver(&e);
	if (!to && !who_wanted(&e.head.who))
		return 0;
	return packet_send(&e, skb);
}

SEC("tp_btf/netif_receive_skb") int in__btf(unsigned long long *ctx)
{
	struct packet_event e = { .dir = PACKET_IN };
	struct sk_buff *skb = (void *)ctx[0];
	const struct net_device *dev = LOAD(skb, dev);
	const struct net *net = LOAD(dev, nd_net.net);
	bool ip;

	if (LOAD((struct net_device___link *)dev, flags) & IFF_LOOPBACK)
		return 0;
	e.head.netns = LOAD(net, ns.inum);
	BPF_CORE_READ_STR_INTO(&e.dev, dev, name);
	if (!netns_wanted(e.head.netns) || !dev_wanted(e.dev))
		return 0;
	ip = packet_addrs(&e, skb, PACKET_IN);
	if (!addrs_wanted(&e, false) || !packet_link(&e, skb, dev, ip))
		return 0;
	e.ifindex = LOAD(dev, ifindex);
	if (ip)
		who_at(&e.head.who, &e, false);
	if (!who_wanted(&e.head.who))
		return 0;
	return packet_send(&e, skb);
}

KTRACE_SK(state, inet_sock_set_state, const struct sock *sk, int old, int new)
{
	struct flow_key k = {};
	struct tuple t = {};
	struct flow *f;
	__u16 proto = load_proto(sk);

	if (!is_tcp(proto))
		return 0;
	owner_on_state(sk, old, new);
	if (proto != IPPROTO_TCP)
		return 0;
	if (new == TCP_ESTABLISHED)
		flow_of_socket(sk);
	if (new != TCP_CLOSE || !tuple_load(&t, sk))
		return 0;
	flow_key(&k, &t, load_netns(sk));
	f = bpf_map_lookup_elem(&flows, &k);
	if (!f)
		return 0;
	owner_seek(&f->who, sk, owner_entry(sk));
	f->sk = NULL;
	return 0;
}

/* When a process sends on a socket of another one, it becomes the owner. Sockets of the kernel have
 * no entry. This program also makes the kernel assign the socket's cookie.
 */
SEC("cgroup_skb/egress") int sender__cgroup(struct __sk_buff *skb)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	const struct sock *sk = skb_sk(skb);
	struct owner mine = {}, *o;
	struct kept_copy *c;

	if (!sk)
		return CGROUP_ALLOW;
	if (!sock_cookie(sk))
		bpf_get_socket_cookie(skb);
	if (mptcp_parent(sk))
		return CGROUP_ALLOW;
	o = owner_entry(sk);
	if (!o)
		return CGROUP_ALLOW;
	c = o->kept.which & 1 ? &o->kept.copy[1] : &o->kept.copy[0];
	if (!c->who.pid || c->who.pid == (__u32)BPF_CORE_READ(task, tgid))
		return CGROUP_ALLOW;
	if (skb_sender(&mine.kept.copy[0].who, sk, sock_proto(sk)))
		owner_give(sk, &mine);
	return CGROUP_ALLOW;
}

SEC("cgroup/post_bind4") int bound__cgroup__4(struct cgroup_sk *ctx)
{
	if (ctx->protocol == IPPROTO_UDP)
		bound_put(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

SEC("cgroup/post_bind6") int bound__cgroup__6(struct cgroup_sk *ctx)
{
	if (ctx->protocol == IPPROTO_UDP)
		bound_put(cgroup_sock(ctx));
	return CGROUP_ALLOW;
}

SEC("cgroup/sock_release") int unbound__cgroup(struct cgroup_sk *ctx)
{
	const struct sock *sk = cgroup_sock(ctx);
	struct listener_key k = {};
	struct sock **found;

	if (ctx->protocol != IPPROTO_UDP || !bound_key(&k, sk))
		return CGROUP_ALLOW;
	found = bpf_map_lookup_elem(&bound, &k);
	if (found && *found == sk)
		bpf_map_delete_elem(&bound, &k);
	return CGROUP_ALLOW;
}
