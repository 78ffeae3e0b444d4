// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seine/internal/lab"
)

// The processes of a host.
const (
	bodyServe = "fleet-serve"
	bodyVisit = "fleet-visit"
	bodyQuote = "fleet-quote"
)

func init() {
	lab.Register(bodyServe, serve)
	lab.Register(bodyVisit, visit)
	lab.Register(bodyQuote, quote)
}

// Sizes of messages. A request has the time that the server must take for it.
const (
	asked    = 100
	answered = 1000
)

// serve is a server. Its argument is its address. A command with a duration makes each later answer
// take that much longer: the fault.
func serve(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	var fault atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, &fault)
		}
	}()
	if err := c.Report(true); err != nil {
		return err
	}
	for {
		d, err := time.ParseDuration(c.Next())
		if err != nil {
			return err
		}
		fault.Store(int64(d))
	}
}

// answer serves one connection.
func answer(conn net.Conn, fault *atomic.Int64) {
	defer conn.Close()
	buf := make([]byte, answered)
	for {
		if _, err := io.ReadFull(conn, buf[:asked]); err != nil {
			return
		}
		time.Sleep(time.Duration(binary.BigEndian.Uint64(buf)) + time.Duration(fault.Load()))
		if _, err := conn.Write(buf); err != nil {
			return
		}
	}
}

// turn sends one request, reads its answer, and returns the time that took.
func turn(conn net.Conn, wait time.Duration) (time.Duration, error) {
	buf := make([]byte, answered)
	binary.BigEndian.PutUint64(buf, uint64(wait))
	from := time.Now()
	if _, err := conn.Write(buf[:asked]); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, buf)
	return time.Since(from), err
}

// visited is the result of a visitor.
type visited struct {
	Sessions int // sessions that have ended
	Turns    int
}

// Times of a visitor's requests. Most answers take a short time, some take longer.
const (
	visitEvery  = 100 * time.Millisecond
	usual, more = 2 * time.Millisecond, 20 * time.Millisecond
	moreEach    = 20 // turns
	sessionEach = 5
)

// visit is a client. It sends requests on a connection that it keeps, and some on new connections,
// until the command stop.
func visit(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	kept, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	var done visited
	for i := 0; !c.Told(); i++ {
		wait := usual
		if i%moreEach == 0 {
			wait = more
		}
		if _, err := turn(kept, wait); err != nil {
			return err
		}
		done.Turns++
		if i%sessionEach == 0 {
			if err := session(addr); err != nil {
				return err
			}
			done.Sessions++
			done.Turns++
		}
		time.Sleep(visitEvery)
	}
	kept.Close()
	done.Sessions++
	return c.Report(done)
}

// session is a connection with one turn.
func session(addr string) error {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = turn(conn, usual)
	return err
}

// A load is a number of turns with known times from Least to Most. Each time is longer than the one
// before by the same factor. The order is mixed.
type load struct {
	Addr        string
	Turns       int
	Conns       int
	Least, Most time.Duration
}

// quote is a client that makes a load at a command, and reports the time of each turn.
func quote(c *lab.Child) error {
	var l load
	if err := errors.Join(c.Arg(&l), c.Await("go")); err != nil {
		return err
	}
	all := make([]int64, l.Turns)
	errs := make([]error, l.Conns)
	var wait sync.WaitGroup
	for n := range l.Conns {
		wait.Go(func() { errs[n] = l.ask(all, n) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.Report(all)
}

func (l *load) ask(all []int64, first int) error {
	conn, err := net.Dial("tcp4", l.Addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	factor := math.Log(float64(l.Most) / float64(l.Least))
	for i := first; i < l.Turns; i += l.Conns {
		step := i * 181 % l.Turns // Turns is prime
		took, err := turn(conn, time.Duration(float64(l.Least)*math.Exp(factor*float64(step)/float64(l.Turns-1))))
		if err != nil {
			return err
		}
		all[i] = int64(took)
	}
	return nil
}

// quantile is the value below which the share q of the values lies.
func quantile(all []int64, q float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	return float64(all[min(int(math.Ceil(q*float64(len(all))))-1, len(all)-1)])
}
