// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

const (
	waitingBody = "sockets-waiting"
	dropped     = 333 // bytes of a segment that never arrives
)

// A wait began between Before and After. Of is the event that the socket waits for.
type wait struct {
	Of            string
	Inode         uint64
	Before, After int64
}

// waiter opens sockets that wait.
type waiter struct{ waits []wait }

func (w *waiter) begin() wait { return wait{Before: int64(kern.MonoNow())} }

func (w *waiter) began(t wait, of string, fd int) (err error) {
	if t.After == 0 {
		t.After = int64(kern.MonoNow())
	}
	t.Of = of
	t.Inode, err = inode(fd)
	w.waits = append(w.waits, t)
	return err
}

func inode(fd int) (uint64, error) {
	var s unix.Stat_t
	err := unix.Fstat(fd, &s)
	return s.Ino, err
}

// waiting opens sockets that wait. Each began at another time.
func waiting(c *lab.Child) error {
	var w waiter
	if err := errors.Join(w.accepts(), w.connects()); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 5)
	if err != nil {
		return err
	}
	client, _, err := pairAt(l, port)
	if err := errors.Join(err, w.room(), w.broken(), w.reader()); err != nil {
		return err
	}
	if err := errors.Join(c.Report(port), c.Await("send")); err != nil {
		return err
	}
	t := w.begin()
	if err := errors.Join(lab.SendAll(client, make([]byte, dropped)), w.began(t, "an acknowledgement", client)); err != nil {
		return err
	}
	if err := errors.Join(c.Report(w.waits), c.Await("look")); err != nil {
		return err
	}
	info, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err := errors.Join(err, c.Report(info.Unacked > 0)); err != nil {
		return err
	}
	return c.Await("end")
}

func pairAt(l, port int) (client, server int, err error) {
	if client, err = lab.Connect(lab.TCP4, fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return 0, 0, err
	}
	server, err = lab.Accept(l)
	return client, server, err
}

// accepts: two connections wait at a listener. Its wait is that of the first one.
func (w *waiter) accepts() error {
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 5)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	t := w.begin()
	_, err = lab.Connect(lab.TCP4, at)
	if err := errors.Join(err, w.began(t, "an accept", l)); err != nil {
		return err
	}
	if err := tick(); err != nil {
		return err
	}
	_, err = lab.Connect(lab.TCP4, at)
	return err
}

// tick returns after some jiffies, so that times before and after it differ.
func tick() error {
	from := kern.MonoNow()
	return lab.Until("some jiffies have passed", func() (bool, error) {
		return time.Duration(kern.MonoNow()-from) > 10*kern.Jiffy(), nil
	})
}

// connects: a connect to a listener whose backlog is full gets no answer. It sends more than
// one SYN.
func (w *waiter) connects() error {
	l, port, err := lab.Listen(lab.TCP6, "[::1]:0", 0)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("[::1]:%d", port)
	t := w.begin()
	_, err = lab.Connect(lab.TCP6, at)
	if err := errors.Join(err, w.began(t, "an accept", l)); err != nil {
		return err
	}
	t = w.begin()
	fd, err := connecting(lab.TCP6, at)
	if err := errors.Join(err, w.began(t, "an answer to its SYN", fd)); err != nil {
		return err
	}
	return lab.Until("a second SYN is sent", func() (bool, error) {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err == nil && i.Total_retrans > 0, err
	})
}

// room: the peer's window is closed, and the peer answers window probes.
func (w *waiter) room() error { return w.full(true) }

// broken: the peer shrinks its window. It drops the segments that arrive, and each of their
// retransmissions. Newer kernels answer each with an acknowledgement.
func (w *waiter) broken() error { return w.full(false) }

func (w *waiter) full(small bool) error {
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 5)
	if err != nil {
		return err
	}
	limit := func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) }
	if small {
		err = limit(l)
	}
	client, server, e := pairAt(l, port)
	if err := errors.Join(err, e, limit(server), unix.SetNonblock(client, true)); err != nil {
		return err
	}
	t := w.begin()
	for err == nil {
		_, err = unix.Write(client, make([]byte, 16<<10))
	}
	if !errors.Is(err, unix.EAGAIN) {
		return err
	}
	// The last acknowledgement of data arrives when the peer has no room left.
	var last unix.TCPInfo
	err = lab.Until("the peer has acknowledged all that it had room for", func() (bool, error) {
		i, err := unix.GetsockoptTCPInfo(client, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return false, err
		}
		if i.Bytes_acked != last.Bytes_acked {
			t.After, last = int64(kern.MonoNow()), *i
		}
		return i.Segs_in > last.Segs_in || i.Total_retrans > last.Total_retrans, nil // some kernels drop without an answer
	})
	return errors.Join(err, w.began(t, "room", client), w.began(t, "a reader", server))
}

// reader: data have arrived, and nobody reads them.
func (w *waiter) reader() error {
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 5)
	if err != nil {
		return err
	}
	client, server, err := pairAt(l, port)
	if err != nil {
		return err
	}
	t := w.begin()
	return errors.Join(lab.SendAll(client, make([]byte, unread)), acknowledged(client), w.began(t, "a reader", server))
}

// waited: waiting_ms is the time since a socket began to wait.
func waited(x *trial.Trial) error {
	p, err := x.World.Start("", comm, waitingBody, nil)
	if err != nil {
		return err
	}
	var port int
	if err := p.Expect(&port); err != nil {
		return err
	}
	losing, err := lab.StartLoss(lab.Loss{To: port, Data: dropped, Count: 1 << 20})
	if err != nil {
		return err
	}
	defer losing.Close()
	var all []wait
	if err := errors.Join(p.Call("send", &all), x.Attach()); err != nil {
		return err
	}
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	var still bool
	if err := p.Call("look", &still); err != nil {
		return err
	}
	if !still {
		return trial.Fewer(0, 1, "what was to be lost has arrived")
	}
	want := map[uint64]wait{}
	for _, w := range all {
		want[w.Inode] = w
	}
	for _, r := range rows {
		if r.Get("pid").N != uint64(p.PID) || trial.Value(r.Get("proto")) != "tcp" {
			continue
		}
		w, ok := want[r.Get("inode").N]
		if !ok {
			x.Want(r, "waiting_ms", "-")
			continue
		}
		delete(want, w.Inode)
		read := int64(kern.MonoNow()) - (time.Now().UnixNano() - int64(r.Get("time").N)) // on the monotonic clock
		got, jiffy := time.Duration(r.Get("waiting_ms").N)*time.Millisecond, 2*kern.Jiffy()+time.Millisecond
		if least, most := time.Duration(at.From-w.After)-jiffy, time.Duration(min(at.To, read)-w.Before)+jiffy; trial.Value(r.Get("waiting_ms")) == "-" || got < least || got > most {
			x.Errorf("waits for %s since %v, want %v to %v, in %s", w.Of, got, least, most, trial.Dump(r))
		}
	}
	for w := range maps.Values(want) {
		x.Errorf("no row of the socket that waits for %s", w.Of)
	}
	x.NoneLost()
	return nil
}
