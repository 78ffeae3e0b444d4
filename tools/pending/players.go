// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
)

// The lab of this tool: a server and a client that hang in every way.

const (
	bodyServer  = "pending-server"
	bodyClient  = "pending-client"
	message     = 17 // bytes
	answers     = 3  // answers before a server falls silent
	connections = 11 // healthy ones
	waiting     = 2  // connections that nobody accepts
	muteName    = "mute.example"
)

func init() {
	lab.Register(bodyServer, serve)
	lab.Register(bodyClient, hangs)
}

// players are both ends, a firewall that drops SYNs, and a process that looks
// up a name.
type players struct {
	network                      lab.Network
	client, server, names, asker *lab.Proc
}

// began is an operation that began to hang between two times of the monotonic
// clock.
type began struct {
	What          string
	Type          string // of a lookup
	Lport, Rport  int
	Bytes, Count  int // -1: none
	Before, After int64
	Usual         bool // for --all
}

func start(w *lab.World, n lab.Network) (*players, error) {
	p := &players{network: n}
	firewall, err := lab.StartTargets(w, "server", "firewall", lab.Target{Network: n, Kind: lab.Silent})
	if err != nil {
		return nil, err
	}
	if p.server, err = w.Start("server", "web", bodyServer, served{Network: n, Addr: n.At(w.Addr("server", n), 0)}); err != nil {
		return nil, err
	}
	ports := map[string]int{}
	if err := p.server.Expect(&ports); err != nil {
		return nil, err
	}
	a := asked{Network: n, Addrs: map[string]string{"firewall": firewall.Addrs[0]}}
	for kind, port := range ports {
		a.Addrs[kind] = n.At(w.Addr("server", n), port)
	}
	if p.client, err = w.StartReady("client", "browser", bodyClient, a); err != nil {
		return nil, err
	}
	if p.names, err = lab.StartDNS(w, "client", "nameserver", lab.DNS{}); err != nil {
		return nil, err
	}
	p.asker, err = lab.StartLookups(w, "client", "resolver", "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n", "well.example.", muteName+".")
	return p, err
}

// begin makes one operation of each kind hang, lookups too if the tool can see
// them.
func (p *players) begin(lookups bool) (out []began, err error) {
	if err := p.client.Call("go", &out); err != nil {
		return nil, err
	}
	// The server's report: when a connection was established, and when data
	// arrived.
	var there map[int]int64
	if err := p.server.Call("there", &there); err != nil {
		return nil, err
	}
	for i, b := range out {
		if at := there[b.Rport]; at != 0 && (b.What == "silent" || (b.What == "unread" && b.After == 0)) {
			out[i].After = at
		}
	}
	if !lookups {
		return out, nil
	}
	before := int64(kern.MonoNow())
	if err := p.asker.Tell("go"); err != nil {
		return nil, err
	}
	for range 2 {
		var name string
		if err := p.names.Expect(&name); err != nil {
			return nil, err
		}
	}
	after := int64(kern.MonoNow())
	for _, typ := range []string{"A", "AAAA"} {
		out = append(out, began{What: "lookup", Type: typ, Bytes: -1, Before: before, After: after})
	}
	return out, nil
}

// served is where the server listens.
type served struct {
	Network lab.Network
	Addr    string
}

// serve listens on a port for each kind of server. silent and deaf accept and do nothing.
// mute answers some messages, then only reads. sink only reads. echo answers all
// messages. Nothing reaches dead after the first message. idle does not accept.
func serve(c *lab.Child) error {
	var a served
	if err := c.Arg(&a); err != nil {
		return err
	}
	ports, there := map[string]int{}, &moments{at: map[int]int64{}}
	for _, kind := range []string{"silent", "deaf", "mute", "sink", "echo", "dead", "idle"} {
		l, port, err := lab.Listen(a.Network, a.Addr, 16)
		if err != nil {
			return err
		}
		ports[kind] = port
		if kind != "idle" {
			go acceptAll(l, kind, there)
		}
	}
	if err := c.Report(ports); err != nil {
		return err
	}
	if err := c.Await("there"); err != nil {
		return err
	}
	if err := c.Report(there.wait()); err != nil {
		return err
	}
	return c.Await("end")
}

// moments is when a server first saw a client's connection and data, by the
// client's port.
type moments struct {
	mu   sync.Mutex
	at   map[int]int64
	open int
}

func (m *moments) begin() {
	m.mu.Lock()
	m.open++
	m.mu.Unlock()
}

func (m *moments) saw(fd int) {
	at := int64(kern.MonoNow())
	sa, err := unix.Getpeername(fd)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		m.at[sa.Port] = at
	case *unix.SockaddrInet6:
		m.at[sa.Port] = at
	default:
		panic(err)
	}
}

// wait returns when the server has seen everything that was begun.
func (m *moments) wait() map[int]int64 {
	for {
		m.mu.Lock()
		if m.open == 0 {
			defer m.mu.Unlock()
			return m.at
		}
		m.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func acceptAll(l int, kind string, there *moments) {
	for {
		fd, err := lab.Accept(l)
		if err != nil {
			return
		}
		there.begin()
		go answer(fd, kind, there)
	}
}

func answer(fd int, kind string, there *moments) {
	buf := make([]byte, message)
	if kind == "deaf" { // it looks, and does not read
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
	}
	there.saw(fd)
	if kind == "silent" || kind == "deaf" {
		return
	}
	for n := 0; lab.RecvAll(fd, buf) == nil; n++ {
		if kind == "dead" {
			if err := lab.Deafen(fd); err != nil {
				panic(err)
			}
		}
		if kind == "echo" || kind == "dead" || (kind == "mute" && n < answers) {
			lab.SendAll(fd, buf)
		}
	}
}

// asked is where servers are, by what they do.
type asked struct {
	Network lab.Network
	Addrs   map[string]string
}

// hangs makes connections that hang, and others that do not.
func hangs(c *lab.Child) error {
	var a asked
	if err := c.Arg(&a); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	var out []began
	for _, f := range []func() ([]began, error){a.well, a.connect, a.queued, a.silent, a.requests, a.unread, a.blocked} {
		more, err := f()
		if err != nil {
			return err
		}
		out = append(out, more...)
	}
	if err := c.Report(out); err != nil {
		return err
	}
	return c.Await("end")
}

// open connects to a kind of server.
func (a *asked) open(kind string) (fd int, b began, err error) {
	b = began{Bytes: -1, Before: int64(kern.MonoNow())}
	if fd, err = lab.Connect(a.Network, a.Addrs[kind]); err != nil {
		return fd, b, err
	}
	b.After = int64(kern.MonoNow())
	if b.Lport, err = lab.LocalPort(fd); err != nil {
		return fd, b, err
	}
	sa, err := a.Network.Sockaddr(a.Addrs[kind])
	b.Rport = portOf(sa)
	return fd, b, err
}

func portOf(sa unix.Sockaddr) int {
	if sa, ok := sa.(*unix.SockaddrInet6); ok {
		return sa.Port
	}
	return sa.(*unix.SockaddrInet4).Port
}

// turned is b from the server's side.
func (b began) turned() began {
	b.Lport, b.Rport = b.Rport, b.Lport
	return b
}

// exchange sends n messages and reads as many answers.
func exchange(fd, n int) error {
	for range n {
		if err := lab.SendAll(fd, make([]byte, message)); err != nil {
			return err
		}
		if err := lab.RecvAll(fd, make([]byte, message)); err != nil {
			return err
		}
	}
	return nil
}

// well makes healthy connections: all messages of the client were answered, with and
// without keepalive probes since, or nobody waits for an answer, or the peer has gone.
func (a *asked) well() ([]began, error) {
	for i := range connections {
		fd, _, err := a.open("echo")
		if err != nil {
			return nil, err
		}
		for _, o := range [][3]int{{unix.SOL_SOCKET, unix.SO_KEEPALIVE, i % 2}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1}} {
			if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
				return nil, err
			}
		}
		if err := exchange(fd, 1+i%5); err != nil {
			return nil, err
		}
		if err := watch(fd); err != nil {
			return nil, err
		}
	}
	sent, err := a.told("sink")
	if err != nil {
		return nil, err
	}
	gone, fd, err := a.sent("deaf")
	if err != nil {
		return nil, err
	}
	gone = gone.turned()
	gone.What, gone.Bytes, gone.Usual, gone.After = "unread", message, true, 0
	return []began{sent, gone}, lab.Close(fd)
}

// sent sends a message to a kind of server.
func (a *asked) sent(kind string) (b began, fd int, err error) {
	if fd, b, err = a.open(kind); err != nil {
		return b, fd, err
	}
	b.Before = int64(kern.MonoNow())
	err = lab.SendAll(fd, make([]byte, message))
	b.After = int64(kern.MonoNow())
	return b, fd, err
}

// told is a message to which nobody expects an answer.
func (a *asked) told(kind string) (began, error) {
	b, fd, err := a.sent(kind)
	b.What, b.Bytes, b.Usual = "request", 0, true
	if err != nil {
		return b, err
	}
	return b, acknowledged(fd)
}

// watch adds the socket to an epoll, as most servers do.
func watch(fd int) error {
	e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.EpollCtl(e, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// connect: a SYN without an answer.
func (a *asked) connect() ([]began, error) {
	sa, err := a.Network.Sockaddr(a.Addrs["firewall"])
	if err != nil {
		return nil, err
	}
	fd, err := lab.Socket(a.Network)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	b := began{What: "connect", Bytes: -1, Rport: portOf(sa), Before: int64(kern.MonoNow())}
	if err := unix.Connect(fd, sa); err != unix.EINPROGRESS {
		return nil, fmt.Errorf("connect: %w", err)
	}
	b.After = int64(kern.MonoNow())
	b.Lport, err = lab.LocalPort(fd)
	return []began{b}, err
}

// queued: connections that nobody accepts, of which the first one is shown.
func (a *asked) queued() (out []began, err error) {
	for range waiting {
		_, b, err := a.open("idle")
		if err != nil {
			return nil, err
		}
		b.What, b.Count = "queued", waiting
		out = append(out, b.turned())
	}
	return out[:1], nil
}

// silent: a connection that was accepted, and no byte since.
func (a *asked) silent() ([]began, error) {
	_, b, err := a.open("silent")
	b.What = "silent"
	return []began{b.turned()}, err
}

// request: requests without an answer. One is the first of its connection, one comes
// after others in the jiffy of their answers, and one does not arrive. A thread reads
// from the first connection; the others are in an epoll.
func (a *asked) requests() (out []began, err error) {
	for _, kind := range []string{"sink", "mute", "dead"} {
		fd, b, err := a.open(kind)
		if err != nil {
			return nil, err
		}
		if err := exchange(fd, map[string]int{"mute": answers, "dead": 1}[kind]); err != nil {
			return nil, err
		}
		b.What, b.Bytes, b.Before = "request", 0, int64(kern.MonoNow())
		if err := lab.SendAll(fd, make([]byte, message)); err != nil {
			return nil, err
		}
		b.After = int64(kern.MonoNow())
		if kind == "sink" {
			err = inCall(unix.SYS_READ, func() { unix.Read(fd, make([]byte, message)) })
		} else {
			err = watch(fd)
		}
		if kind == "dead" {
			b.Bytes = message
		} else if err == nil {
			err = acknowledged(fd)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// inCall makes a system call in a thread of its own, and returns when the
// thread sleeps in it.
func inCall(call int, f func()) error {
	var thread atomic.Int32
	go func() {
		runtime.LockOSThread()
		thread.Store(int32(unix.Gettid()))
		f()
	}()
	return lab.Until("a thread sleeps in a system call", func() (bool, error) {
		t := thread.Load()
		return t != 0 && lab.InCall(int(t), call), nil
	})
}

// acknowledged returns when everything that was sent has been acknowledged.
func acknowledged(fd int) error {
	return lab.Until("all data are acknowledged", func() (bool, error) {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && i.Unacked == 0, err
	})
}

// unread: data that the server does not read. The server reports when they
// arrived.
func (a *asked) unread() ([]began, error) {
	told, err := a.told("deaf")
	b := told.turned()
	b.What, b.Bytes, b.After, b.Usual = "unread", message, 0, false
	return []began{told, b}, err
}

// blocked: a writer that has filled the buffers of both ends.
func (a *asked) blocked() ([]began, error) {
	fd, b, err := a.open("deaf")
	if err != nil {
		return nil, err
	}
	b.What, b.Before = "blocked", int64(kern.MonoNow())
	err = inCall(unix.SYS_WRITE, func() {
		for {
			if _, err := unix.Write(fd, make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	same := 0
	var queue int
	err = lab.Until("nothing is taken any more", func() (bool, error) {
		n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		if n != queue || n == 0 {
			queue, same, b.After = n, 0, int64(kern.MonoNow())
		}
		same++
		return same > 50, err
	})
	b.Bytes = queue
	if err != nil {
		return nil, err
	}
	other := b.turned()
	other.What = "unread"
	other.Bytes, err = taken(fd)
	return []began{b, other}, err
}

// taken is the number of bytes that the peer has acknowledged.
func taken(fd int) (int, error) {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, err
	}
	return int(i.Bytes_acked) - 1, nil // the SYN is one
}
