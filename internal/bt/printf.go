// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strconv"
	"strings"
)

// A verb is one conversion of a format, with the text before it.
type verb struct {
	before string
	flags  string
	width  int // -1: none
	prec   int // -1: none
	size   int // bytes that h, hh, l say; 0: the value's own
	conv   byte
	form   byte // of %r: x, h, or 0; of %gr g
}

// parseFormatString reads C's formats. The text after the last conversion is not
// among the verbs: see tail. A % before anything that is not a letter is itself.
func parseFormatString(s string) (verbs []verb, err error) {
	verbs, _, err = splitFormat(s)
	return verbs, err
}

// tail is the text of a format after its last conversion.
func tail(s string) string {
	_, rest, _ := splitFormat(s)
	return rest
}

func splitFormat(s string) (verbs []verb, rest string, err error) {
	start := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		v, at := verb{before: s[start:i], width: -1, prec: -1}, i
		i++
		for i < len(s) && strings.IndexByte("-+ #0", s[i]) >= 0 {
			v.flags += s[i : i+1]
			i++
		}
		num := func() int {
			n := -1
			for i < len(s) && isDigit(s[i]) {
				n = max(n, 0)*10 + int(s[i]-'0')
				if n > 4096 {
					n = 4096
				}
				i++
			}
			return n
		}
		v.width = num()
		if i < len(s) && s[i] == '.' {
			i++
			v.prec = max(num(), 0)
		}
	size:
		for i < len(s) {
			switch s[i] {
			case 'h':
				if v.size == 2 {
					v.size = 1
				} else {
					v.size = 2
				}
			case 'l', 'z', 'j', 't':
				v.size = 8
			default:
				break size
			}
			i++
		}
		switch {
		case i < len(s) && s[i] == '%':
			continue // kept in the text, see text
		case i == len(s) || !isLetter(s[i]):
			i = at // a percent sign
			continue
		}
		v.conv = s[i]
		if v.conv == 'g' && i+1 < len(s) && s[i+1] == 'r' { // %gr: the flags of an allocation
			i++
			v.conv, v.form = 'r', 'g'
		}
		if strings.IndexByte("diuoxXcspr", v.conv) < 0 {
			return nil, "", fmt.Errorf("%%%c is not a conversion: there are %%d %%i %%u %%x %%X %%o %%c %%s %%p %%r %%gr", v.conv)
		}
		if v.conv == 'r' && v.form == 0 && i+1 < len(s) && (s[i+1] == 'x' || s[i+1] == 'h') {
			i++
			v.form = s[i]
		}
		start = i + 1
		verbs = append(verbs, v)
	}
	return verbs, s[start:], nil
}

// text undoes %%.
func text(s string) string { return strings.ReplaceAll(s, "%%", "%") }

// number formats an integer as C does.
func (v *verb) number(n int64, t *Type) string {
	u := uint64(n)
	size := 8
	if v.size > 0 && v.size < 8 {
		size = v.size
	} else if v.size == 0 && t != nil && t.Kind == Number && t.Size > 0 && (v.conv == 'x' || v.conv == 'X' || v.conv == 'o') {
		size = t.Size // (int32)-1 is ffffffff
	}
	if size < 8 {
		u &= 1<<(8*size) - 1
		n = truncate(n, size, true)
	}
	digits, sign := "", ""
	switch v.conv {
	case 'd', 'i':
		digits = strconv.FormatUint(uint64(max(n, -n)), 10)
		if n < 0 {
			digits = strconv.FormatUint(-uint64(n), 10)
			sign = "-"
		} else if strings.Contains(v.flags, "+") {
			sign = "+"
		} else if strings.Contains(v.flags, " ") {
			sign = " "
		}
	case 'u':
		digits = strconv.FormatUint(u, 10)
	case 'o':
		digits = strconv.FormatUint(u, 8)
	case 'x', 'p':
		digits = strconv.FormatUint(u, 16)
	case 'X':
		digits = strings.ToUpper(strconv.FormatUint(u, 16))
	case 'c':
		return v.fill(string([]byte{byte(n)}))
	}
	if v.prec > len(digits) {
		digits = strings.Repeat("0", v.prec-len(digits)) + digits
	}
	switch {
	case v.conv == 'p':
		sign = "0x"
	case strings.Contains(v.flags, "#") && u != 0 && v.conv == 'x':
		sign = "0x"
	case strings.Contains(v.flags, "#") && u != 0 && v.conv == 'X':
		sign = "0X"
	case strings.Contains(v.flags, "#") && v.conv == 'o':
		sign = "0"
	}
	if strings.Contains(v.flags, "0") && !strings.Contains(v.flags, "-") && v.prec < 0 {
		if n := v.width - len(sign) - len(digits); n > 0 {
			digits = strings.Repeat("0", n) + digits
		}
	}
	return v.fill(sign + digits)
}

// str formats a string.
func (v *verb) str(s string) string {
	if v.prec >= 0 && v.prec < len(s) {
		s = s[:v.prec]
	}
	return v.fill(s)
}

// bytes formats a buffer: as text, %rx as \x61\x0a, %rh as 61 0a.
func (v *verb) bytes(b []byte) string {
	switch v.form {
	case 'x':
		var s strings.Builder
		for _, c := range b {
			fmt.Fprintf(&s, "\\x%02x", c)
		}
		return v.str(s.String())
	case 'h':
		return v.str(fmt.Sprintf("% x", b))
	}
	return v.str(escapeBytes(b))
}

func (v *verb) fill(s string) string {
	n := v.width - len(s)
	if n <= 0 {
		return s
	}
	if strings.Contains(v.flags, "-") {
		return s + strings.Repeat(" ", n)
	}
	return strings.Repeat(" ", n) + s
}
