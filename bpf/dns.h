/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* dns.h - DNS messages in the packets of sockets, by cgroup_skb programs.
 *
 * These programs run where a packet leaves or enters a socket. Forwarded packets
 * do not run them. bpf_skb_load_bytes reads the payload even if it is not in the
 * linear part of the packet. TCP's payload is not.
 *
 * dns_packet() reads the headers of a packet. DNS_MESSAGES(d, skb, out) is a loop
 * over the messages in it. Over TCP each message has its length before it, one
 * segment may hold several messages, and the length may be in a segment of its own:
 * dns_streams keeps the start of the next message of a connection.
 */
#pragma once
#include "cgskb.h"
#include "span.h"

#define DNS_PORT 53
#define DNS_HEADER 12
#define DNS_ANSWER 0x8000    /* of flags: QR */
#define DNS_OPCODE 0x7800    /* 0: a query for a name */

/* The address that a thread sends a datagram to by an unconnected socket. NAT may
 * change the packet's address before it is seen.
 */
struct dns_asked {
	__u64 sock;
	__u8 server[16];
};
SPAN_OF(dns_asked, __u64, struct dns_asked, 4096);

__u64 dns_asked_any = 0; /* until then the map need not be looked at */

/* The programs that fill dns_asked, for tools that look at queries. The one of point
 * thread frees an entry when its thread ends.
 */
#define DNS_ASKED(point)                                                       \
	KTRACE(thread, sched_process_exit, struct task_struct *task)           \
	{                                                                      \
		__u64 thread = dns_thread();                                   \
									       \
		if (dns_asked_any)                                             \
			bpf_map_delete_elem(&dns_asked, &thread);              \
		return 0;                                                      \
	}                                                                      \
	SEC("cgroup/sendmsg4") int point##__cgroup__4(struct cgroup_addr *ctx) \
	{                                                                      \
		struct dns_asked a = {};                                       \
									       \
		addr4(a.server, ctx->user_ip4);                                \
		return dns_asks(ctx, &a);                                      \
	}                                                                      \
	SEC("cgroup/sendmsg6") int point##__cgroup__6(struct cgroup_addr *ctx) \
	{                                                                      \
		__u32 words[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] }; \
		struct dns_asked a = {};                                       \
									       \
		__builtin_memcpy(a.server, words, 16);                         \
		return dns_asks(ctx, &a);                                      \
	}

/* The current thread. Programs of this kind have no bpf_get_current_pid_tgid on 5.10. */
static __always_inline __u64 dns_thread(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, pid);
}

static __always_inline int dns_asks(struct cgroup_addr *ctx, struct dns_asked *a)
{
	__u64 thread = dns_thread();

	if ((__u16)ctx->user_port == bpf_htons(DNS_PORT)) {
		a->sock = bpf_get_socket_cookie(ctx);
		span_begin(&dns_asked, &thread, a);
		dns_asked_any = 1;
	} else if (dns_asked_any) {
		bpf_map_delete_elem(&dns_asked, &thread);
	}
	return CGROUP_ALLOW;
}

/* The server that this thread sends the packet to by an unconnected socket. */
static __always_inline struct dns_asked *dns_asked_now(struct __sk_buff *skb)
{
	__u64 thread = dns_thread();
	struct dns_asked *a = bpf_map_lookup_elem(&dns_asked, &thread);

	return a && a->sock == bpf_get_socket_cookie(skb) ? a : NULL;
}

/* Whether a packet may be to or from a name server. Every packet comes here, so it
 * takes only two loads if the headers have their usual length.
 */
static __always_inline bool dns_maybe(struct __sk_buff *skb, bool out)
{
	const __u8 *p = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_sock *sk;
	bool udp;

	if (p + 24 > end)
		return true;
	if (p[0] == 0x45) {
		udp = p[9] == IPPROTO_UDP;
		p += 20;
	} else if (p[0] >> 4 == 6) {
		udp = p[6] == IPPROTO_UDP;
		p += 40;
	} else {
		return true;
	}
	if (p + 4 > end || *(__be16 *)(p + (out ? 2 : 0)) == bpf_htons(DNS_PORT))
		return true;
	/* An outgoing packet may have been redirected to another port. */
	sk = skb->sk;
	if (!out || !sk)
		return false;
	if ((__u16)*(volatile __u32 *)&sk->dst_port)
		return (__u16)*(volatile __u32 *)&sk->dst_port == bpf_htons(DNS_PORT);
	return udp && dns_asked_any && dns_asked_now(skb);
}

struct dns {
	struct tuple tuple; /* of the packet, but to the server that was asked */
	__u32 at, end;	    /* of the payload in the packet */
	__u32 seq;	    /* of TCP: that of the byte at at */
	/* Of the message: */
	__u32 msg;  /* where it begins in the packet */
	__u32 len;  /* bytes of it that the packet has */
	__u16 id, flags, answers;
	__u16 pad;
};

/* Fill d; false if skb is not a packet with a payload to (out) or from a server. Data
 * begins at the IP header.
 */
static __noinline bool dns_headers(struct dns *d, struct __sk_buff *skb, bool out)
{
	const struct sock *sk = skb_sk(skb);
	__u8 h[40] = {}, t[8] = {};
	struct tuple peer = {};
	struct dns_asked *asked;
	__u16 sport, dport;
	__u32 at;

	if (!d || bpf_skb_load_bytes(skb, 0, h, 20))
		return false;
	if (h[0] >> 4 == 4) {
		d->tuple.family = AF_INET;
		d->tuple.proto = h[9];
		at = (h[0] & 15) * 4;
		if (h[6] & 0x1f || h[7]) /* a later fragment */
			return false;
	} else {
		d->tuple.family = AF_INET6;
		d->tuple.proto = h[6];
		at = 40;
	}
	if (d->tuple.proto != IPPROTO_UDP && d->tuple.proto != IPPROTO_TCP)
		return false;
	if (bpf_skb_load_bytes(skb, at, t, sizeof(t)))
		return false;
	sport = t[0] << 8 | t[1];
	dport = t[2] << 8 | t[3];
	d->tuple.lport = out ? sport : dport;
	d->tuple.rport = out ? dport : sport;
	if (d->tuple.family == AF_INET) {
		addr4(out ? d->tuple.laddr : d->tuple.raddr, *(__be32 *)&h[12]);
		addr4(out ? d->tuple.raddr : d->tuple.laddr, *(__be32 *)&h[16]);
	} else {
		if (bpf_skb_load_bytes(skb, 20, h + 20, 20))
			return false;
		__builtin_memcpy(out ? d->tuple.laddr : d->tuple.raddr, &h[8], 16);
		__builtin_memcpy(out ? d->tuple.raddr : d->tuple.laddr, &h[24], 16);
	}
	/* The server's address is in a connected socket, or was an argument of sendmsg. NAT
	 * may have put another one into the packet.
	 */
	if (sk && BPF_CORE_READ(sk, __sk_common.skc_dport)) {
		peer.family = sock_family(sk);
		if (!tuple_addrs(&peer, sk))
			return false;
		__builtin_memcpy(d->tuple.raddr, peer.raddr, 16);
		d->tuple.rport = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	} else if (out && d->tuple.proto == IPPROTO_UDP && dns_asked_any && (asked = dns_asked_now(skb))) {
		__builtin_memcpy(d->tuple.raddr, asked->server, 16);
		d->tuple.rport = DNS_PORT;
	}
	if (d->tuple.rport != DNS_PORT)
		return false;
	d->tuple.sock = bpf_get_socket_cookie(skb);
	d->end = skb->len;
	d->at = at + 8;
	if (d->tuple.proto == IPPROTO_TCP) {
		d->seq = bpf_ntohl(*(__be32 *)&t[4]);
		if (bpf_skb_load_bytes(skb, at + 12, t, 1))
			return false;
		d->at = at + (t[0] >> 4) * 4;
	}
	return true;
}

static __always_inline bool dns_packet(struct dns *d, struct __sk_buff *skb, bool out)
{
	return dns_maybe(skb, out) && dns_headers(d, skb, out);
}

/* The start of the next message of a TCP connection, in one direction. */
struct dns_stream {
	__u32 next;   /* sequence number of its length or, if that is known, of its header */
	__u16 length; /* 0: not known */
	__u16 begun;
};
/* In both directions, by the cookie of the socket, until it ends. */
struct dns_streams {
	struct dns_stream in, out;
};
SPAN_OF(dns_streams, __u64, struct dns_streams, 4096);
__u64 dns_connections = 0; /* how many there are */

/* A tool that looks at queries defines DNS_QUERIES: it ignores an answer if the query
 * was not seen.
 */
#ifdef DNS_QUERIES
#define DNS_BEGINS(out) (out)
#else
#define DNS_BEGINS(out) true
#endif

/* A TCP socket has ended. The tool calls this at tcp_destroy_sock. */
static __always_inline void dns_end(const struct sock *sk)
{
	__u64 key = sock_cookie(sk);

	if (dns_connections)
		span_end_counted(&dns_streams, &key, &dns_connections);
}

/* Go to the first message that begins in a segment; false if none does. */
static __always_inline bool dns_stream_next(struct dns *d, struct __sk_buff *skb, bool out)
{
	__u32 payload = d->end - d->at, off;
	struct dns_streams *both, fresh = {};
	__u64 key = d->tuple.sock;
	struct dns_stream *s;
	__u8 b[2];

	if (d->end <= d->at)
		return false;
	both = bpf_map_lookup_elem(&dns_streams, &key);
	if (!both) {
		if (!DNS_BEGINS(out))
			return false;
		span_begin_counted(&dns_streams, &key, &fresh, &dns_connections);
		both = bpf_map_lookup_elem(&dns_streams, &key);
		if (!both)
			return false;
	}
	s = out ? &both->out : &both->in;
	if (!s->begun) {
		s->begun = 1;
		s->next = d->seq;
	}
	off = s->next - d->seq;
	if ((__s32)off < 0) {
		/* The bytes in between were not seen: a message starts here, or is lost. */
		s->next = d->seq;
		s->length = 0;
		off = 0;
	}
	if (off >= payload)
		return false; /* sent again, or the middle of a message */
	if (!s->length) {
		if (payload - off < 2 || bpf_skb_load_bytes(skb, d->at + off, b, 2))
			return false;
		s->length = b[0] << 8 | b[1];
		s->next += 2;
		off += 2;
		if (!s->length || off >= payload)
			return false;
	}
	d->msg = d->at + off;
	d->len = payload - off < s->length ? payload - off : s->length;
	s->next += s->length;
	s->length = 0;
	return true;
}

/* Go to message i of the packet; false if there are no more. */
static __noinline bool dns_next(struct dns *d, struct __sk_buff *skb, bool out, int i)
{
	if (!d)
		return false;
	if (d->tuple.proto == IPPROTO_TCP)
		return dns_stream_next(d, skb, out);
	d->msg = d->at;
	d->len = d->end - d->at;
	return !i && d->end > d->at;
}

/* Read the header of the message; false if it is not a query (out) or an answer with
 * one question. Others do not occur in practice.
 */
static __noinline bool dns_message(struct dns *d, struct __sk_buff *skb, bool out)
{
	__u8 h[DNS_HEADER];

	if (!d || d->len < DNS_HEADER || bpf_skb_load_bytes(skb, d->msg, h, DNS_HEADER))
		return false;
	d->id = h[0] << 8 | h[1];
	d->flags = h[2] << 8 | h[3];
	d->answers = h[6] << 8 | h[7];
	return !(d->flags & DNS_OPCODE) && !(d->flags & DNS_ANSWER) == out && !h[4] && h[5] == 1;
}

/* DNS_MESSAGES(d, skb, out) statement: for each message in the packet, up to a limit. */
#define DNS_MESSAGES_MAX 4
#define DNS_MESSAGES(d, skb, out)                                              \
	for (int i = 0; dns_next(d, skb, out, i) && dns_few(i); i++)           \
		if (dns_message(d, skb, out))

static __always_inline bool dns_few(int i)
{
	if (i < DNS_MESSAGES_MAX)
		return true;
	lose(LOSS_BATCH);
	return false;
}

/* Copy the beginning of the message, at most size bytes; returns how many. */
#define DNS_COPY(to, size, skb, d)                                             \
	({                                                                     \
		__u32 __n = (d)->len;                                          \
									       \
		if (__n > (size))                                              \
			__n = (size);                                          \
		asm volatile("" : "+r"(__n));                                  \
		if (__n < DNS_HEADER || __n > (size) || bpf_skb_load_bytes(skb, (d)->msg, to, __n)) \
			__n = 0;                                               \
		__n;                                                           \
	})
