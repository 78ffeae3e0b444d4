// SPDX-License-Identifier: Apache-2.0

package row

import (
	"fmt"
	"strings"
)

// Nearest returns the candidate that word most likely stands for, or "" if none
// is close enough to be worth a "did you mean". Case does not matter; of equals
// the first wins.
func Nearest(word string, candidates []string) string {
	w := strings.ToLower(word)
	best, least := "", (len(w)+2)/3+1 // one slip in three letters
	for _, c := range candidates {
		d := distance(w, strings.ToLower(c))
		if len(w) >= 3 && partOf(w, strings.ToLower(c)) {
			d = min(d, 1) // latency for latency_us, port for lport
		}
		if d < least && d < len(w) {
			best, least = c, d
		}
	}
	return best
}

func partOf(w, c string) bool {
	return strings.HasPrefix(c, w) || strings.HasSuffix(c, w)
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to make b of a.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	above := make([]int, len(b)+1)
	line := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		line[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			line[j] = min(above[j]+1, line[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				line[j] = min(line[j], before[j-2]+1)
			}
		}
		before, above, line = above, line, before
	}
	return above[len(b)]
}

// Unknown is the error for an id that is a column of none of the schemas. A
// table's head, as DADDR, is answered with the id behind it.
func Unknown(id string, schemas ...*Schema) error {
	var ids []string
	near := ""
	for _, s := range schemas {
		for i := range s.Columns {
			ids = append(ids, s.Columns[i].ID)
			if near == "" && strings.EqualFold(s.Columns[i].Head, id) {
				near = s.Columns[i].ID
			}
		}
		if s.hist() >= 0 {
			ids = append(ids, Measures...)
		}
	}
	if near == "" {
		near = Nearest(id, ids)
	}
	if near == "" {
		return fmt.Errorf("unknown column %q (--columns help lists them)", id)
	}
	return fmt.Errorf("unknown column %q: did you mean %s? (--columns help lists them)", id, near)
}
