// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"strconv"
	"strings"
)

type tokKind uint8

const (
	tokEOF tokKind = iota
	tokIdent
	tokInt
	tokStr
	tokVar   // $x, with the $
	tokMap   // @x, with the @
	tokParam // $1, $#
	tokPunct
)

type token struct {
	kind     tokKind
	text     string // of a string: its value
	pos, end Pos
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the program"
	case tokStr:
		return "a string"
	}
	return "'" + t.text + "'"
}

// puncts are operators of more than one character, longest first.
var puncts = []string{
	"<<=", ">>=", "...", "..", "->", "++", "--", "==", "!=", "<=", ">=", "<<", ">>", "&&", "||",
	"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "..",
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isWord(c byte) bool   { return isLetter(c) || isDigit(c) }
func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'
}

// space skips blanks and comments.
func (p *parser) space() {
	for p.at < len(p.text) {
		rest := p.text[p.at:]
		switch {
		case isSpace(rest[0]):
			p.at++
		case strings.HasPrefix(rest, "//"):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest)
			}
			p.at += n
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			if n < 0 {
				p.fail(Pos(p.at), Pos(p.at+2), "comment without an end")
			}
			p.at += n + 4
		default:
			return
		}
	}
}

// next reads one token.
func (p *parser) next() token {
	p.space()
	t := token{pos: Pos(p.at)}
	if p.at >= len(p.text) {
		t.end = t.pos
		return t
	}
	start := p.at
	word := func(ok func(byte) bool) {
		for p.at < len(p.text) && ok(p.text[p.at]) {
			p.at++
		}
	}
	switch c := p.text[p.at]; {
	case isLetter(c):
		t.kind = tokIdent
		word(isWord)
	case isDigit(c):
		t.kind = tokInt
		word(isWord)
		// 1e-3 is no number here; 0x1F, 100u, 1ms and 1_000 are.
	case c == '"':
		t.kind = tokStr
		t.text = p.str()
		t.end = Pos(p.at)
		return t
	case c == '$':
		p.at++
		t.kind = tokVar
		if p.at < len(p.text) && p.text[p.at] == '#' {
			p.at++
			t.kind = tokParam
			break
		}
		if p.at < len(p.text) && isDigit(p.text[p.at]) {
			t.kind = tokParam
		}
		word(isWord)
		if p.at == start+1 {
			p.fail(Pos(start), Pos(p.at), "a variable needs a name after $")
		}
	case c == '@':
		p.at++
		t.kind = tokMap
		word(isWord)
	default:
		t.kind = tokPunct
		p.at++
		for _, op := range puncts {
			if strings.HasPrefix(p.text[start:], op) {
				p.at = start + len(op)
				break
			}
		}
	}
	t.text, t.end = p.text[start:p.at], Pos(p.at)
	return t
}

// str reads a string with C's escapes.
func (p *parser) str() string {
	start := p.at
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case '"':
			p.at++
			return b.String()
		case '\\':
			p.at++
			if p.at >= len(p.text) {
				break
			}
			p.escape(&b)
		default:
			b.WriteByte(c)
		}
	}
	p.at = min(p.at, len(p.text))
	p.fail(Pos(start), Pos(start+1), "string without an end")
	return ""
}

func (p *parser) escape(b *strings.Builder) {
	digits := func(n, base int) {
		end := p.at
		for end < len(p.text) && end < p.at+n {
			if _, err := strconv.ParseUint(p.text[end:end+1], base, 8); err != nil {
				break
			}
			end++
		}
		v, err := strconv.ParseUint(p.text[p.at:end], base, 8)
		if err != nil {
			p.fail(Pos(p.at-1), Pos(end), "escape without a number")
		}
		b.WriteByte(byte(v))
		p.at = end - 1
	}
	switch c := p.text[p.at]; {
	case c == 'n':
		b.WriteByte('\n')
	case c == 't':
		b.WriteByte('\t')
	case c == 'r':
		b.WriteByte('\r')
	case c == 'a':
		b.WriteByte('\a')
	case c == 'e':
		b.WriteByte(27)
	case c == 'x':
		p.at++
		digits(2, 16)
	case c >= '0' && c <= '7':
		digits(3, 8)
	default:
		b.WriteByte(c)
	}
}

// number reads 42, 0x2a, 1_000, 1e6, 42ull, 10ms. A time comes out in
// nanoseconds, as it does in bpftrace.
func number(s string) (v uint64, ok bool) {
	s = strings.ReplaceAll(s, "_", "")
	if n, err := strconv.ParseUint(s, 0, 64); err == nil {
		return n, true
	}
	low := strings.ToLower(s)
	if mant, exp, has := strings.Cut(low, "e"); has && !strings.HasPrefix(low, "0x") {
		m, err1 := strconv.ParseUint(mant, 10, 64)
		e, err2 := strconv.ParseUint(exp, 10, 8)
		if err1 != nil || err2 != nil || e > 19 {
			return 0, false
		}
		for range e {
			if m > (1<<64-1)/10 {
				return 0, false
			}
			m *= 10
		}
		return m, true
	}
	for _, unit := range []struct {
		suffix string
		factor uint64
	}{{"ull", 1}, {"llu", 1}, {"ll", 1}, {"ul", 1}, {"lu", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"u", 1}, {"l", 1}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}} {
		if digits, has := strings.CutSuffix(low, unit.suffix); has {
			n, err := strconv.ParseUint(digits, 0, 64)
			if err != nil || n != 0 && n*unit.factor/n != unit.factor {
				return 0, false
			}
			return n * unit.factor, true
		}
	}
	return 0, false
}
