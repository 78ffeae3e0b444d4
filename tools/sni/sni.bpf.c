//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* sni - the server name that a client asks for when it begins a TLS session.
 *
 * The program searches the first bytes that a connection sends for a
 * ClientHello. A dialogue with a proxy, or STARTTLS, may come before it. It may
 * take several segments and several TLS records. Go parses it.
 */
#include "cgskb.h"
#include "span.h"

#define LOOK_BYTES 8192 /* of a connection, where a ClientHello may begin */
#define HELLO_LEN 4096	/* most are below 2 KB */

struct hello_event {
	struct head head;
	struct tuple tuple;
	__u32 len; /* of data */
	__u32 pad;
	__u8 data[HELLO_LEN];
};
EVENT(struct hello_event);

/* A ClientHello that has begun, until it is complete or its socket ends. */
struct hello {
	struct who who;
	__u32 next; /* sequence number of what is missing */
	__u32 want; /* bytes of all of it; HELLO_LEN until BEGINNING of them are there */
	__u32 have; /* bytes of it in data */
	__u32 pad;
	__u8 data[2 * HELLO_LEN]; /* half of it is never used, but the verifier cannot know */
};
SPAN_OF(hellos, __u64, struct hello, 256);

const volatile struct hello blank = {};

__u64 begun = 0; /* hellos that lacked something when their first segment was sent */

/* The struct of bpf_tcp_sock(), which is ABI; only the fields in use. */
struct bpf_tcp_sock {
	__u32 unused[5];
	__u32 snd_nxt, snd_una;
	__u32 more[13];
	__u64 bytes_received, bytes_acked;
};

struct payload {
	__u32 at, len; /* in the packet */
	__u32 seq;
	__u32 pad;
};

/* Find the new data of a packet; false if there is none, or if the connection
 * has sent too much before.
 */
static __always_inline bool payload_new(struct payload *p, struct __sk_buff *skb)
{
	const __u8 *h = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_tcp_sock *tcp;
	struct bpf_sock *sk;

	if (h + 20 > end)
		return false;
	if (h[0] >> 4 == 4) {
		if (h[9] != IPPROTO_TCP)
			return false;
		p->at = (h[0] & 15) * 4;
	} else {
		if (h[6] != IPPROTO_TCP)
			return false;
		p->at = 40;
	}
	sk = skb->sk;
	if (!sk)
		return false;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return false;
	tcp = bpf_tcp_sock(sk);
	if (!tcp || tcp->bytes_acked > LOOK_BYTES)
		return false;
	h += p->at & 63;
	if (h + 20 > end)
		return false;
	p->seq = bpf_ntohl(*(__be32 *)(h + 4));
	if (p->seq != tcp->snd_nxt) /* sent again */
		return false;
	p->at += (h[12] >> 4) * 4;
	p->len = skb->len - p->at;
	return skb->len > p->at;
}

/* A record that begins a handshake: type, version, length; and a ClientHello: type, length. */
#define BEGINNING 9

/* The length of the ClientHello that begins with h; 0: it is not one. */
static __always_inline __u32 hello_length(const __u8 *h)
{
	__u32 record = h[3] << 8 | h[4], hello = 4 + (h[6] << 16 | h[7] << 8 | h[8]);

	if (h[0] != 22 || h[1] != 3 || h[2] > 4 || h[5] != 1 || record < 4 || hello > 1 << 16)
		return 0;
	/* Each record has a header of five bytes. All but the last have equal length. */
	return hello + 5 * ((hello + record - 1) / record);
}

/* Take what the packet has of h. */
static __always_inline void hello_take(struct hello *h, struct __sk_buff *skb, const struct payload *p)
{
	__u64 n = p->len, have = h->have, most = h->want < HELLO_LEN ? h->want : HELLO_LEN;

	h->next = p->seq + p->len;
	if (have >= most)
		return;
	if (n > most - have)
		n = most - have;
	/* Both are within these bounds already, but 5.10's verifier needs the
	 * checks: it does not conclude from n != 0 that n is at least 1.
	 */
	n--;
	asm volatile("" : "+r"(n), "+r"(have));
	n = (n & (HELLO_LEN - 1)) + 1;
	have &= HELLO_LEN - 1;
	if (bpf_skb_load_bytes(skb, p->at, h->data + have, n))
		return;
	h->have += n;
}

static __noinline int hello_tell(struct __sk_buff *skb, struct hello *h)
{
	const struct sock *sk = skb_sk(skb);
	struct hello_event *e;

	if (!h || !sk)
		return 0;
	e = EVENT_ZERO(struct hello_event, offsetof(struct hello_event, data));
	if (!e)
		return 0;
	tuple_fill(&e->tuple, sk);
	e->tuple.proto = IPPROTO_TCP;
	e->tuple.sock = bpf_get_socket_cookie(skb);
	e->head.ts = bpf_ktime_get_ns();
	e->head.netns = sock_netns(sk);
	e->head.who = h->who;
	e->len = h->have;
	bpf_probe_read_kernel(e->data, HELLO_LEN, h->data);
	if (tuple_wanted(&e->tuple))
		event_send(e);
	else
		EVENT_DROP(e);
	return 0;
}

static __noinline struct hello *hello_begin(struct __sk_buff *skb, __u64 sock, __u32 want)
{
	const struct sock *sk = skb_sk(skb);
	struct who who = {};
	struct hello *h;

	if (!sk || !sock_wanted(sk))
		return NULL;
	if (!skb_sender(&who, sk, IPPROTO_TCP))
		lose(LOSS_OWNER);
	else if (who.pid == filter_self)
		return NULL;
	if (!who_wanted(&who))
		return NULL;
	if (bpf_map_update_elem(&hellos, &sock, (const void *)&blank, BPF_ANY)) {
		lose(LOSS_SPAN);
		return NULL;
	}
	h = bpf_map_lookup_elem(&hellos, &sock);
	if (h) {
		h->who = who;
		h->want = want;
	}
	return h;
}

KTRACE(gone, tcp_destroy_sock, const struct sock *sk)
{
	__u64 key = sock_cookie(sk);

	if (begun)
		bpf_map_delete_elem(&hellos, &key);
	return 0;
}

SEC("cgroup_skb/egress") int hello__cgroup(struct __sk_buff *skb)
{
	__u8 start[BEGINNING] = { 22, 3 };
	struct payload p = {};
	struct hello *h = NULL;
	__u32 want = 0;
	__u64 sock;

	if (!payload_new(&p, skb))
		return CGROUP_ALLOW;
	if (p.len >= BEGINNING) {
		if (!bpf_skb_load_bytes(skb, p.at, start, BEGINNING))
			want = hello_length(start);
	} else if (!bpf_skb_load_bytes(skb, p.at, start, 1) && start[0] == 22 &&
		   (p.len == 1 || !bpf_skb_load_bytes(skb, p.at, start, 2)) && start[1] == 3) {
		want = HELLO_LEN; /* it may be the beginning of one */
	}
	if (!want && !begun)
		return CGROUP_ALLOW;
	sock = bpf_get_socket_cookie(skb);
	if (begun)
		h = bpf_map_lookup_elem(&hellos, &sock);
	if (h && h->next != p.seq)
		h = NULL;
	if (!h && want) {
		h = hello_begin(skb, sock, want);
		if (h && p.len < want)
			begun = 1;
	}
	if (!h)
		return CGROUP_ALLOW;
	hello_take(h, skb, &p);
	if (h->want == HELLO_LEN && h->have >= BEGINNING) {
		h->want = hello_length(h->data);
		if (!h->want) {
			bpf_map_delete_elem(&hellos, &sock);
			return CGROUP_ALLOW;
		}
	}
	if (h->have >= h->want || h->have >= HELLO_LEN) {
		hello_tell(skb, h);
		bpf_map_delete_elem(&hellos, &sock);
	}
	return CGROUP_ALLOW;
}
