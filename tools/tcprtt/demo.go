// SPDX-License-Identifier: Apache-2.0

package tcprtt

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w, lab.Sessions{Count: 7, Send: 1000, Recv: 20000, ClientComm: "browser", ServerComm: "store"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Run: trial.Undisturbed(exchange(lab.TCP4, false))},
	{Name: "ipv6", Run: trial.Undisturbed(exchange(lab.TCP6, false))},
}

// exchanges is the number of requests with an answer.
const exchanges = 11

// seen is one end's values of TCP_INFO: before the first exchange and after
// each.
type seen struct {
	Port     int
	Smoothed []uint32
	Shortest []uint32
}

const body = "tcprtt-exchanges"

// exchanging is both ends of a connection. Each answer is later than the last, so the
// times differ.
func exchanging(c *lab.Child) error {
	var network lab.Network
	if err := c.Arg(&network); err != nil {
		return err
	}
	ip := netip.MustParseAddr("127.0.0.1")
	if network == lab.TCP6 {
		ip = netip.IPv6Loopback()
	}
	l, port, err := lab.Listen(network, netip.AddrPortFrom(ip, 0).String(), 1)
	if err != nil {
		return err
	}
	defer lab.Close(l)
	if err := c.Await("go"); err != nil {
		return err
	}
	fd, err := lab.Connect(network, netip.AddrPortFrom(ip, uint16(port)).String())
	if err != nil {
		return err
	}
	peer, err := lab.Accept(l)
	if err != nil {
		return err
	}
	defer lab.Close(peer)
	own, err := lab.LocalPort(fd)
	if err != nil {
		return err
	}
	ends := []*seen{{Port: own}, {Port: port}}
	look := func() error { return errors.Join(ends[0].look(fd), ends[1].look(peer)) }
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetsockoptInt(peer, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), look(),
	)
	for i := 0; i < exchanges && err == nil; i++ {
		b := []byte{1}
		err = errors.Join(lab.SendAll(fd, b), lab.RecvAll(peer, b))
		time.Sleep(time.Duration(i) * time.Millisecond)
		// The answer to a request is acknowledged at once; otherwise
		// the next look would wait.
		err = errors.Join(err, lab.SendAll(peer, b), lab.RecvAll(fd, b), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1))
		if err == nil {
			err = look()
		}
	}
	// By a reset: no segment comes after it.
	if err = errors.Join(err, lab.Close(fd)); err != nil {
		return err
	}
	if err := lab.RecvEnd(peer); !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("the end: %v, want a reset", err)
	}
	return c.Report(ends)
}

// look waits until everything that was sent is acknowledged: no time is measured from then on.
func (s *seen) look(fd int) error {
	for {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		if i.Unacked == 0 && i.State == 1 /* established */ {
			s.Smoothed, s.Shortest = append(s.Smoothed, i.Rtt), append(s.Shortest, i.Min_rtt)
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// exchange: the time at each segment is the one that TCP_INFO had after the
// segment before.
func exchange(network lab.Network, minimum bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		flags := []string{"--by=pid,comm,lport"}
		if minimum {
			flags = append(flags, "--minimum")
		}
		p, err := x.World.Start("", "talker", body, network)
		if err != nil {
			return err
		}
		var ends []*seen
		var counted lab.Counters
		rows, err := x.Rows(func() error {
			before, err := x.World.Counters("")
			if err != nil {
				return err
			}
			if err := errors.Join(p.Call("go", &ends), x.World.Quiet()); err != nil {
				return err
			}
			after, err := x.World.Counters("")
			counted = after.Since(before)
			return err
		}, flags...)
		if err != nil {
			return err
		}
		if len(rows) != len(ends) {
			return fmt.Errorf("%d rows, want one of each end", len(rows))
		}
		var all uint64
		for _, e := range ends {
			times := e.Smoothed
			if minimum {
				times = e.Shortest
			}
			i := slices.IndexFunc(rows, func(r *row.Row) bool { return r.Get("lport").N == uint64(e.Port) })
			if i < 0 {
				return fmt.Errorf("no row of port %d", e.Port)
			}
			x.Want(rows[i], "pid", p.PID)
			x.Want(rows[i], "comm", "talker")
			h := rows[i].Get("rtt_us").Ref.(*kern.Hist)
			compare(x, e.Port, h, times)
			all += h.Count
		}
		// All segments except the SYN, its answer, and the
		// acknowledgement of that.
		want := counted["TcpInSegs"] - counted["TcpExtTCPBacklogCoalesce"] - 3
		x.Fail(trial.Fewer(int(all), int(want), "%d segments, want %d", all, want))
		x.NoneLost(tool.LossOwner)
		return nil
	}
}

// compare: the histogram has only times of TCP_INFO, and all of them except perhaps the
// last, after which no segment need come.
func compare(x *trial.Trial, port int, got *kern.Hist, told []uint32) {
	slot := func(us uint32) int {
		var h kern.Hist
		h.Add(uint64(us))
		return slices.Index(h.Slots[:], 1)
	}
	can := map[int]bool{}
	for i, us := range told {
		can[slot(us)] = true
		if i < len(told)-1 && got.Slots[slot(us)] == 0 {
			x.Errorf("port %d: no segment at %d us, of %v: %v", port, us, told, got.Buckets())
		}
	}
	for i, n := range got.Slots {
		if n > 0 && !can[i] {
			x.Errorf("port %d: %d segments at times that nobody was told, of %v: %v", port, n, told, got.Buckets())
		}
	}
	for _, us := range []uint64{got.Min, got.Max} {
		if !slices.Contains(told, uint32(us)) {
			x.Errorf("port %d: the shortest or longest is %d, not one of %v", port, us, told)
		}
	}
}

func init() {
	lab.Register(body, exchanging)
}
