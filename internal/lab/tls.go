// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// TLSSession is a ClientHello as the server or the client sees it.
type TLSSession struct {
	Name    string
	ALPN    []string
	Most    uint16 // the highest version
	Port    uint16 // of the client
	Piece   int    // bytes of each write of the client's; 0: all at once
	Preface string // that the client sends first, and the server reads
}

const (
	bodyTLSServer = "tlsserver"
	bodyTLSClient = "tlsclient"
)

func init() {
	Register(bodyTLSServer, tlsServerBody)
	Register(bodyTLSClient, tlsClientBody)
}

// TLS is a server of TLS sessions.
type TLS struct {
	*Proc
	Addr string // to connect to
}

// StartTLS starts a server in a host. Call "end" gives its []TLSSession.
func StartTLS(w *World, host, comm, preface string) (*TLS, error) {
	p, err := w.Start(host, comm, bodyTLSServer, [2]string{w.Addr4(host).String(), preface})
	if err != nil {
		return nil, err
	}
	t := &TLS{Proc: p}
	return t, p.Expect(&t.Addr)
}

// Sessions ends the server and returns the ClientHellos that it received.
func (t *TLS) Sessions() (out []TLSSession, err error) { return out, t.Call("end", &out) }

// selfSigned is a self-signed certificate.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func tlsServerBody(c *Child) error {
	var arg [2]string
	if err := c.Arg(&arg); err != nil {
		return err
	}
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	seen := []TLSSession{}
	config := &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS10, NextProtos: []string{"h2", "http/1.1"},
	}
	config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		s := TLSSession{Name: h.ServerName, ALPN: h.SupportedProtos, Port: uint16(h.Conn.RemoteAddr().(*net.TCPAddr).Port)}
		for _, v := range h.SupportedVersions {
			if v <= tls.VersionTLS13 { // no greased one
				s.Most = max(s.Most, v)
			}
		}
		mu.Lock()
		seen = append(seen, s)
		mu.Unlock()
		return nil, nil
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(arg[0], "0"))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(time.Minute))
				b := make([]byte, len(arg[1]))
				for at := 0; at < len(b); {
					n, err := conn.Read(b[at:])
					if err != nil {
						return
					}
					at += n
				}
				s := tls.Server(conn, config)
				if s.Handshake() == nil {
					s.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				}
				s.Close()
			}()
		}
	}()
	if err := c.Report(l.Addr().String()); err != nil {
		return err
	}
	if err := c.Await("end"); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return c.Report(seen)
}

// TLSClient is sessions that a client makes, one after the other.
type TLSClient struct {
	Addr     string
	Sessions []TLSSession
}

// StartTLSClient starts a process of Go's own TLS. Call "go" gives the sessions with
// the ports that they had.
func StartTLSClient(w *World, host, comm string, t TLSClient) (*Proc, error) {
	return w.StartReady(host, comm, bodyTLSClient, t)
}

func tlsClientBody(c *Child) error {
	var t TLSClient
	if err := c.Arg(&t); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for i := range t.Sessions {
		if err := t.Sessions[i].shake(t.Addr); err != nil {
			return err
		}
	}
	return c.Report(t.Sessions)
}

func (s *TLSSession) shake(addr string) error {
	d := net.Dialer{}
	d.SetMultipathTCP(false)
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	s.Port = uint16(conn.LocalAddr().(*net.TCPAddr).Port)
	if _, err := conn.Write([]byte(s.Preface)); err != nil {
		return err
	}
	return tls.Client(pieces{conn, s.Piece}, &tls.Config{ServerName: s.Name, NextProtos: s.ALPN, MaxVersion: s.Most, InsecureSkipVerify: true}).Handshake()
}

// pieces is a connection whose writes are split.
type pieces struct {
	net.Conn
	size int
}

func (p pieces) Write(b []byte) (done int, err error) {
	for p.size > 0 && len(b)-done > p.size && err == nil {
		var n int
		n, err = p.Conn.Write(b[done : done+p.size])
		done += n
		time.Sleep(2 * time.Millisecond) // otherwise TCP may merge them
	}
	if err != nil {
		return done, err
	}
	n, err := p.Conn.Write(b[done:])
	return done + n, err
}

// StartCommand starts a program of the machine in a host. It begins when it is told
// to. ErrNotSupported: there is no program of that name.
func StartCommand(w *World, host string, command ...string) (*Proc, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("lab: %w: %w", ErrNotSupported, err)
	}
	quoted := make([]string, len(command))
	for i, a := range append([]string{path}, command[1:]...) {
		quoted[i] = "'" + a + "'"
	}
	script := `echo '{"report":true}'; read word; exec ` + strings.Join(quoted, " ") + " >&2 </dev/null"
	return w.StartIn(host, command[0], Mounts{Program: []string{"/bin/sh", "-c", script}})
}
