// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Talk is a TCP connection on which a client sends requests and a server
// answers, with delays on purpose. Each side measures its delays. All talks run
// concurrently, each on a port of its own, in one process on each side.
type Talk struct {
	Name        string
	Network     Network // default TCP4
	Addr        string  // of the server; default: a free port of its host
	Turns       int     // default 1
	Ask, Answer int     // bytes; default 100 and 1000

	Accept time.Duration // server: delay before it accepts
	Late   time.Duration // server: delay before it reads a request
	Think  time.Duration // server: delay before it answers
	Chunks int           // server: pieces of an answer; default 1
	Pause  time.Duration // server: delay between them; with poll, whenever there is no room
	Greet  time.Duration // server: delay before it sends first
	Wait   time.Duration // client: delay before it reads an answer
	Slow   time.Duration // client: delay after each read of an answer
	Gap    time.Duration // client: delay before each request except the first

	SendBuf int    // of the server
	RecvBuf int    // of the client
	Half    bool   // the client shuts its side after the last request
	Nagle   bool   // the client writes a request in two pieces, and Nagle's algorithm holds back the second
	Via     string // how the server reads or sends: splice, sendfile, uring, poll (it sends what there is room for, and polls); default: read and write
	// Early makes the connection and its first turn before Begin.
	Early bool

	// Streams is the number of clients that share the connection, each with Turns of
	// its own. They do not wait for each other. Answers come when they are ready, or
	// in order.
	Streams int
	InOrder bool
	// Duplex makes both sides send every Gap, without waiting for each
	// other.
	Duplex bool
	TLS    uint16 // the version of TLS; 0: no TLS
	// Hand makes the server pass the connection to another process after HandAfter
	// turns, default 1: "rights" sends the descriptor, "fork" starts the process with
	// it. With First that process sends before it reads.
	Hand      string
	HandAfter int
	First     bool
}

// TalkSide is one side's measurements, in nanoseconds. A delay is the time
// between two calls of that side.
type TalkSide struct {
	Connect int64   `json:"connect,omitempty"` // client: the call
	Accept  int64   `json:"accept,omitempty"`
	Late    int64   `json:"late,omitempty"`
	Think   int64   `json:"think,omitempty"`
	Pause   int64   `json:"pause,omitempty"`
	Slow    int64   `json:"slow,omitempty"`
	Gap     int64   `json:"gap,omitempty"`
	Send    int64   `json:"send,omitempty"`  // in calls that send
	Held    int64   `json:"held,omitempty"`  // server: from the first piece of a request to the second
	Turns   []int64 `json:"turns,omitempty"` // client: each from before the request until the answer was read; the first with the handshake of TLS
	Whole   int64   `json:"whole,omitempty"` // client: from before the connect until it was closed

	// Values of the kernel's tcp_info. RTT is that of the handshake; the others are
	// read before the side closes.
	RTT     int64 `json:"rtt,omitempty"`
	Busy    int64 `json:"busy,omitempty"`    // time with unacknowledged data, in jiffies
	Window  int64 `json:"window,omitempty"`  // the peer's window was closed
	Buffer  int64 `json:"buffer,omitempty"`  // and our send buffer was full
	Retrans int   `json:"retrans,omitempty"` // segments that were sent again
	// Crossed is how often data of both directions were in the kernel: unacknowledged
	// data after a message was read, or unread data before a message was sent.
	Crossed int `json:"crossed,omitempty"`
	Taker   int `json:"taker,omitempty"` // server: the process that it handed the connection to
}

// Exchanges is the total time of all turns.
func (s *TalkSide) Exchanges() (n int64) {
	for _, t := range s.Turns {
		n += t
	}
	return n
}

// Talks are talks that are ready.
type Talks struct {
	Client, Server *Proc
	Talks          []Talk
	Ports          []int // of the servers
}

// TalkResult is what both sides measured of one talk.
type TalkResult struct{ Client, Server TalkSide }

const (
	bodyAsk    = "talk-client"
	bodyAnswer = "talk-server"
)

func init() {
	Register(bodyAsk, talkClient)
	Register(bodyAnswer, talkServer)
}

// StartTalks starts both processes. Early talks have begun when it returns.
func StartTalks(w *World, clientComm, serverComm string, talks ...Talk) (*Talks, error) {
	var clientHost, serverHost string
	w.cast(&clientHost, &serverHost, &clientComm, &serverComm)
	talks = slices.Clone(talks)
	for i := range talks {
		t := &talks[i]
		setDefault(&t.Network, TCP4)
		setDefault(&t.Turns, 1)
		setDefault(&t.HandAfter, 1)
		setDefault(&t.Ask, 100)
		setDefault(&t.Answer, 1000)
		setDefault(&t.Chunks, 1)
		if t.Addr == "" {
			t.Addr = t.Network.At(w.Addr(serverHost, t.Network), 0)
		}
	}
	x := &Talks{Talks: talks}
	var err error
	if x.Server, err = w.Start(serverHost, serverComm, bodyAnswer, talks); err != nil {
		return nil, err
	}
	var addrs []string
	if err := errors.Join(x.Server.Expect(&addrs), x.Server.Expect(&x.Ports)); err != nil {
		return nil, err
	}
	for i := range talks {
		talks[i].Addr = addrs[i]
	}
	if x.Client, err = w.Start(clientHost, clientComm, bodyAsk, talks); err != nil {
		return nil, err
	}
	var begun int
	return x, x.Client.Expect(&begun)
}

// Run runs the talks, and returns the measurements when both processes have
// ended.
func (x *Talks) Run() ([]TalkResult, error) {
	var c, s []TalkSide
	if err := x.Client.Call("go", &c); err != nil {
		return nil, errors.Join(err, x.Server.failure())
	}
	if err := x.Server.Expect(&s); err != nil {
		return nil, err
	}
	out := make([]TalkResult, len(x.Talks))
	for i := range out {
		out[i] = TalkResult{c[i], s[i]}
	}
	return out, errors.Join(x.Client.Wait(), x.Server.Wait())
}

// hello is the first message of a server with First.
var hello = []byte("hello")

// timed adds the duration of f to a stopwatch.
func timed(n *int64, f func() error) error {
	from := time.Now()
	err := f()
	*n += int64(time.Since(from))
	return err
}

// rest sleeps and adds the time to a stopwatch.
func rest(n *int64, d time.Duration) {
	if d > 0 {
		timed(n, func() error { time.Sleep(d); return nil })
	}
}

// together runs f for each talk, each in a goroutine of its own.
func together(talks []Talk, f func(i int, t *Talk) error) error {
	errs := make([]error, len(talks))
	var wg sync.WaitGroup
	for i := range talks {
		wg.Go(func() {
			if err := f(i, &talks[i]); err != nil {
				errs[i] = fmt.Errorf("%s: %w", talks[i].Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func talkServer(c *Child) error {
	var talks []Talk
	if err := c.Arg(&talks); err != nil {
		return err
	}
	fds, ports, addrs := make([]int, len(talks)), make([]int, len(talks)), make([]string, len(talks))
	for i := range talks {
		t := &talks[i]
		var err error
		if fds[i], ports[i], err = Listen(t.Network, t.Addr, 16); err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		if t.SendBuf > 0 {
			if err := unix.SetsockoptInt(fds[i], unix.SOL_SOCKET, unix.SO_SNDBUF, t.SendBuf); err != nil {
				return err
			}
		}
		sa, err := unix.Getsockname(fds[i])
		if err != nil {
			return err
		}
		addrs[i] = t.Network.At(addrOf(sa), ports[i])
	}
	if err := errors.Join(c.Report(addrs), c.Report(ports)); err != nil {
		return err
	}
	sides := make([]TalkSide, len(talks))
	err := together(talks, func(i int, t *Talk) error { return t.serve(fds[i], &sides[i]) })
	if err != nil {
		return err
	}
	return c.Report(sides)
}

// serve runs the server's side of a talk.
func (t *Talk) serve(listener int, s *TalkSide) error {
	if t.Accept > 0 {
		if err := readable(listener); err != nil {
			return err
		}
		rest(&s.Accept, t.Accept)
	}
	k, err := newCaller(t.Via == "uring")
	if err != nil {
		return err
	}
	defer k.close()
	hand, err := newHand(t.Hand)
	if err != nil {
		return err
	}
	defer hand.close()
	fd, err := k.accept(listener)
	if err != nil {
		return err
	}
	defer func() { Close(fd) }()
	if err := errors.Join(t.handshake(fd, s), nodelay(t.Network, fd)); err != nil {
		return err
	}
	if t.TLS != 0 {
		return t.serveTLS(fd, s)
	}
	way, err := newTalkWay(t, k)
	if err != nil {
		return err
	}
	defer way.close()
	if t.Greet > 0 {
		rest(&s.Think, t.Greet)
		if err := k.sendAll(fd, hello); err != nil {
			return err
		}
	}
	turns := t.Turns
	if t.overlapping() {
		if err := t.mingle(fd, s, false); err != nil {
			return err
		}
		turns = 0
	}
	for n := range turns {
		if n == t.HandAfter && t.Hand != "" {
			taken := fd
			fd = -1
			return hand.over(t, taken, s)
		}
		if err := t.turn(k, way, fd, s); err != nil {
			return err
		}
	}
	if !t.Half {
		err = k.recvEnd(fd)
	}
	return errors.Join(err, t.figures(fd, s))
}

// turn is one of the server's.
func (t *Talk) turn(k caller, way *talkWay, fd int, s *TalkSide) error {
	if t.Late > 0 {
		if err := readable(fd); err != nil {
			return err
		}
		rest(&s.Late, t.Late)
	}
	if err := t.request(way, fd, s); err != nil {
		return err
	}
	if t.Half {
		if err := k.recvEnd(fd); err != nil {
			return err
		}
	}
	rest(&s.Think, t.Think)
	for i := range t.Chunks {
		if i > 0 {
			rest(&s.Pause, t.Pause)
		}
		if err := timed(&s.Send, func() error { return t.send(way, fd, t.Answer/t.Chunks, s) }); err != nil {
			return err
		}
	}
	return nil
}

// send sends a piece of an answer.
func (t *Talk) send(way *talkWay, fd, n int, s *TalkSide) error {
	if t.Via != "poll" {
		return way.send(fd, n)
	}
	return sendPolled(fd, way.buf[:n], func() { rest(&s.Pause, t.Pause) })
}

// request reads what the client asks.
func (t *Talk) request(way *talkWay, fd int, s *TalkSide) error {
	if !t.Nagle {
		return way.read(fd, t.Ask)
	}
	if err := way.read(fd, t.Ask/2); err != nil {
		return err
	}
	return timed(&s.Held, func() error { return way.read(fd, t.Ask-t.Ask/2) })
}

// handshake reads the only round-trip time that cannot include a delayed ACK.
func (t *Talk) handshake(fd int, s *TalkSide) error {
	if !t.Network.tcp() {
		return nil
	}
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return fmt.Errorf("TCP_INFO: %w", err)
	}
	if i.Min_rtt != math.MaxUint32 { // none was measured
		s.RTT = int64(i.Min_rtt) * int64(time.Microsecond)
	}
	return nil
}

// figures reads what the kernel counted on one side.
func (t *Talk) figures(fd int, s *TalkSide) error {
	if !t.Network.tcp() {
		return nil
	}
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return fmt.Errorf("TCP_INFO: %w", err)
	}
	us := int64(time.Microsecond)
	s.Busy, s.Window, s.Buffer = int64(i.Busy_time)*us, int64(i.Rwnd_limited)*us, int64(i.Sndbuf_limited)*us
	s.Retrans = int(i.Total_retrans)
	return nil
}

func talkClient(c *Child) error {
	var talks []Talk
	if err := c.Arg(&talks); err != nil {
		return err
	}
	sides, fds, begun := make([]TalkSide, len(talks)), make([]int, len(talks)), make([]time.Time, len(talks))
	open := func(i int, t *Talk) (err error) {
		begun[i] = time.Now()
		fds[i], err = t.open(&sides[i])
		return err
	}
	err := together(talks, func(i int, t *Talk) error {
		if !t.Early {
			return nil
		}
		if err := open(i, t); err != nil {
			return err
		}
		return t.ask(fds[i], &sides[i])
	})
	if err != nil {
		return err
	}
	if err := c.Report(len(talks)); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	err = together(talks, func(i int, t *Talk) error {
		first := 0
		if t.Early {
			first = 1
		} else if err := open(i, t); err != nil {
			return err
		}
		if t.Greet > 0 {
			if err := RecvAll(fds[i], make([]byte, len(hello))); err != nil {
				return err
			}
		}
		if t.overlapping() {
			if err := t.mingle(fds[i], &sides[i], true); err != nil {
				return err
			}
			first = t.Turns
		}
		if t.TLS != 0 {
			if err := t.askTLS(fds[i], &sides[i]); err != nil {
				return err
			}
			first = t.Turns
		}
		for n := first; n < t.Turns; n++ {
			if n > 0 {
				rest(&sides[i].Gap, t.Gap)
			}
			if n == 1 && t.First {
				if err := RecvAll(fds[i], make([]byte, len(hello))); err != nil {
					return err
				}
			}
			if err := t.ask(fds[i], &sides[i]); err != nil {
				return err
			}
		}
		err := errors.Join(t.figures(fds[i], &sides[i]), Close(fds[i]))
		sides[i].Whole = int64(time.Since(begun[i]))
		return err
	})
	if err != nil {
		return err
	}
	return c.Report(sides)
}

// open connects the client.
func (t *Talk) open(s *TalkSide) (fd int, err error) {
	sa, err := t.Network.Sockaddr(t.Addr)
	if err != nil {
		return -1, err
	}
	if fd, err = Socket(t.Network); err != nil {
		return -1, err
	}
	if t.RecvBuf > 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, t.RecvBuf); err != nil {
			return -1, err
		}
	}
	if err := timed(&s.Connect, func() error { return connect(fd, sa) }); err != nil {
		return -1, err
	}
	err = t.handshake(fd, s)
	if !t.Nagle {
		err = errors.Join(err, nodelay(t.Network, fd))
	}
	return fd, err
}

// ask makes one turn of the client.
func (t *Talk) ask(fd int, s *TalkSide) error {
	from := time.Now()
	ask := t.Ask
	if t.Nagle {
		if err := SendAll(fd, make([]byte, ask/2)); err != nil {
			return err
		}
		ask -= ask / 2
	}
	if err := SendAll(fd, make([]byte, ask)); err != nil {
		return err
	}
	if t.Half {
		if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
			return err
		}
	}
	rest(&s.Slow, t.Wait)
	buf := make([]byte, 64<<10)
	for left := t.Answer / t.Chunks * t.Chunks; left > 0; {
		n, err := recv(fd, buf[:min(left, len(buf))], 0)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		left -= n
		rest(&s.Slow, t.Slow)
	}
	s.Turns = append(s.Turns, int64(time.Since(from)))
	return nil
}

// nodelay switches Nagle's algorithm off, if the kernel allows it.
func nodelay(n Network, fd int) error {
	if !n.tcp() {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// readable waits until there is something to read or to accept.
func readable(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// talkWay is how a server reads and sends.
type talkWay struct {
	k    caller
	in   [2]int // a pipe that requests are spliced into; 0: they are read
	file int    // that answers are sent from; 0: they are written
	buf  []byte

	plain bool // it is read
}

// recvFull fills b with what there is, as it comes.
func recvFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := recv(fd, b, 0)
		if err != nil {
			return fmt.Errorf("recv: %w", err)
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}

func newTalkWay(t *Talk, k caller) (*talkWay, error) {
	w := &talkWay{k: k, buf: make([]byte, max(t.Ask, t.Answer)), plain: t.Via == "" || t.Via == "sendfile" || t.Via == "poll"}
	switch t.Via {
	case "", "uring", "poll":
	case "splice":
		if err := unix.Pipe2(w.in[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
	case "sendfile":
		fd, err := unix.MemfdCreate("answer", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, err
		}
		if w.file = fd; unix.Ftruncate(fd, int64(t.Answer)) != nil {
			return nil, errors.New("no room for the answer")
		}
	default:
		return nil, fmt.Errorf("no way is called %q", t.Via)
	}
	return w, nil
}

func (w *talkWay) read(fd, n int) error {
	if w.in[0] == 0 && !w.plain {
		return w.k.recvAll(fd, w.buf[:n])
	}
	if w.plain {
		return recvFull(fd, w.buf[:n])
	}
	for n > 0 {
		moved, err := unix.Splice(fd, nil, w.in[1], nil, n, 0)
		if err != nil {
			return fmt.Errorf("splice: %w", err)
		}
		if moved == 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := unix.Read(w.in[0], w.buf[:moved]); err != nil {
			return err
		}
		n -= int(moved)
	}
	return nil
}

func (w *talkWay) send(fd, n int) error {
	if w.file == 0 {
		return w.k.sendAll(fd, w.buf[:n])
	}
	var off int64
	for off < int64(n) {
		if _, err := unix.Sendfile(fd, w.file, &off, n-int(off)); err != nil {
			return fmt.Errorf("sendfile: %w", err)
		}
	}
	return nil
}

func (w *talkWay) close() {
	for _, fd := range []int{w.in[0], w.in[1], w.file} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}
