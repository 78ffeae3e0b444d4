// SPDX-License-Identifier: Apache-2.0

// Package words writes numbers with their nouns, for people.
package words

import (
	"strconv"
	"strings"
)

// Count is a number of things: 1 row, 1,204 rows.
func Count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + many
}

// Thousands writes 1204 as 1,204.
func Thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// And joins words: a, b and c.
func And(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}
