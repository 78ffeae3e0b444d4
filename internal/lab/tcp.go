// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Sessions describes TCP sessions between a server and a client process. In
// each the client connects, sends Send bytes, the server answers with Recv
// bytes, and both close.
//
// Up to a mebibyte, each direction is one write(2) and one recvfrom(2), then
// one more recvfrom that finds the end on the side that closes last; Tally in
// the result has the exact numbers.
type Sessions struct {
	Network Network // default TCP4; TCP6, MPTCP4, MPTCP6; also Unix
	Count   int     // how many sessions; default 1
	Send    int     // payload of each from client to server, in bytes
	Recv    int     // and from server to client

	// Parallel is the number of threads on each side, which is how many
	// sessions can be open at once. Default 1: one after the other.
	Parallel int
	// Hold opens all sessions first ([TCP.Open]) and makes the transfers and the
	// closes later ([TCP.Run]), one after the other: sockets older than the tool.
	Hold bool
	// Close is the side that closes first. ByReset needs Recv > 0 or Send ==
	// 0, because the RST may overtake data that the server has not read.
	Close Closer
	// Think is how long the server waits before it answers.
	Think time.Duration
	// Uring makes connect, accept, send and receive by io_uring.
	Uring bool
	// Fast sends the client's first data with the SYN (TCP Fast Open), if the
	// settings of its host allow it.
	Fast bool

	// Locked makes a thread of the server lock its listener again and again, as accept
	// does for a moment.
	Locked bool

	// Plain makes the clients of an MPTCP server use plain TCP.
	Plain bool

	// Addrs are the server's addresses, which the client takes in turn. Default:
	// the server host's address. More than 55,000 sessions need several
	// addresses of 127.0.0.0/8.
	Addrs   []netip.Addr
	Port    int    // of the server; default: a free one
	From    string // what the client binds to first; default: nothing
	Path    string // of the server, for Unix; default: one in the world's directory
	Backlog int    // of the server; default 1024
	// Brief leaves the single sessions out of the result.
	Brief bool

	// The hosts and names of the processes. Default: the first and the last
	// host of the world, "lab-client" and "lab-server".
	ClientHost, ServerHost string
	ClientComm, ServerComm string
}

// Closer is the side that closes a session first.
type Closer string

// Who closes first: the client (the default), the server, or the client by a
// reset.
const (
	ByClient Closer = ""
	ByServer Closer = "server"
	ByReset  Closer = "reset"
)

// Session is one session as one side saw it, by its own stopwatch.
type Session struct {
	Addr       netip.Addr `json:"addr"`               // of the server
	ClientPort int        `json:"client_port"`        // 0 on the server if the client was gone at once
	ConnectNS  int64      `json:"connect_ns"`         // client: the connect call; server: the accept call
	FirstNS    int64      `json:"first_ns,omitempty"` // client: from before connect until the answer was read
	NS         int64      `json:"ns"`                 // from before connect (server: from accepted) to closed
}

// Side is what one process did.
type Side struct {
	Count    int       `json:"count"`
	Sessions []Session `json:"sessions,omitempty"` // client: in order of start; server: of accept, if not Parallel
	NS       int64     `json:"ns"`                 // all sessions together
	Tally    Tally     `json:"tally"`
}

// TCPResult is what both sides of the sessions did.
type TCPResult struct {
	Client, Server Side
}

// TCP is a server and a client that are ready to make sessions.
type TCP struct {
	Client, Server *Proc
	Port           int // of the server
	Sessions       Sessions
}

const (
	bodyTCPServer = "tcp-server"
	bodyTCPClient = "tcp-client"
)

func init() {
	Register(bodyTCPServer, tcpServer)
	Register(bodyTCPClient, tcpClient)
}

// defaults fills in what was left out.
func (s *Sessions) defaults(w *World) error {
	setDefault(&s.Network, TCP4)
	setDefault(&s.Count, 1)
	setDefault(&s.Parallel, 1)
	setDefault(&s.Backlog, 1024)
	w.cast(&s.ClientHost, &s.ServerHost, &s.ClientComm, &s.ServerComm)
	if len(s.Addrs) == 0 {
		s.Addrs = []netip.Addr{w.Addr(s.ServerHost, s.Network)}
	}
	local := s.Network.Family() == unix.AF_UNIX
	if local && s.Path == "" {
		var err error
		if s.Path, err = w.path(s.ServerComm); err != nil {
			return err
		}
	}
	switch {
	case s.Plain && plainOf[s.Network] == "":
		return fmt.Errorf("lab: %q is plain already", s.Network)
	case !s.Network.listens():
		return fmt.Errorf("lab: %q has no sessions", s.Network)
	case local && s.Close == ByReset:
		return errors.New("lab: UNIX sockets have no reset")
	case !s.Addrs[0].IsValid():
		return fmt.Errorf("lab: %s: %w: IPv6 is off", s.Network, ErrNotSupported)
	case s.Hold && s.Parallel > 1:
		return errors.New("lab: sessions that are held are not made in parallel")
	case s.Close == ByReset && s.Recv == 0 && s.Send > 0:
		return errors.New("lab: a reset may overtake data that nobody answers")
	}
	return nil
}

// cast fills in the hosts and names of client and server if they are empty.
func (w *World) cast(clientHost, serverHost, clientComm, serverComm *string) {
	setDefault(clientHost, w.hosts[0].name)
	setDefault(serverHost, w.hosts[len(w.hosts)-1].name)
	setDefault(clientComm, "lab-client")
	setDefault(serverComm, "lab-server")
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// RunTCP runs sessions of several kinds, one after the other.
func RunTCP(w *World, all ...Sessions) error {
	for _, s := range all {
		t, err := StartTCP(w, s)
		if err != nil {
			return err
		}
		if _, err := t.Run(); err != nil {
			return err
		}
	}
	return nil
}

// StartTCP starts the server, which listens, and the client, which waits for
// Run (or, with Hold, for Open).
func StartTCP(w *World, s Sessions) (*TCP, error) {
	if err := s.defaults(w); err != nil {
		return nil, err
	}
	t := &TCP{}
	var err error
	if t.Server, err = w.Start(s.ServerHost, s.ServerComm, bodyTCPServer, s); err != nil {
		return nil, err
	}
	if err := t.Server.Expect(&s.Port); err != nil {
		return nil, err
	}
	if t.Client, err = w.Start(s.ClientHost, s.ClientComm, bodyTCPClient, s); err != nil {
		return nil, err
	}
	t.Port, t.Sessions = s.Port, s
	return t, nil
}

// Open opens the sessions of a workload that holds them, and returns when all
// are accepted.
func (t *TCP) Open() error {
	if !t.Sessions.Hold {
		return errors.New("lab: these sessions are not held")
	}
	var n int
	if err := t.Client.Call("open", &n); err != nil {
		return err
	}
	return t.Server.Expect(&n)
}

// Run makes the sessions (with Hold: the transfers and closes), and returns
// when both processes have ended.
func (t *TCP) Run() (TCPResult, error) {
	var r TCPResult
	if err := t.Client.Call("go", &r.Client); err != nil {
		return r, errors.Join(err, t.Server.failure()) // it may be the server's fault
	}
	if err := t.Server.Expect(&r.Server); err != nil {
		return r, err
	}
	return r, errors.Join(t.Client.Wait(), t.Server.Wait())
}
