//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* owners - the table of owners that the tools of an engine share. See
 * owner.h.
 */
#define OWNER_OPTIONS (OWNER_ALL | OWNER_LISTENERS | OWNER_TIMES | OWNER_TABLE)
#include "owner.h"

#define BPF_MAP_TYPE_PROG_ARRAY 3 /* of the kernel */

/* The programs of a tool that wants sends and receives, but none of TCP's. The programs
 * below call them, so that TCP's sockets cost that tool nothing. Go fills them in
 * (internal/tool/relay.go).
 */
enum { RELAY_SEND, RELAY_RECV, RELAYS };
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, RELAYS);
	__type(key, __u32);
	__type(value, __u32);
} relays SEC(".maps");

static __always_inline int relay(unsigned long long *ctx, __u32 to)
{
	const struct sock *sk = (void *)ctx[0];

	owner_io(sk);
	if (!is_tcp(load_proto(sk)))
		bpf_tail_call(ctx, &relays, to);
	return 0;
}

SEC("tp_btf/sock_send_length") int owner_send__relay(unsigned long long *ctx)
{
	return relay(ctx, RELAY_SEND);
}

SEC("tp_btf/sock_recv_length") int owner_recv__relay(unsigned long long *ctx)
{
	return relay(ctx, RELAY_RECV);
}
