// SPDX-License-Identifier: Apache-2.0

package tcpcong

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		for _, lost := range []int{1, 3} {
			p, err := w.Start("client", "backup", body, opened{Network: lab.TCP4, Behind: many})
			if err != nil {
				return err
			}
			if _, err := lose(p, lost); err != nil {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Run: trial.Undisturbed(times(lab.TCP4))},
	{Name: "ipv6", Run: trial.Undisturbed(times(lab.TCP6))},
}

const body = "tcpcong-connection"

// States of the kernel, as TCP_INFO has them.
const (
	caOpen = iota
	caDisorder
	caCWR
	caRecovery
	caLoss
	caStates
)

var stateIDs = [caStates]string{"open_ms", "disorder_ms", "cwr_ms", "recovery_ms", "loss_ms"}

// span is the bounds of a duration.
type span struct{ Least, Most int64 }

func (s span) holds(ns uint64) bool { return int64(ns) >= s.Least && int64(ns) <= s.Most }

func (s span) String() string {
	return fmt.Sprintf("%v to %v", time.Duration(s.Least), time.Duration(s.Most))
}

// seen is the times of one connection by TCP_INFO and the process's clock.
type seen struct {
	Port  int // local port
	Wall  span
	State [caStates]span
}

// A look is a state that TCP_INFO returned between two times.
type look struct {
	before, after int64
	state         uint8
}

// Sizes of the writes. The first one is large, so that a Loss can tell its segment from the others.
const (
	large = 333
	small = 100
)

// opened describes a connection to make.
type opened struct {
	Network lab.Network
	Behind  int // segments after the first one
	Size    int // size of all segments; 0: large and small
}

// many segments after a gap are enough for TCP to assume a loss.
const many = 9

// connecting is a process with both ends of a connection. It reports its port before it
// sends, and ends when the connection is open again. The other process drops the first
// segment. The segments after it make the peer report the gap.
func connecting(c *lab.Child) error {
	var o opened
	if err := c.Arg(&o); err != nil {
		return err
	}
	network := o.Network
	ip := netip.MustParseAddr("127.0.0.1")
	if network == lab.TCP6 {
		ip = netip.IPv6Loopback()
	}
	l, port, err := lab.Listen(network, netip.AddrPortFrom(ip, 0).String(), 1)
	if err != nil {
		return err
	}
	defer lab.Close(l)
	if err := c.Report(port); err != nil {
		return err
	}
	if err := c.Await("connect"); err != nil {
		return err
	}
	var s seen
	s.Wall.Most = -int64(kern.MonoNow())
	fd, err := lab.Connect(network, netip.AddrPortFrom(ip, uint16(port)).String())
	if err != nil {
		return err
	}
	s.Wall.Least = -int64(kern.MonoNow())
	peer, err := lab.Accept(l)
	if err != nil {
		return err
	}
	defer lab.Close(peer)
	if s.Port, err = lab.LocalPort(fd); err != nil {
		return err
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), c.Report(s.Port),
	)
	if err != nil {
		return err
	}
	if err := c.Await("send"); err != nil {
		return err
	}
	looks, err := sendAll(fd, o)
	if err != nil {
		return err
	}
	s.Wall.Least += int64(kern.MonoNow())
	if err := lab.Close(fd); err != nil {
		return err
	}
	s.Wall.Most += int64(kern.MonoNow())
	for i := range s.State {
		s.State[i] = stay(looks, uint8(i))
	}
	return c.Report(s)
}

// sendAll sends, and reads the state until all data are acknowledged and the connection is open again.
func sendAll(fd int, o opened) (looks []look, err error) {
	looks = []look{{before: int64(kern.MonoNow()), after: int64(kern.MonoNow()), state: caOpen}}
	for i := range 1 + o.Behind {
		size := small
		if i == 0 {
			size = large
		}
		if o.Size > 0 {
			size = o.Size
		}
		if err := lab.SendAll(fd, make([]byte, size)); err != nil {
			return nil, err
		}
	}
	for {
		l := look{before: int64(kern.MonoNow())}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return nil, err
		}
		l.after, l.state = int64(kern.MonoNow()), info.Ca_state
		looks = append(looks, l)
		if info.Unacked == 0 && info.Notsent_bytes == 0 {
			if l.state == caOpen {
				return looks, nil
			}
			// Without SACK the connection is open again when the peer acknowledges later data.
			if err := lab.SendAll(fd, make([]byte, small)); err != nil {
				return nil, err
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// stay is the total time of the connection in a state, over all stays. Looks are closer
// than most stays are long. No look may have seen the shortest ones.
func stay(looks []look, state uint8) (s span) {
	for i := 0; i < len(looks); i++ {
		if looks[i].state != state {
			continue
		}
		first := i
		for i+1 < len(looks) && looks[i+1].state == state {
			i++
		}
		s.Least += max(0, looks[i].before-looks[first].after)
		s.Most += looks[min(i+1, len(looks)-1)].after - looks[max(first-1, 0)].before
	}
	if s.Most == 0 {
		for i := 1; i < len(looks); i++ { // a stay may have been between two looks
			if looks[i].state != looks[i-1].state {
				s.Most = max(s.Most, looks[i].after-looks[i-1].before)
			}
		}
	}
	return s
}

// lose lets the process connect and send. It drops the first segment and its retransmissions,
// as many as times in all.
func lose(p *lab.Proc, times int) (s seen, err error) {
	var port, own int
	if err := errors.Join(p.Expect(&port), p.Call("connect", &own)); err != nil {
		return s, err
	}
	if times == 0 {
		return s, errors.Join(p.Call("send", &s), p.Wait())
	}
	losing, err := lab.StartLoss(lab.Loss{To: port, Data: large, Count: times})
	if err != nil {
		return s, err
	}
	return s, errors.Join(p.Call("send", &s), losing.Close(), p.Wait())
}

// lostTimes: the segment, its fast retransmission, and the retransmission after the first
// timeout are lost. The retransmission after the second timeout arrives.
const lostTimes = 3

// times: the first segment is lost three times. So the connection is in recovery until the
// first timeout, and in loss until the second.
func times(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		p, err := x.World.Start("", "talker", body, opened{Network: network, Behind: many})
		if err != nil {
			return err
		}
		var s seen
		rows, err := x.Rows(func() (err error) {
			s, err = lose(p, lostTimes)
			return err
		}, "--interval=1m")
		if err != nil {
			return err
		}
		if err := trial.RowCount(len(rows), 1); err != nil {
			return err // the peer's end is open all the time and has no row
		}
		check(x, rows[0], p, s)
		x.NoneLost()
		return nil
	}
}

// check compares a row with the times of TCP_INFO and of the process's clock.
func check(x *trial.Trial, r *row.Row, p *lab.Proc, s seen) {
	x.Want(r, "pid", p.PID)
	x.Want(r, "comm", p.Comm)
	x.Want(r, "lport", s.Port)
	x.Want(r, "ca_state", "open")
	var wall uint64
	for i, id := range stateIDs {
		ns := r.Get(id).N
		wall += ns
		if i != caOpen && !s.State[i].holds(ns) {
			x.Errorf("%s is %v, and TCP_INFO says %v", id, time.Duration(ns), s.State[i])
		}
	}
	if !s.Wall.holds(wall) {
		x.Errorf("%v in all states, and the connection was there for %v", time.Duration(wall), s.Wall)
	}
	for _, i := range []int{caRecovery, caLoss} {
		if s.State[i].Least == 0 {
			x.Errorf("TCP_INFO never told of %s", stateIDs[i])
		}
	}
	want := 3
	if r.Get("disorder_ms").N > 0 {
		want++
	}
	x.Want(r, "changes", want)
	x.Want(r, "troubled_ms", wall-r.Get("open_ms").N)
}

func init() { lab.Register(body, connecting) }
