// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// dnsTypes are the names of record types.
var dnsTypes = map[uint16]string{
	1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 35: "NAPTR",
	39: "DNAME", 43: "DS", 46: "RRSIG", 48: "DNSKEY", 52: "TLSA", 64: "SVCB", 65: "HTTPS", 252: "AXFR", 255: "ANY", 257: "CAA",
}

// DNSType is the name of a record type.
func DNSType(n uint16) string {
	if s, ok := dnsTypes[n]; ok {
		return s
	}
	return fmt.Sprintf("TYPE%d", n)
}

var dnsCodes = [...]string{
	"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE",
}

// DNSCode is the name of the response code in the flags of an answer.
func DNSCode(flags uint16) string {
	if n := int(flags & 15); n < len(dnsCodes) {
		return dnsCodes[n]
	}
	return fmt.Sprintf("RCODE%d", flags&15)
}

const dnsHeader = 12

// DNSQuestion reads the question of a DNS message: the name as it is written in
// zone files, without the last dot, and the type. False: the question is
// truncated or malformed.
func DNSQuestion(msg []byte) (name string, typ uint16, ok bool) {
	if len(msg) < dnsHeader {
		return "", 0, false
	}
	var text []byte
	b := msg[dnsHeader:]
	for {
		if len(b) == 0 || b[0] > 63 || len(b) < 1+int(b[0]) {
			return string(text), 0, false
		}
		label := b[1 : 1+int(b[0])]
		b = b[1+len(label):]
		if len(label) == 0 {
			break
		}
		if len(text) > 0 {
			text = append(text, '.')
		}
		for _, c := range label {
			switch {
			case c == '.' || c == '\\':
				text = append(text, '\\', c)
			case c <= ' ' || c >= 0x7f:
				text = fmt.Appendf(text, "\\%03d", c)
			default:
				text = append(text, c)
			}
		}
	}
	if len(text) == 0 {
		text = append(text, '.')
	}
	if len(b) < 4 {
		return string(text), 0, false
	}
	return string(text), binary.BigEndian.Uint16(b), true
}

// DNSAddrs lists the addresses in the answers of a DNS message, up to where the
// message is truncated.
func DNSAddrs(msg []byte) []netip.Addr {
	if len(msg) < dnsHeader {
		return nil
	}
	questions, answers := binary.BigEndian.Uint16(msg[4:]), binary.BigEndian.Uint16(msg[6:])
	b := msg[dnsHeader:]
	for range questions {
		if b = skipName(b); len(b) < 4 {
			return nil
		}
		b = b[4:]
	}
	var out []netip.Addr
	for range answers {
		if b = skipName(b); len(b) < 10 {
			break
		}
		typ, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[8:]))
		if b = b[10:]; len(b) < n {
			break
		}
		if a, ok := netip.AddrFromSlice(b[:n]); ok && (typ == 1 && n == 4 || typ == 28 && n == 16) {
			out = append(out, a)
		}
		b = b[n:]
	}
	return out
}

// skipName is the rest of b after the name at its start; nil if the name is
// truncated.
func skipName(b []byte) []byte {
	for len(b) > 0 {
		switch n := int(b[0]); {
		case n == 0:
			return b[1:]
		case n >= 0xc0: // the rest is elsewhere in the message
			if len(b) < 2 {
				return nil
			}
			return b[2:]
		case n > 63 || len(b) < 1+n:
			return nil
		default:
			b = b[1+n:]
		}
	}
	return nil
}
