// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"fmt"
	"strings"
	"testing"
)

// answer is a message with the question "a.example" and these answers, each
// with a name that points to the question's.
func answer(records ...string) []byte {
	msg := []byte("\x12\x34\x81\x80\x00\x01\x00" + string(rune(len(records))) + "\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01")
	for _, r := range records {
		msg = append(msg, "\xc0\x0c"+r...)
	}
	return msg
}

const (
	recordA     = "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x07"
	recordAAAA  = "\x00\x1c\x00\x01\x00\x00\x00\x3c\x00\x10\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07"
	recordCNAME = "\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01b\xc0\x0e"
)

// TestDNSQuestion: names are written as in zone files.
func TestDNSQuestion(t *testing.T) {
	for _, c := range []struct {
		labels, want string
		ok           bool
	}{
		{"\x01a\x07example\x00\x00\x1c\x00\x01", "a.example", true},
		{"\x00\x00\x1c\x00\x01", ".", true},
		{"\x03a.b\x02\x1b\\\x00\x00\x1c\x00\x01", `a\.b.\027\\`, true},
		{"\x01a\x07exam", "a", false},
		{"\x01a\xc0\x0c\x00\x1c\x00\x01", "a", false},
		{"\x01a\x00\x00", "a", false},
		{"", "", false},
	} {
		name, typ, ok := DNSQuestion([]byte(strings.Repeat("\x00", dnsHeader) + c.labels))
		if name != c.want || ok != c.ok || ok && typ != 28 {
			t.Errorf("%q is %q of type %d, %v; want %q, %v", c.labels, name, typ, ok, c.want, c.ok)
		}
	}
}

// TestDNSAddrs: addresses are found, also behind an alias. A truncated message
// gives those before the cut.
func TestDNSAddrs(t *testing.T) {
	msg := answer(recordCNAME, recordA, recordAAAA)
	if got := fmt.Sprint(DNSAddrs(msg)); got != "[192.0.2.7 2001:db8::7]" {
		t.Errorf("addresses %s", got)
	}
	if got := fmt.Sprint(DNSAddrs(msg[:len(msg)-1])); got != "[192.0.2.7]" {
		t.Errorf("of a cut message %s", got)
	}
}

// FuzzDNS: no message causes a panic.
func FuzzDNS(f *testing.F) {
	f.Add(answer(recordCNAME, recordA, recordAAAA))
	f.Add(answer())
	f.Fuzz(func(t *testing.T, msg []byte) {
		if name, _, ok := DNSQuestion(msg); ok && name == "" {
			t.Error("a whole question without a name")
		}
		if n := len(DNSAddrs(msg)); n > len(msg)/14 {
			t.Errorf("%d addresses in %d bytes", n, len(msg))
		}
	})
}
