// SPDX-License-Identifier: Apache-2.0

package kern

// TCPKey is struct tcp_key of tcpkey.h: the possible keys of counts by TCP
// socket.
type TCPKey struct {
	Cgroup uint64 `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID    ID32   `col:"pid,width=7,key" help:"process that owns the socket"`
	Netns  ID32   `col:"netns,width=10,key" help:"network namespace, by inode"`
	Comm   Comm   `col:"comm,width=16,key" help:"process name"`
	Laddr  Addr   `col:"laddr,width=15,key" help:"local address"`
	Raddr  Addr   `col:"raddr,width=15,key" help:"remote address"`
	Lport  ID16   `col:"lport,width=5,key" help:"local port"`
	Rport  ID16   `col:"rport,width=5,key" help:"remote port"`
	Port   ID16   `col:"port,width=5,key" help:"port of the service: the local one of a connection that was accepted, else the remote one"`
	Pad    uint16 `col:"-"`
}
