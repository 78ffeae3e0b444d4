// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"golang.org/x/sys/unix"
)

// steady are what keeping owners takes on sockets that are used for long: a look at the owner at each send and receive. It is with
// the socket, in its storage.
var steady = []*empty{{tracepoint: "sock_send_length", does: does(stores, compares)}, {tracepoint: "sock_recv_length", does: does(stores, compares)}}

// follow are the programs that notice when another process uses a socket: at each send and receive.
var follow = []*empty{{tracepoint: "sock_send_length", does: does(looksUp, compares)}, {tracepoint: "sock_recv_length", does: does(looksUp, compares)}}

// knows keep the process of a socket whose entry is made at a change of state.
var knows = append([]*empty{{tracepoint: "sys_exit_accept4", syscall: true, does: does(walks, looksUp, names)}}, follow...)

// calls keep the process of a socket, and nothing else of it. So no change of state has to be looked at: a process has a socket
// after connect(2) and accept(2).
var calls = append([]*empty{
	{tracepoint: "sys_enter_connect", syscall: true, does: does(walks, opens)}, {tracepoint: "sys_exit_accept4", syscall: true, does: does(walks, opens)},
	{tracepoint: "tcp_destroy_sock", does: does(forgets)},
}, follow...)

// leasts are, for tools that miss a goal, programs that do what the tool cannot leave out, and nothing else. Those of blocks make
// the tool's rows, with the process. They choose nothing by a filter, count no loss, and know neither IPv6 nor MPTCP. The
// others only look up as much as the tool.
var leasts = map[string][]*empty{
	"filetype": {
		{tracepoint: "sys_enter_read", syscall: true, hashes: 1}, {tracepoint: "sys_exit_read", syscall: true, who: true, hashes: 2},
		{tracepoint: "sys_enter_write", syscall: true, hashes: 1}, {tracepoint: "sys_exit_write", syscall: true, who: true, hashes: 2}},
	"socketio": {
		{tracepoint: "sock_send_length", who: true, hashes: 1, key: ioKey, adds: 2}, {tracepoint: "sock_recv_length", who: true, hashes: 1, key: ioKey, adds: 2}},
	"sormem": append([]*empty{
		{tracepoint: "sk_data_ready", socket: finds, hashes: 1, key: memKey, adds: memAdds}, {tracepoint: "sk_data_ready"}, {tracepoint: "tcp_probe"}}, follow...),
	"tcpaccept": {
		{tracepoint: "inet_sock_set_state", does: does(on(unix.BPF_TCP_SYN_RECV, clock, queues))},
		{tracepoint: "sys_exit_accept4", syscall: true, does: does(walks, clock, waits, says(acceptBytes, heads, self, tuple, queued))}},
	"tcpdrop": append([]*empty{{tracepoint: "kfree_skb", reads: true}}, calls...),
	"tcplife": append([]*empty{{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_SYN_SENT, clock, opensAt), on(unix.BPF_TCP_SYN_RECV, clock, begins),
		on(unix.BPF_TCP_ESTABLISHED, clock, looksUp, later),
		on(unix.BPF_TCP_CLOSE, looksUp, clock, states, says(lifeBytes, heads, owner, tuple, session), forgets))}}, knows...),
	"tcpretrans": calls,
	"tcpstates": append([]*empty{{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_LISTEN, listens), clock, states, changes, says(changeBytes, heads, owner, tuple, change), ends(forgets))}}, knows...),
	"tcpsynbl": {{tracepoint: "inet_sock_set_state"}, {tracepoint: "netif_receive_skb", reads: true}},
	"udplife":  {{tracepoint: "sock_send_length", clock: true, socket: makes}, {tracepoint: "sock_recv_length", clock: true, socket: makes}},
}

// How large events are: of a change of tcpstates, of tcplife, tcpaccept and soconnect.
const changeBytes, lifeBytes, acceptBytes, connectBytes = 144, 200, 136, 248

// Those of soconnect: a call of connect(2), from its beginning to its end.
var connects = []*empty{
	{tracepoint: "sys_enter_connect", syscall: true, clock: true, hashes: 1},
	{tracepoint: "sys_exit_connect", syscall: true, who: true, clock: true, hashes: 1, sends: connectBytes},
}

// leastTogether is the same for ten tools, of which tcpstates is the dearest on sessions: one table of sockets, what the tools keep of
// a socket or a call, and their events. All tools have one program at each hook, as if they were compiled as one tool. What happens
// once a process is left out.
var leastTogether = slices.Concat(follow, connects, []*empty{
	{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_LISTEN, listens), clock, states, on(unix.BPF_TCP_SYN_RECV, queues), changes, on(unix.BPF_TCP_ESTABLISHED, later),
		says(changeBytes, heads, owner, tuple, change), ends(says(lifeBytes, heads, owner, tuple, session), forgets))}, // tcpstates, tcplife
	{tracepoint: "sys_exit_accept4", syscall: true, does: does(walks, looksUp, names, clock, waits, says(acceptBytes, heads, owner, tuple, queued))}, // tcpaccept
	{tracepoint: "kfree_skb", reads: true},         // tcpdrop, skbdrop
	{tracepoint: "netif_receive_skb", reads: true}, // tcpsynbl
})

// leastApart is the same with programs for each tool, as tools have them that start and end each for itself. tcplife's come before those
// of tcpstates, which have the table.
var leastApart = slices.Concat([]*empty{
	{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_ESTABLISHED, clock, looksUp, later),
		on(unix.BPF_TCP_CLOSE, looksUp, clock, states, says(lifeBytes, heads, owner, tuple, session)))},
}, leasts["tcpstates"], leasts["tcpaccept"], connects, []*empty{
	{tracepoint: "inet_sock_set_state", does: does(on(unix.BPF_TCP_SYN_SENT, looksUp))}, // soconnect
	{tracepoint: "kfree_skb", reads: true}, {tracepoint: "kfree_skb", reads: true},      // tcpdrop, skbdrop
	{tracepoint: "netif_receive_skb", reads: true}, // tcpsynbl
})

// ioKey is the size of the key that sends and receives are counted by.
const ioKey = 104

// memKey is the size of the key that the fills of buffers are counted by. Each adds to a count, a sum and a slot of three
// histograms.
const memKey, memAdds = 32, 3 * 3

const leastName = "its least"
