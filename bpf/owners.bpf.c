//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* owners - the table of owners that the tools of an engine share. See
 * owner.h.
 */
#define OWNER_OPTIONS (OWNER_ALL | OWNER_LISTENERS | OWNER_TIMES | OWNER_TABLE)
#include "owner.h"

#define BPF_MAP_TYPE_PROG_ARRAY 3 /* of the kernel */

/* The program of a tool that wants sends, or receives, but none of TCP's. The programs
 * below call it, so that TCP's sockets cost that tool nothing. Go fills it in
 * (internal/tool/relay.go).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} relay_send SEC(".maps"), relay_recv SEC(".maps");

SEC("tp_btf/sock_send_length") int owner_send__relay(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];

	owner_io(sk);
	if (!is_tcp(load_proto(sk)))
		bpf_tail_call(ctx, &relay_send, 0);
	return 0;
}

SEC("tp_btf/sock_recv_length") int owner_recv__relay(unsigned long long *ctx)
{
	const struct sock *sk = (void *)ctx[0];

	owner_io(sk);
	if (!is_tcp(load_proto(sk)))
		bpf_tail_call(ctx, &relay_recv, 0);
	return 0;
}
