/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* listener.h - the listener of an address, for connections that are not
 * accepted yet. owner.h uses it if OWNER_LISTENERS is on.
 *
 * With SO_REUSEPORT several sockets listen on one address; only the newest is
 * kept.
 */
#pragma once
#include "filter.h"
#include "span.h"

struct listener_key {
	__u8 addr[16];
	__u32 netns;
	__u16 port;
	__u16 pad;
};
SPAN(listeners, struct listener_key, struct sock *);

static __always_inline void listener_put(const struct sock *sk)
{
	struct listener_key k = {};
	struct tuple t = {};

	if (sock_proto(sk) != IPPROTO_TCP || !tuple_fill(&t, sk))
		return;
	__builtin_memcpy(k.addr, t.laddr, sizeof(k.addr));
	k.netns = sock_netns(sk);
	/* inet_sport is not set yet when listen(2) has to choose a port */
	k.port = BPF_CORE_READ(sk, __sk_common.skc_num);
	span_begin(&listeners, &k, &sk);
}

static __always_inline void listener_drop(const struct sock *sk)
{
	struct listener_key k = {};
	struct sock **found;
	struct tuple t = {};

	if (!tuple_fill(&t, sk))
		return;
	__builtin_memcpy(k.addr, t.laddr, sizeof(k.addr));
	k.netns = sock_netns(sk);
	k.port = t.lport;
	found = bpf_map_lookup_elem(&listeners, &k);
	if (found && *found == sk)
		bpf_map_delete_elem(&listeners, &k);
}

/* The listener on addr and port: on that address, else on any address of its
 * family, else on any address. The socket was a listener when it was recorded:
 * check its state before you rely on it.
 */
static __always_inline struct sock *listener_at(const __u8 *addr, __u16 port, __u32 netns)
{
	struct listener_key k = { .netns = netns, .port = port };
	struct sock **found;

	__builtin_memcpy(k.addr, addr, sizeof(k.addr));
	found = bpf_map_lookup_elem(&listeners, &k);
	if (!found && is_ip4(addr)) {
		addr4(k.addr, 0);
		found = bpf_map_lookup_elem(&listeners, &k);
	}
	if (!found) {
		__builtin_memset(k.addr, 0, sizeof(k.addr));
		found = bpf_map_lookup_elem(&listeners, &k);
	}
	return found && sock_state(*found) == TCP_LISTEN ? *found : NULL;
}

/* The listener of a connection. */
static __always_inline struct sock *listener_of(const struct sock *sk)
{
	struct tuple t = {};

	if (!tuple_fill(&t, sk))
		return NULL;
	return listener_at(t.laddr, t.lport, sock_netns(sk));
}
