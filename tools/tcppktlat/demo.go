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

// rounds are how many packets come before each read, and how long the reader then waits.
var rounds = []struct {
	packets int
	wait    time.Duration
}{{1, 0}, {1, 5 * time.Millisecond}, {3, 20 * time.Millisecond}, {7, time.Millisecond}, {1, 100 * time.Millisecond}}

// size is that of a packet: large enough that the kernel does not put two into one buffer.
const size = 5000

// A read is what the stopwatch says of the packets that it took: how long the first of
// them waited at least and at most.
type read struct {
	Packets     int
	Least, Most int64
}

// reading is both ends of a connection. Each packet is there before the next is sent.
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

// connected is a connection of a child: the end that writes, and the one that reads. It returns when the
// child is to begin.
func connected(c *lab.Child, network lab.Network) (w, r int, err error) {
	w, r, port, err := pair(network)
	if err != nil {
		return 0, 0, err
	}
	return w, r, errors.Join(c.Report(port), c.Await("go"))
}

// readLate sends packets, each when the one before is there, calls meanwhile, and reads what is left of them
// then.
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

// pair is a connection over loopback: the end that writes, the end that reads and was
// accepted, and its port.
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

// queued waits until so many bytes can be read.
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

// run has it read, and end.
func (r *reader) run() error { return errors.Join(r.Call("go", &r.reads), r.Wait()) }

// watched is a reader that has run, and what the tool showed of it.
func watched(x *trial.Trial, body string, arg any, flags ...string) (*reader, []*row.Row, error) {
	r, err := startReader(x.World, body, arg)
	if err != nil {
		return nil, nil, err
	}
	rows, err := x.Rows(r.run, flags...)
	return r, rows, err
}

// late: each packet of each read has a row or is in one, with the time that the stopwatch
// says. A read copies each packet by itself.
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

// compare goes through the rows in their order.
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
