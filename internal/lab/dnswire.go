// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// DNSWire is a process that writes given bytes to a name server.
type DNSWire struct {
	Network string   // udp or tcp
	Server  string   // address and port
	Writes  [][]byte // each is a datagram, or a write to the connection
	Pause   time.Duration
	Answers []uint16 // numbers of the queries whose answers it waits for
	Nagle   bool     // TCP: small writes wait for the acknowledgement of earlier ones
}

const bodyDNSWire = "dnswire"

// StartDNSWire starts the process. Call "go" gives the port that it used.
func StartDNSWire(w *World, host, comm string, d DNSWire) (*Proc, error) {
	return w.StartReady(host, comm, bodyDNSWire, d)
}

func dnsWireBody(c *Child) error {
	var d DNSWire
	if err := c.Arg(&d); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	dialer := net.Dialer{}
	dialer.SetMultipathTCP(false)
	conn, err := dialer.Dial(d.Network, d.Server)
	if err != nil {
		return err
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetNoDelay(!d.Nagle)
	}
	for _, b := range d.Writes {
		if _, err := conn.Write(b); err != nil {
			return err
		}
		time.Sleep(d.Pause)
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	missing := map[uint16]bool{}
	for _, id := range d.Answers {
		missing[id] = true
	}
	for len(missing) > 0 {
		id, err := readDNS(conn)
		if err != nil {
			return fmt.Errorf("no answer to %v: %w", missing, err)
		}
		delete(missing, id)
	}
	_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	return c.Report(port)
}

// readDNS reads one message and returns its number.
func readDNS(conn net.Conn) (id uint16, err error) {
	b := make([]byte, 65535)
	if _, ok := conn.(*net.UDPConn); ok {
		_, err = conn.Read(b)
	} else if _, err = io.ReadFull(conn, b[:2]); err == nil {
		_, err = io.ReadFull(conn, b[:binary.BigEndian.Uint16(b)])
	}
	return binary.BigEndian.Uint16(b), err
}

// DNSQuery is a query for the addresses of a name.
func DNSQuery(id uint16, name string) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	b = append(b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

// DNSOverTCP is a message with its length before it.
func DNSOverTCP(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}
