// SPDX-License-Identifier: Apache-2.0

package kern

// IOKey is struct io_key of iokey.h: the possible keys of counts of sends and
// receives.
type IOKey struct {
	Cgroup uint64 `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID    ID32   `col:"pid,width=7,key" help:"process"`
	TID    ID32   `col:"tid,width=7,key" help:"thread id"`
	UID    uint32 `col:"uid,width=5,key" help:"user"`
	Dir    Dir    `col:"dir,width=5,key" help:"read or write"`
	Comm   Comm   `col:"comm,width=16,key" help:"process name"`
	Thread Comm   `col:"thread,width=16,key" help:"thread name"`
	Laddr  Addr   `col:"laddr,width=15,key" help:"local address"`
	Raddr  Addr   `col:"raddr,width=15,key" help:"remote address"`
	Lport  ID16   `col:"lport,width=5,key" help:"local port"`
	Port   ID16   `col:"port,width=5,key" help:"port of the service: the local one of a connection that was accepted, else the remote one; absent where a socket has none: UNIX sockets, UDP that is not connected"`
	Family Family `col:"family,width=6,key" help:"address family"`
	Proto  Proto  `col:"proto,width=7,key" help:"protocol; for sockets other than IP, the family"`
	Netns  ID32   `col:"netns,width=10,key" help:"network namespace, by inode"`
	Rport  ID16   `col:"rport,width=5,key" help:"remote port; absent where a socket has none: UNIX sockets, UDP that is not connected"`
	Pad    uint16 `col:"-"`
}
