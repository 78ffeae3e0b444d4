// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// blocking is a descriptor as a net.Conn for crypto/tls, with blocking reads
// and writes.
type blocking struct {
	net.Conn // nothing else of it is called
	fd       int
}

func (b blocking) Read(p []byte) (int, error) {
	n, err := recv(b.fd, p, 0)
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (b blocking) Write(p []byte) (int, error)    { return len(p), SendAll(b.fd, p) }
func (blocking) Close() error                     { return nil } // its owner does
func (blocking) SetWriteDeadline(time.Time) error { return nil }

// serveTLS runs the server's side of a talk in TLS. Its last message answers the
// client's close_notify.
func (t *Talk) serveTLS(fd int, s *TalkSide) error {
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	c := tls.Server(blocking{fd: fd}, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: t.TLS, MaxVersion: t.TLS})
	ask, answer := make([]byte, t.Ask), make([]byte, t.Answer)
	for range t.Turns {
		if _, err := io.ReadFull(c, ask); err != nil { // with the handshake before the first
			return fmt.Errorf("TLS: %w", err)
		}
		rest(&s.Think, t.Think)
		if _, err := c.Write(answer); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	if _, err := c.Read(ask); !errors.Is(err, io.EOF) {
		return fmt.Errorf("TLS: the client's end: %w", err)
	}
	return errors.Join(t.figures(fd, s), c.Close())
}

// askTLS runs the client's side.
func (t *Talk) askTLS(fd int, s *TalkSide) error {
	c := tls.Client(blocking{fd: fd}, &tls.Config{InsecureSkipVerify: true, MinVersion: t.TLS, MaxVersion: t.TLS})
	ask, answer := make([]byte, t.Ask), make([]byte, t.Answer)
	for n := range t.Turns {
		if n > 0 {
			rest(&s.Gap, t.Gap)
		}
		from := time.Now()
		if _, err := c.Write(ask); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		s.Turns = append(s.Turns, int64(time.Since(from)))
	}
	// It closes when the server's last message has arrived, and does not
	// read it.
	return errors.Join(c.Close(), readable(fd))
}
