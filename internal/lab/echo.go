// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Echo is ICMP echo requests to one address. Each is sent when the previous one
// was answered or has timed out.
type Echo struct {
	Network Network // Ping4 or Ping6 (datagram sockets), Raw4 or Raw6
	Addr    netip.Addr
	Count   int
	Ident   uint16        // of raw sockets; the kernel chooses that of others
	Wait    time.Duration // for a reply; 0 is a minute, less for peers that will not answer
}

// EchoResult is the sender's report.
type EchoResult struct {
	Ident uint16
	NS    []int64 // from before the send to after the receive; -1 if no reply came
}

// Echoes is a process that is ready to send.
type Echoes struct {
	*Proc
	Echo Echo
}

const bodyEcho = "echo"

func init() { Register(bodyEcho, echoBody) }

// StartEcho starts a process in a host that has its socket open.
func StartEcho(w *World, host, comm string, e Echo) (*Echoes, error) {
	setDefault(&e.Wait, time.Minute)
	if e.Network == Ping4 || e.Network == Ping6 {
		// Datagram sockets of ICMP are forbidden to all groups at first.
		if err := w.Sysctl(host, "net.ipv4.ping_group_range", "0 0"); err != nil {
			return nil, err
		}
	}
	p, err := w.StartReady(host, comm, bodyEcho, e)
	return &Echoes{p, e}, err
}

// Run sends all of them and waits for the process to end.
func (x *Echoes) Run() (r EchoResult, err error) {
	if err := x.Call("go", &r); err != nil {
		return r, err
	}
	return r, x.Wait()
}

func echoBody(c *Child) error {
	var e Echo
	if err := c.Arg(&e); err != nil {
		return err
	}
	fd, err := Connect(e.Network, e.Network.At(e.Addr, 0))
	if err != nil {
		return err
	}
	defer Close(fd)
	tv := unix.NsecToTimeval(int64(e.Wait))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	if e.Network == Ping4 || e.Network == Ping6 {
		port, err := LocalPort(fd)
		if err != nil {
			return err
		}
		e.Ident = uint16(port)
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	r := EchoResult{Ident: e.Ident}
	for seq := 1; seq <= e.Count; seq++ {
		ns, err := e.once(fd, uint16(seq))
		if err != nil {
			return fmt.Errorf("echo %d: %w", seq, err)
		}
		r.NS = append(r.NS, ns)
	}
	return c.Report(r)
}

// once sends a request and waits for its reply.
func (e Echo) once(fd int, seq uint16) (int64, error) {
	request, reply := byte(8), byte(0)
	if e.Network.Family() == unix.AF_INET6 {
		request, reply = 128, 129
	}
	msg := make([]byte, 64)
	msg[0] = request
	binary.BigEndian.PutUint16(msg[4:], e.Ident)
	binary.BigEndian.PutUint16(msg[6:], seq)
	// The kernel fills in the checksum for ICMPv6 sockets and for ICMP
	// datagram sockets.
	if e.Network == Raw4 {
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	start := time.Now()
	if _, err := unix.Write(fd, msg); err != nil {
		return 0, err
	}
	buf := make([]byte, 1500)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return -1, nil
		} else if err != nil {
			return 0, err
		}
		got := buf[:n]
		if e.Network == Raw4 && n >= 20 {
			got = got[int(got[0]&15)*4:] // the IP header comes along
		}
		if len(got) >= 8 && got[0] == reply && binary.BigEndian.Uint16(got[4:]) == e.Ident && binary.BigEndian.Uint16(got[6:]) == seq {
			return int64(time.Since(start)), nil
		}
	}
}

// checksum is that of Internet headers; the field itself is 0.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// EchoReply is an answer of ICMP, from its header on.
func EchoReply(ident, seq uint16) []byte {
	msg := make([]byte, 64)
	binary.BigEndian.PutUint16(msg[4:], ident)
	binary.BigEndian.PutUint16(msg[6:], seq)
	binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	return msg
}
