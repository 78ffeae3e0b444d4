// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"golang.org/x/sys/unix"
)

// owners are programs that keep a table of sockets: all of them have an entry, each send and receive looks it up.
// Whoever names the process of a socket has to do this much.
var owners = []*empty{
	{tracepoint: "inet_sock_set_state", socket: makes}, {tracepoint: "tcp_destroy_sock", socket: ends},
	{tracepoint: "sock_send_length", socket: finds}, {tracepoint: "sock_recv_length", socket: finds},
}

// steady are what is left of that on sockets that are used for long: the owner is with the socket, in its storage.
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
	"socketio": {{tracepoint: "sock_send_length", who: true, hashes: 1}, {tracepoint: "sock_recv_length", who: true, hashes: 1}},
	"sormem": {
		{tracepoint: "sk_data_ready", socket: finds, hashes: 1}, {tracepoint: "sk_data_ready"}, {tracepoint: "tcp_probe"},
		{tracepoint: "sock_send_length", socket: finds}, {tracepoint: "sock_recv_length", socket: finds}},
	"tcpaccept": {
		{tracepoint: "inet_sock_set_state", does: does(on(unix.BPF_TCP_SYN_RECV, clock, queues))},
		{tracepoint: "sys_exit_accept4", syscall: true, does: does(walks, clock, waits, says(136, heads, self, tuple, queued))}},
	"tcpdrop": append([]*empty{{tracepoint: "kfree_skb", reads: true}}, calls...),
	"tcplife": append([]*empty{{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_SYN_SENT, clock, opensAt), on(unix.BPF_TCP_SYN_RECV, clock, begins),
		on(unix.BPF_TCP_ESTABLISHED, clock, looksUp, later),
		on(unix.BPF_TCP_CLOSE, looksUp, clock, states, says(200, heads, owner, tuple, session), forgets))}}, knows...),
	"tcpretrans": calls,
	"tcpstates": append([]*empty{{tracepoint: "inet_sock_set_state", does: does(
		on(unix.BPF_TCP_LISTEN, listens), clock, states, changes, says(changeBytes, heads, owner, tuple, change), last)}}, knows...),
	"tcpsynbl": {{tracepoint: "inet_sock_set_state"}, {tracepoint: "netif_receive_skb", reads: true}},
	"udplife":  {{tracepoint: "sock_send_length", clock: true, socket: makes}, {tracepoint: "sock_recv_length", clock: true, socket: makes}},
}

// changeBytes is how large an event of tcpstates is.
const changeBytes = 144

// leastAlone is the same for tcpstates, which is the dearest of the ten tools on sessions, and on requests as dear as the dearest.
var leastAlone = append([]*empty{{tracepoint: "inet_sock_set_state", clock: true, socket: makes, sends: changeBytes}}, owners[1:]...)

// leastTogether is the same for ten tools: one table of sockets, what each of them keeps of a socket or a call, and the events that they
// send. Copies of the process and of the addresses are left out, and so is what happens once a process.
var leastTogether = slices.Concat(owners, []*empty{
	{tracepoint: "inet_sock_set_state", clock: true, hashes: 1, socket: finds, sends: changeBytes}, {tracepoint: "tcp_destroy_sock", socket: ends}, // tcpstates
	{tracepoint: "inet_sock_set_state", state: unix.BPF_TCP_CLOSE, clock: true, socket: finds, sends: 200}, // tcplife
	{tracepoint: "inet_sock_set_state", state: unix.BPF_TCP_SYN_SENT, hashes: 1},                           // soconnect
	{tracepoint: "sys_enter_connect", syscall: true, who: true, clock: true, hashes: 2}, {tracepoint: "sys_exit_connect", syscall: true, clock: true, hashes: 2, sends: 248},
	{tracepoint: "inet_sock_set_state", state: unix.BPF_TCP_SYN_RECV, clock: true, hashes: 1}, // tcpaccept
	{tracepoint: "sys_enter_accept4", syscall: true, hashes: 1}, {tracepoint: "sys_exit_accept4", syscall: true, who: true, clock: true, hashes: 2, sends: 136},
	{tracepoint: "sys_exit_accept4", syscall: true, who: true, hashes: 1},          // of the table
	{tracepoint: "kfree_skb", reads: true}, {tracepoint: "kfree_skb", reads: true}, // tcpdrop, skbdrop
	{tracepoint: "netif_receive_skb", reads: true}, // tcpsynbl
})

const leastName = "its least"
