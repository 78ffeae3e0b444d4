// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// Demo is the sockets that seine demo opens.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		for _, h := range lab.TwoHosts {
			if _, err := start(w, h); err != nil {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{{Name: "peers", Hosts: lab.TwoHosts, Run: connections}}

const (
	body    = "sockets-keeper"
	comm    = "keeper"
	queued  = 3  // connections that nobody accepts
	packets = 5  // datagrams that nobody reads
	unread  = 17 // bytes that nobody reads
	read    = 1000
)

// keeper is a process that keeps sockets open, and its report of them.
type keeper struct {
	proc *lab.Proc

	Client, Server end
	Before, After  int64 // the monotonic clock before and after the last byte was sent
}

// end is one end of a TCP connection, as TCP_INFO reports it.
type end struct {
	Inode              uint64
	CC                 string // congestion control
	RTT, Cwnd, Retrans uint32
}

func init() { lab.Register(body, keep) }

func start(w *lab.World, host string) (*keeper, error) {
	k := &keeper{}
	p, err := w.Start(host, comm, body, nil)
	if err != nil {
		return nil, err
	}
	k.proc = p
	return k, p.Call("go", k)
}

// keep opens sockets of many kinds and leaves them open.
func keep(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	var k keeper
	if err := errors.Join(k.listeners(), k.datagrams(), k.connection(), pairs()); err != nil {
		return err
	}
	if err := c.Report(k); err != nil {
		return err
	}
	return c.Await("end")
}

// listeners opens listeners of both families. Connections wait at one of them.
func (k *keeper) listeners() error {
	_, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 7)
	for i := 0; i < queued && err == nil; i++ {
		_, err = lab.Connect(lab.TCP4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	}
	if err != nil {
		return err
	}
	_, _, err = lab.Listen(lab.TCP6, "[::]:0", 11)
	return err
}

// datagrams opens UDP sockets that are bound, connected, or have unread packets, and a raw socket.
func (k *keeper) datagrams() error {
	_, port, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	fd, err := lab.Connect(lab.UDP4, fmt.Sprintf("127.0.0.1:%d", port))
	for i := 0; i < packets && err == nil; i++ {
		err = lab.SendAll(fd, make([]byte, 100))
	}
	if err != nil {
		return err
	}
	if _, _, err = lab.Bind(lab.UDP6, "[::1]:0"); err != nil {
		return err
	}
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	return err
}

// connection opens a connection. One end reads some of its data and leaves the rest. One end has two descriptors.
func (k *keeper) connection() error {
	l, port, err := lab.Listen(lab.TCP6, "[::1]:0", 1)
	if err != nil {
		return err
	}
	fd, err := lab.Connect(lab.TCP6, fmt.Sprintf("[::1]:%d", port))
	if err != nil {
		return err
	}
	peer, err := lab.Accept(l)
	if err != nil {
		return err
	}
	if err := errors.Join(lab.SendAll(fd, make([]byte, read)), lab.RecvAll(peer, make([]byte, read))); err != nil {
		return err
	}
	k.Before = int64(kern.MonoNow())
	err = errors.Join(lab.SendAll(fd, make([]byte, unread)), acknowledged(fd))
	k.After = int64(kern.MonoNow())
	if err != nil {
		return err
	}
	if _, err := unix.Dup(peer); err != nil {
		return err
	}
	return errors.Join(k.Client.look(fd), k.Server.look(peer))
}

// acknowledged returns when the peer has acknowledged all data.
func acknowledged(fd int) error {
	return lab.Until("all data are acknowledged", func() (bool, error) {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && i.Unacked == 0, err
	})
}

func (e *end) look(fd int) error {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return err
	}
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	cc, e2 := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	*e = end{s.Ino, strings.TrimRight(cc, "\x00"), i.Rtt, i.Snd_cwnd, i.Total_retrans}
	return errors.Join(err, e2)
}

// pairs opens UNIX sockets with and without a name.
func pairs() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("@seine-sockets-%d", os.Getpid())
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 5)); err != nil {
		return err
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		if _, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
	}
	return nil
}

// connections: the rows of a connection between two network namespaces name the process at the other end.
func connections(x *trial.Trial) error { return known(x, 17) }

// known wants 17 connections of the server and ofClient connections of the client.
func known(x *trial.Trial, ofClient int) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 17, Send: 1000, Recv: 777, Hold: true})
	if err != nil {
		return err
	}
	var args []string
	if ofClient == 0 {
		args = append(args, "--comm="+t.Server.Comm)
	}
	if err := errors.Join(t.Open(), x.Attach(args...)); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	peer := map[uint64]*lab.Proc{uint64(t.Client.PID): t.Server, uint64(t.Server.PID): t.Client}
	n := map[*lab.Proc]int{}
	for _, r := range rows {
		if trial.Value(r.Get("state")) != "ESTABLISHED" || trial.Value(r.Get("proto")) != "tcp" {
			continue
		}
		p := peer[r.Get("pid").N]
		if p == nil {
			x.Errorf("whose is %s?", trial.Dump(r))
			continue
		}
		n[p]++ // by the process at the other end
		x.Want(r, "peer_pid", p.PID)
		x.Want(r, "peer_comm", p.Comm)
	}
	if n[t.Client] != 17 || n[t.Server] != ofClient {
		x.Fail(trial.Fewer(n[t.Client]+n[t.Server], 17+ofClient, "%d connections of the server and %d of the client, want 17 and %d", n[t.Client], n[t.Server], ofClient))
	}
	_, err = t.Run()
	return err
}
