// SPDX-License-Identifier: Apache-2.0

package top

import "strings"

// A Look is what a terminal can show. The zero value is plain: no colours, Unicode.
type Look struct {
	Color bool // the terminal has colours, and the user wants them
	Light bool // its background is light
	ASCII bool // only ASCII characters
	Plain bool // no control codes at all: lines for logs and screen readers
}

// style is the style of a text. Words and marks say the same, so that nobody depends on
// colours.
type style int

const (
	normal style = iota
	dim
	strong
	bad
	warn
	good
	chosen // the row under the cursor
	numStyles
)

// codes are the parameters of SGR for each style: without colours, on dark, on light.
var codes = [3][numStyles]string{
	{strong: "1", bad: "1", warn: "1", chosen: "7"},
	{dim: "90", strong: "1", bad: "1;91", warn: "93", good: "92", chosen: "7"},
	{dim: "38;5;242", strong: "1", bad: "1;38;5;160", warn: "38;5;130", good: "38;5;28", chosen: "7"},
}

// paint gives a text a style.
func (l Look) paint(s style, text string) string {
	palette := 0
	if l.Color {
		if palette = 1; l.Light {
			palette = 2
		}
	}
	code := codes[palette][s]
	if l.Plain || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[m"
}

var ascii = strings.NewReplacer("→", ">", "…", "~", "µ", "u", "·", "|", "▲", "^", "▼", "v", "─", "-", "↑", "^", "↓", "v",
	"▁", "_", "▂", ".", "▃", ":", "▄", "-", "▅", "=", "▆", "+", "▇", "*", "█", "#")

// narrow converts a screen to ASCII. A character without a counterpart becomes a question mark,
// a wide one two.
func (l Look) narrow(s string) string {
	if !l.ASCII {
		return s
	}
	s = ascii.Replace(s)
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Repeat("?", width(string(r))))
	}
	return b.String()
}
