// SPDX-License-Identifier: Apache-2.0

package tcppktlat

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
	Run: func(w *lab.World) error {
		r, err := startReader(w, body, lab.TCP4)
		if err != nil {
			return err
		}
		return r.run()
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "ipv4", Run: trial.Undisturbed(late(lab.TCP4))},
	{Name: "ipv6", Run: trial.Undisturbed(late(lab.TCP6))},
}

const body = "tcppktlat-reads"

// rounds are the number of packets before each read, and the time that the reader then waits.
var rounds = []struct {
	packets int
	wait    time.Duration
}{{1, 0}, {1, 5 * time.Millisecond}, {3, 20 * time.Millisecond}, {7, time.Millisecond}, {1, 100 * time.Millisecond}}

// size is the size of a packet. It is large enough that the kernel does not put two into one skb.
const size = 5000

// A read is the number of packets that it took, and the least and most time that the first of
// them waited, by the process's own clock.
type read struct {
	Packets     int
	Least, Most int64
}

// reading is a process with both ends of a connection. Each packet arrives before it sends the next.
func reading(c *lab.Child) error {
	var network lab.Network
	if err := c.Arg(&network); err != nil {
		return err
	}
	w, r, err := connected(c, network)
	if err != nil {
		return err
	}
	defer lab.Close(w)
	defer lab.Close(r)
	var reads []read
	for _, round := range rounds {
		one, err := readLate(w, r, round.packets, size, func() error { time.Sleep(round.wait); return nil })
		if err != nil {
			return err
		}
		reads = append(reads, one)
	}
	return c.Report(reads)
}

// connected opens a connection in a child. It returns the writing end and the reading end when the parent
// says go.
func connected(c *lab.Child, network lab.Network) (w, r int, err error) {
	w, r, port, err := pair(network)
	if err != nil {
		return 0, 0, err
	}
	return w, r, errors.Join(c.Report(port), c.Await("go"))
}

// readLate sends packets, each after the one before has arrived. It calls meanwhile, and then reads the data
// that is left.
func readLate(w, r, packets, size int, meanwhile func() error) (read, error) {
	one := read{Packets: packets}
	sent, there := int64(0), int64(0) // the first packet
	for i := range packets {
		at := int64(kern.MonoNow())
		if err := errors.Join(lab.SendAll(w, make([]byte, size)), queued(r, (i+1)*size)); err != nil {
			return one, err
		}
		if i == 0 {
			sent, there = at, int64(kern.MonoNow())
		}
	}
	if err := meanwhile(); err != nil {
		return one, err
	}
	left, err := unix.IoctlGetInt(r, unix.TIOCINQ)
	if err != nil {
		return one, err
	}
	one.Least = int64(kern.MonoNow()) - there
	err = lab.RecvAll(r, make([]byte, left))
	one.Most = int64(kern.MonoNow()) - sent
	return one, err
}

// pair opens a connection over loopback. It returns the writing end, the reading end, which was
// accepted, and the port of that.
func pair(network lab.Network) (w, r, port int, err error) {
	ip := netip.MustParseAddr("127.0.0.1")
	if network == lab.TCP6 {
		ip = netip.IPv6Loopback()
	}
	l, port, err := lab.Listen(network, netip.AddrPortFrom(ip, 0).String(), 1)
	if err != nil {
		return 0, 0, 0, err
	}
	defer lab.Close(l)
	if w, err = lab.Connect(network, netip.AddrPortFrom(ip, uint16(port)).String()); err != nil {
		return 0, 0, 0, err
	}
	if r, err = lab.Accept(l); err != nil {
		return 0, 0, 0, err
	}
	return w, r, port, unix.SetsockoptInt(w, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// queued waits until the given number of bytes can be read.
func queued(fd, bytes int) error {
	for {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil || n >= bytes {
			return err
		}
	}
}

// A reader is a process that reads late.
type reader struct {
	*lab.Proc
	port  int
	reads []read
}

func startReader(w *lab.World, body string, arg any) (*reader, error) {
	p, err := w.Start("", "reader", body, arg)
	if err != nil {
		return nil, err
	}
	r := &reader{Proc: p}
	return r, p.Expect(&r.port)
}

// run lets the process read, and waits for its end.
func (r *reader) run() error { return errors.Join(r.Call("go", &r.reads), r.Wait()) }

// watched runs a reader beside the tool. It returns the reader and the tool's rows.
func watched(x *trial.Trial, body string, arg any, flags ...string) (*reader, []*row.Row, error) {
	r, err := startReader(x.World, body, arg)
	if err != nil {
		return nil, nil, err
	}
	rows, err := x.Rows(r.run, flags...)
	return r, rows, err
}

// late: a row covers each packet of each read, with the time that the process measured. A read
// copies packet by packet, so it may have several rows.
func late(network lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		r, rows, err := watched(x, body, network, "--events")
		if err != nil {
			return err
		}
		x.NoneLost()
		return compare(x, rows, r)
	}
}

// compare checks the rows against the reads, in their order.
func compare(x *trial.Trial, rows []*row.Row, r *reader) error {
	var sum, want int
	for _, one := range r.reads {
		want += one.Packets
	}
	for _, one := range rows {
		x.Want(one, "pid", r.PID)
		x.Want(one, "comm", "reader")
		x.Want(one, "lport", r.port)
		sum += int(one.Get("packets").N)
	}
	if err := trial.Fewer(sum, want, "%d packets in %d rows, want %d", sum, len(rows), want); err != nil {
		return err
	}
	for i, one := range r.reads {
		for n := 0; n < one.Packets; {
			if len(rows) == 0 {
				return fmt.Errorf("a row has packets of two reads")
			}
			ns := int64(rows[0].Get("latency_us").N)
			if ns > one.Most || n == 0 && ns < one.Least {
				x.Errorf("read %d: %v, want %v to %v by the stopwatch", i, time.Duration(ns), time.Duration(one.Least), time.Duration(one.Most))
			}
			n += int(rows[0].Get("packets").N)
			rows = rows[1:]
		}
	}
	return nil
}

func init() { lab.Register(body, reading) }
