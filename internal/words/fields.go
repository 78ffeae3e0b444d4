// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"strings"
)

// Fields splits a command line as a shell does: at blanks, except within single or
// double quotes, and a backslash stands for the character behind it (not within single
// quotes).
func Fields(line string) (out []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			begun, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			begun, quote = true, c
		case c == ' ' || c == '\t' || c == '\n':
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("%s: a quote or backslash at its end is not closed", line)
	}
	if begun {
		out = append(out, word.String())
	}
	return out, nil
}
