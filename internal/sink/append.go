// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"seine/internal/row"
)

// appendNumber writes a number cell in the unit that its column's id names, as
// an exact decimal without trailing zeros: 12345 with a Div of 1000 is 12.345.
func appendNumber(b []byte, c *row.Cell, div uint64) []byte {
	n := c.N
	if c.Kind == row.Int && int64(n) < 0 {
		b, n = append(b, '-'), -n
	}
	if div <= 1 {
		return strconv.AppendUint(b, n, 10)
	}
	b = strconv.AppendUint(b, n/div, 10)
	rest := n % div
	if rest == 0 {
		return b
	}
	b = append(b, '.')
	for i := 0; i < 20 && rest > 0; i++ { // a Div of 3 has no end
		hi, lo := bits.Mul64(rest, 10)
		var digit uint64
		digit, rest = bits.Div64(hi, lo, div)
		b = append(b, '0'+byte(digit))
	}
	return b
}

// appendScaled writes a number cell as tables show it: divided by div, with
// prec decimals. Decimals are rounded; whole numbers are cut, as the integer
// division of the book's tools does.
func appendScaled(b []byte, c *row.Cell, div uint64, prec int) []byte {
	n := c.N
	if c.Kind == row.Int && int64(n) < 0 {
		b, n = append(b, '-'), -n
	}
	if prec <= 0 {
		return strconv.AppendUint(b, n/div, 10)
	}
	ten := uint64(1)
	for range min(prec, 18) {
		ten *= 10
	}
	whole := n / div
	hi, lo := bits.Mul64(n%div, ten)
	lo, carry := bits.Add64(lo, div/2, 0)
	part, _ := bits.Div64(hi+carry, lo, div)
	if part >= ten { // 0.999 rounded up
		whole, part = whole+1, part-ten
	}
	b = strconv.AppendUint(b, whole, 10)
	b = append(b, '.')
	return appendPadded(b, part, min(prec, 18))
}

// appendPadded writes n with leading zeros.
func appendPadded(b []byte, n uint64, digits int) []byte {
	for range digits {
		b = append(b, '0')
	}
	for i := len(b) - 1; n > 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
	return b
}

func appendBool(b []byte, c *row.Cell) []byte { return strconv.AppendBool(b, c.N != 0) }

func appendAddr(b []byte, c *row.Cell) []byte { return c.IP().AppendTo(b) }

// stamp writes moments as RFC 3339 in UTC with nanoseconds. It remembers the
// last second, since rows come in the order of time.
type stamp struct {
	second int64
	text   []byte
}

func (s *stamp) append(b []byte, c *row.Cell) []byte {
	sec, ns := int64(c.N)/1e9, int64(c.N)%1e9
	if ns < 0 {
		sec, ns = sec-1, ns+1e9
	}
	if sec != s.second || s.text == nil {
		s.second = sec
		s.text = time.Unix(sec, 0).UTC().AppendFormat(s.text[:0], "2006-01-02T15:04:05.")
	}
	b = append(b, s.text...)
	b = appendPadded(b, uint64(ns), 9)
	return append(b, 'Z')
}

// appendEscaped writes text for people: characters that are not printable are escaped as in a Go
// string, so that no name can move the cursor or reverse the direction of writing.
func appendEscaped(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, '\\', 'x', hex[s[i]>>4], hex[s[i]&15])
		case strconv.IsPrint(r):
			b = append(b, s[i:i+n]...)
		default:
			b = strconv.AppendQuoteRune(b, r)
			b = unquote(b)
		}
		i += n
	}
	return b
}

const hex = "0123456789abcdef"

// unquote takes away the quotes of the rune that was just written.
func unquote(b []byte) []byte {
	start := len(b) - 2
	for b[start] != '\'' {
		start--
	}
	copy(b[start:], b[start+1:])
	return b[:len(b)-2]
}

// appendValid writes text with each wrong byte replaced, so that what comes out
// is UTF-8.
func appendValid(b []byte, s string) []byte {
	if utf8.ValidString(s) {
		return append(b, s...)
	}
	for _, r := range s {
		b = utf8.AppendRune(b, r)
	}
	return b
}

func trimRight(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}
