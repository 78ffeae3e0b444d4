// SPDX-License-Identifier: Apache-2.0

package main

// owners are programs that keep a table of sockets: all of them have an entry, each send and receive looks it up.
// Whoever names the process of a socket has to do this much.
var owners = []*empty{
	{tracepoint: "inet_sock_set_state", socket: makes}, {tracepoint: "tcp_destroy_sock", socket: ends},
	{tracepoint: "sock_send_length", socket: finds}, {tracepoint: "sock_recv_length", socket: finds},
}

// leasts are, for tools that miss a goal, programs at the same tracepoints that look up as much, and do nothing else. What
// happens at accept(2), once a session, is left out.
var leasts = map[string][]*empty{
	"filetype": {
		{tracepoint: "sys_enter_read", syscall: true, hashes: 1}, {tracepoint: "sys_exit_read", syscall: true, who: true, hashes: 2},
		{tracepoint: "sys_enter_write", syscall: true, hashes: 1}, {tracepoint: "sys_exit_write", syscall: true, who: true, hashes: 2}},
	"socketio": {{tracepoint: "sock_send_length", who: true, hashes: 1}, {tracepoint: "sock_recv_length", who: true, hashes: 1}},
	"sormem": {
		{tracepoint: "sk_data_ready", socket: finds, hashes: 1}, {tracepoint: "sk_data_ready"}, {tracepoint: "tcp_probe"},
		{tracepoint: "sock_send_length", socket: finds}, {tracepoint: "sock_recv_length", socket: finds}},
	"tcpdrop":    append([]*empty{{tracepoint: "kfree_skb"}}, owners...),
	"tcplife":    append([]*empty{{tracepoint: "inet_sock_set_state", clock: true, socket: makes}}, owners[1:]...),
	"tcpretrans": {owners[0], owners[2], owners[3]},
	"tcpstates":  append([]*empty{{tracepoint: "inet_sock_set_state", clock: true, socket: makes, sends: 192}}, owners[1:]...),
	"tcpsynbl":   {{tracepoint: "inet_sock_set_state"}, {tracepoint: "netif_receive_skb", reads: true}},
	"udplife":    {{tracepoint: "sock_send_length", clock: true, socket: makes}, {tracepoint: "sock_recv_length", clock: true, socket: makes}},
}

const leastName = "its look-ups alone"
