// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A ClientHello has some fields of the first message of a TLS client.
type ClientHello struct {
	Name    string // of the server, as zone files write names; empty: none
	Version string // the highest that the client offers: 1.3
	ALPN    string // protocols with commas between: h2,http/1.1
}

// TLSHello parses a ClientHello with its record headers. If it is truncated or
// malformed, TLSHello returns the fields before that place.
func TLSHello(records []byte) (out ClientHello) {
	b := handshake(records)
	if len(b) < 4 || b[0] != 1 {
		return out
	}
	if n := int(b[1])<<16 | int(b[2])<<8 | int(b[3]); len(b)-4 > n {
		b = b[:4+n]
	}
	b = b[4:]
	if len(b) < 34 {
		return out
	}
	out.Version = tlsVersion(binary.BigEndian.Uint16(b))
	b = b[34:]          // version, random
	b, ok := skip(b, 1) // session
	if ok {
		b, ok = skip(b, 2) // ciphers
	}
	if ok {
		b, ok = skip(b, 1) // compression
	}
	if !ok || len(b) < 2 {
		return out
	}
	b = b[2:] // length of all extensions: they may be truncated
	for len(b) >= 4 {
		typ, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		b = b[4:]
		whole := n <= len(b)
		n = min(n, len(b))
		if whole {
			out.extension(typ, b[:n])
		}
		b = b[n:]
	}
	return out
}

// handshake joins the payloads of records of the handshake.
func handshake(b []byte) (out []byte) {
	for len(b) >= 5 && b[0] == 22 {
		n := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-5)
		out = append(out, b[5:5+n]...)
		b = b[5+n:]
	}
	return out
}

// skip skips a field with a length of n bytes before it.
func skip(b []byte, bytes int) ([]byte, bool) {
	n := bytes
	for i := range min(bytes, len(b)) {
		n += int(b[i]) << (8 * (bytes - 1 - i))
	}
	if len(b) < bytes || len(b) < n {
		return nil, false
	}
	return b[n:], true
}

func (c *ClientHello) extension(typ uint16, b []byte) {
	switch typ {
	case 0: // server_name: a list, of which the first name of a host counts
		if len(b) < 2 {
			return
		}
		for b = b[2:]; len(b) >= 3; {
			kind, n := b[0], int(binary.BigEndian.Uint16(b[1:]))
			if b = b[3:]; len(b) < n {
				return
			}
			if kind == 0 && c.Name == "" {
				c.Name = printable(b[:n])
			}
			b = b[n:]
		}
	case 16: // application_layer_protocol_negotiation
		if len(b) < 2 {
			return
		}
		var names []string
		for b = b[2:]; len(b) >= 1 && len(b) >= 1+int(b[0]); b = b[1+int(b[0]):] {
			if name := b[1 : 1+int(b[0])]; !grease(name) {
				names = append(names, printable(name))
			}
		}
		c.ALPN = strings.Join(names, ",")
	case 43: // supported_versions
		var most uint16
		if len(b) < 1 {
			return
		}
		for b = b[1:]; len(b) >= 2; b = b[2:] {
			if v := binary.BigEndian.Uint16(b); v>>8 == 3 {
				most = max(most, v)
			}
		}
		if most != 0 {
			c.Version = tlsVersion(most)
		}
	}
}

// grease reports whether a value is reserved to keep servers tolerant of unknown
// values (RFC 8701).
func grease(b []byte) bool { return len(b) == 2 && b[0] == b[1] && b[0]&15 == 10 }

func tlsVersion(v uint16) string {
	switch v {
	case 0x300:
		return "SSL3"
	case 0x301, 0x302, 0x303, 0x304:
		return fmt.Sprintf("1.%d", v-0x301)
	}
	return fmt.Sprintf("%#04x", v)
}

// printable is text with other characters than ASCII escaped as in zone files.
func printable(b []byte) string {
	var text []byte
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			text = fmt.Appendf(text, "\\%03d", c)
		} else {
			text = append(text, c)
		}
	}
	return string(text)
}
