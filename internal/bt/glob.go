// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"strings"

	"github.com/cilium/ebpf/asm"
)

// A glob is a pattern of globmatch(). Its places are passed by one character each: bit i of a
// state says that the first i of them are matched. A star lets a state stay.
type glob struct {
	places []globPlace
	stars  uint64
}

// A globPlace is what one character may be: any, or in one of some ranges, or in none of them.
type globPlace struct {
	any, not bool
	ranges   [][2]byte
}

const globMost = 62

func parseGlob(s string) (*glob, error) {
	g := &glob{}
	for s != "" {
		c := s[0]
		s = s[1:]
		place := globPlace{ranges: [][2]byte{{c, c}}}
		switch c {
		case '*':
			g.stars |= 1 << len(g.places)
			continue
		case '?':
			place = globPlace{any: true}
		case '[':
			not := strings.HasPrefix(s, "!")
			if not {
				s = s[1:]
			}
			end := strings.IndexByte(s[min(1, len(s)):], ']') + 1 // []a] has a bracket
			if end < 1 {
				return nil, errors.New("'[' without ']'")
			}
			place = globPlace{not: not}
			for set := s[:end]; set != ""; {
				r := [2]byte{set[0], set[0]}
				if set = set[1:]; len(set) > 1 && set[0] == '-' {
					r[1], set = set[1], set[2:]
				}
				place.ranges = append(place.ranges, r)
			}
			s = s[end+1:]
		}
		if g.places = append(g.places, place); len(g.places) > globMost {
			return nil, errors.New("the pattern has more than 62 characters")
		}
	}
	return g, nil
}

func (c *checker) globmatch(e *Call) *Type {
	if t := c.expr(e.Args[0]); !stringish(t) && t != unknown {
		c.failAt(e.Args[0], "globmatch() needs a string, not %s", t)
	}
	if _, err := parseGlob(c.text(e.Args[1])); err != nil {
		c.failAt(e.Args[1], "%v", err)
	}
	return typeBool
}

// globmatch leaves in R0 whether a string matches a pattern. There are no branches over the
// characters: the verifier would follow them all.
func (e *emitter) globmatch(x *Call) {
	g, _ := parseGlob(x.Args[1].(*Str).V)
	t := kept(x.Args[0].typ())
	room := t.store()
	text := e.inScratch(room)
	e.value(x.Args[0], t, text)
	const at, p, char, match, tmp, state = asm.R0, asm.R1, asm.R2, asm.R3, asm.R4, asm.R5
	top, end := e.label("glob"), e.label("globbed")
	e.add(asm.Mov.Imm(at, 0), asm.Mov.Imm(state, 1))
	e.here(top)
	e.add(
		asm.JGE.Imm(at, int32(room), end), asm.Mov.Reg(p, text.reg), asm.Add.Reg(p, at),
		asm.LoadMem(char, p, int16(text.off), asm.Byte), asm.JEq.Imm(char, 0, end),
	)
	var any uint64
	for i, place := range g.places {
		if place.any || place.not {
			any |= 2 << i
		}
	}
	e.add(asm.LoadImm(match, int64(any), asm.DWord))
	for i, place := range g.places {
		for _, r := range place.ranges {
			// The sign of (char - low) | (high - char) says that it is outside.
			e.add(
				asm.Mov.Reg(tmp, char), asm.Sub.Imm(tmp, int32(r[0])), asm.Mov.Imm(p, int32(r[1])), asm.Sub.Reg(p, char), asm.Or.Reg(tmp, p),
				asm.RSh.Imm(tmp, 63), asm.Xor.Imm(tmp, 1), asm.LSh.Imm(tmp, int32(i+1)),
			)
			if place.not {
				e.add(asm.Xor.Imm(tmp, -1), asm.And.Reg(match, tmp))
			} else {
				e.add(asm.Or.Reg(match, tmp))
			}
		}
	}
	e.add(
		asm.LoadImm(tmp, int64(g.stars), asm.DWord), asm.And.Reg(tmp, state),
		asm.LSh.Imm(state, 1), asm.And.Reg(state, match), asm.Or.Reg(state, tmp),
		asm.Add.Imm(at, 1), asm.Ja.Label(top),
	)
	e.here(end)
	e.add(asm.Mov.Reg(asm.R0, state), asm.RSh.Imm(asm.R0, int32(len(g.places))), asm.And.Imm(asm.R0, 1))
}
