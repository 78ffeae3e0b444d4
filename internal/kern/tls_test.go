// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// recorder is a connection that keeps what is written to it.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error)      { return r.sent.Write(b) }
func (*recorder) Read([]byte) (int, error)           { return 0, net.ErrClosed }
func (*recorder) SetDeadline(time.Time) error        { return nil }
func (*recorder) SetWriteDeadline(t time.Time) error { return nil }

// clientHello is what Go's own client sends.
func clientHello(c *tls.Config) []byte {
	r := &recorder{}
	tls.Client(r, c).Handshake()
	return r.sent.Bytes()
}

// TestTLSHello parses the ClientHello of Go's client, whole and truncated anywhere,
// in one record and in many.
func TestTLSHello(t *testing.T) {
	for _, c := range []struct {
		config *tls.Config
		want   ClientHello
	}{
		{&tls.Config{ServerName: "www.example", NextProtos: []string{"h2", "http/1.1"}}, ClientHello{"www.example", "1.3", "h2,http/1.1"}},
		{&tls.Config{ServerName: "old.example", MaxVersion: tls.VersionTLS12}, ClientHello{"old.example", "1.2", ""}},
		{&tls.Config{ServerName: "192.0.2.1", NextProtos: []string{"\x1b[2J"}}, ClientHello{"", "1.3", `\027[2J`}},
	} {
		msg := clientHello(c.config)
		if got := TLSHello(msg); got != c.want {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
		for n := range msg {
			TLSHello(msg[:n])
		}
		var cut []byte
		for part := msg[5:]; len(part) > 0; {
			n := min(100, len(part))
			cut = append(append(cut, 22, 3, 1, 0, byte(n)), part[:n]...)
			part = part[n:]
		}
		if got := TLSHello(cut); got != c.want {
			t.Errorf("in records of 100 bytes: got %+v, want %+v", got, c.want)
		}
	}
}

// FuzzTLSHello: no message causes a panic.
func FuzzTLSHello(f *testing.F) {
	f.Add(clientHello(&tls.Config{ServerName: "www.example", NextProtos: []string{"h2"}}))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := TLSHello(b)
		for _, s := range []string{c.Name, c.ALPN, c.Version} {
			for _, r := range s {
				if r < ' ' || r > '~' {
					t.Fatalf("%q has %q", s, r)
				}
			}
		}
	})
}
