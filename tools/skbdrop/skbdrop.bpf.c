//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* skbdrop - dropped packets, counted by reason, place and properties. */
#include "count.h"
#include "drop.h"
#include "skb.h"
#include "stack.h"

struct drop_key {
	__u64 location; /* that dropped it */
	__u32 reason;
	__s32 kstack;
	__u8 laddr[16], raddr[16];
	char dev[16];
	__u16 lport, rport;
	__u16 family;
	__u16 pad;
	__u32 proto; /* of IP; of other packets the EtherType, with a bit that says so */
	__u32 netns;
	__u32 dir;
	__u32 pad2;
};
enum key_bits {
	KEY_location, KEY_reason, KEY_kstack, KEY_laddr, KEY_raddr, KEY_dev, KEY_lport, KEY_rport, KEY_family,
	KEY_proto, KEY_netns, KEY_dir,
};
KEEP_ENUM(enum key_bits);

struct drop_count {
	__u64 count; /* packets */
	__u64 skbs;  /* buffers, which may stand for several */
	__u64 bytes;
};
COUNT_MAP(drops, struct drop_key, struct drop_count);

#define PROTO_ETHER 0x10000

#define NETNS_MIN 0xe0000000 /* below every namespace's inode number */

/* A number that no kernel before 6.7 has. */
enum skb_drop_reason___since67 { SKB_CONSUMED = 1 };

static __always_inline bool is_ordinary(__u32 reason)
{
	return bpf_core_enum_value_exists(enum skb_drop_reason___since67, SKB_CONSUMED) &&
	       reason == bpf_core_enum_value(enum skb_drop_reason___since67, SKB_CONSUMED);
}

/* Source and destination of the packet, if its headers were parsed. */
struct headers {
	struct tuple t;
	__u32 proto;
	__u32 dir;
};

static __always_inline bool has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP || proto == IPPROTO_DCCP ||
	       proto == IPPROTO_UDPLITE;
}

/* The owner, if there is one, has sent the packet or has it in a queue. */
static __noinline int headers_read(struct headers *h, const struct sk_buff *skb, const struct sock *owner)
{
	struct packet p = {};
	__be16 ports[2] = {};
	bool out;

	if (!h || !skb)
		return 0;
	__builtin_memset(h->t.laddr, 0xff, 32); /* no addresses: kern.Addr */
	/* The network header is 0 if it was not set: then it is at data. */
	if (!packet_parse(&p, skb, BPF_CORE_READ(skb, network_header) ? PACKET_OUT : PACKET_IN)) {
		__be16 protocol = BPF_CORE_READ(skb, protocol);

		if (protocol)
			h->proto = PROTO_ETHER | bpf_ntohs(protocol);
		return 0;
	}
	h->proto = p.proto;
	h->t.proto = p.proto;
	h->t.family = p.version == 4 ? AF_INET : AF_INET6;
	if (has_ports(p.proto))
		packet_read(&p, 0, ports, sizeof(ports));
	/* Packets in its queue are for its port; skc_num is 0 again at the end. */
	out = owner && (!ports[1] || BPF_CORE_READ((struct inet_sock *)owner, inet_sport) != ports[1]);
	h->dir = out ? PACKET_OUT : PACKET_IN;
	__builtin_memcpy(h->t.laddr, out ? p.saddr : p.daddr, 16);
	__builtin_memcpy(h->t.raddr, out ? p.daddr : p.saddr, 16);
	h->t.lport = bpf_ntohs(out ? ports[0] : ports[1]);
	h->t.rport = bpf_ntohs(out ? ports[1] : ports[0]);
	return 1;
}

static __always_inline bool headers_wanted(const struct headers *h)
{
	if (!family_wanted(h->t.family) || !tuple_wanted(&h->t))
		return false;
	if (filter_on & FILTER_PROTO) {
		__u32 proto = h->t.proto;

		return h->t.family && bpf_map_lookup_elem(&filter_protos, &proto);
	}
	return true;
}

/* TCP sockets remove the device; before 6.11 the socket is not known either. */
static __always_inline __u32 route_netns(const struct sk_buff *skb)
{
	const struct dst_entry *dst = (void *)(BPF_CORE_READ(skb, _skb_refdst) & ~1UL);

	return BPF_CORE_READ(dst, dev, nd_net.net, ns.inum);
}

KTRACE(drop, kfree_skb, struct sk_buff *skb, void *location)
{
	struct drop_count zero = {}, *c;
	__u32 reason = drop_reason(ctx);
	struct headers h = {};
	struct drop_key k = {};
	const struct net_device *dev;
	__u32 netns;
	struct sock *sk;
	char name[16] = {};
	bool owned;

	if (is_ordinary(reason))
		return 0;
	sk = drop_sock(ctx, skb, &owned);
	dev = BPF_CORE_READ(skb, dev);
	netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	if (netns >= NETNS_MIN)
		BPF_CORE_READ_STR_INTO(&name, dev, name);
	else /* TCP's queues keep something else in the place of dev */
		netns = 0;
	if (sk && (!owned || !netns))
		netns = sock_netns(sk);
	else if (!netns)
		netns = route_netns(skb);
	/* Messages of netlink and UNIX sockets are not packets. */
	if (!name[0] && !BPF_CORE_READ(skb, protocol) && (!sk || !is_inet(sock_family(sk))))
		return 0;
	if (owned && sock_netns(sk) != netns)
		owned = false; /* its sender's, across a veth */
	if (!netns_wanted(netns) || !dev_wanted(name))
		return 0;
	headers_read(&h, skb, owned ? sk : NULL);
	if (!headers_wanted(&h))
		return 0;
	if (owned && h.proto == IPPROTO_TCP && h.dir == PACKET_IN && drop_heeded(skb, sk))
		return 0;
	if (sk && !owned && h.proto == IPPROTO_TCP && drop_waited(reason, skb, sk))
		return 0;
	if (KEY_WANTS(location))
		k.location = (__u64)location;
	if (KEY_WANTS(reason))
		k.reason = reason;
	if (KEY_WANTS(kstack))
		k.kstack = kernel_stack(ctx, 0);
	if (KEY_WANTS(laddr))
		__builtin_memcpy(k.laddr, h.t.laddr, 16);
	if (KEY_WANTS(raddr))
		__builtin_memcpy(k.raddr, h.t.raddr, 16);
	if (KEY_WANTS(dev))
		__builtin_memcpy(k.dev, name, 16);
	if (KEY_WANTS(lport))
		k.lport = h.t.lport;
	if (KEY_WANTS(rport))
		k.rport = h.t.rport;
	if (KEY_WANTS(family))
		k.family = h.t.family;
	if (KEY_WANTS(proto))
		k.proto = h.proto;
	if (KEY_WANTS(netns))
		k.netns = netns;
	if (KEY_WANTS(dir))
		k.dir = h.dir;
	c = count_at(COUNTED(drops), &k, &zero);
	if (!c)
		return 0;
	__sync_fetch_and_add(&c->count, skb_segs(skb));
	__sync_fetch_and_add(&c->skbs, 1);
	__sync_fetch_and_add(&c->bytes, BPF_CORE_READ(skb, len));
	return 0;
}

/* One thread and the network namespace that it is in. */
struct task_netns {
	__u32 tid; /* as /proc has it: in the PID namespace of whoever reads */
	__u32 netns;
};

struct upid___task {
	int nr;
} __attribute__((preserve_access_index));
struct pid___task {
	unsigned int level;
	struct upid___task numbers[1];
} __attribute__((preserve_access_index));
struct task_struct___pid {
	struct pid___task *thread_pid;
} __attribute__((preserve_access_index));

static __always_inline const struct pid___task *task_pid(const void *task)
{
	return BPF_CORE_READ((const struct task_struct___pid *)task, thread_pid);
}

/* The counters of a namespace are files of each of its tasks. Everybody may
 * read them, but only a tracer of the task may see which namespace it is. */
SEC("iter/task") int tasks__iter(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_netns t = {};
	const struct pid___task *pid;
	unsigned int level;

	if (!task)
		return 0;
	t.netns = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
	pid = task_pid(task);
	level = BPF_CORE_READ(task_pid((void *)bpf_get_current_task()), level);
	if (!t.netns || !pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&t.tid, sizeof(t.tid),
			      (void *)pid + bpf_core_field_offset(struct pid___task, numbers) +
				      level * bpf_core_type_size(struct upid___task) +
				      bpf_core_field_offset(struct upid___task, nr));
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}
