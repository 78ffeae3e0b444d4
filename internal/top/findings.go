// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"seine/internal/row"
	"seine/internal/why"
	"seine/internal/words"
)

// A finding is a line of the screen Findings.
type finding struct{ *why.Finding }

var findings = sync.OnceValue(func() *table[finding] {
	return newTable("findings", "rank",
		func(f *finding) string { return f.ID },
		func(a, b *finding) int { return strings.Compare(a.ID, b.ID) },
		[]column[finding]{
			{id: "rank", head: "#", help: "the worst is 1", kind: row.Uint, width: 2, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetUint(uint64(f.Rank)) }, text: func(f *finding) string { return strconv.Itoa(f.Rank) }},
			{id: "severity", head: "LEVEL", help: "bad, warn or info", kind: row.Text, width: 5, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Severity.String()) }, text: func(f *finding) string { return strings.ToUpper(f.Severity.String()) },
				style: func(f *finding) style { return hue(f.Finding) }},
			{id: "object", head: "WHERE", help: "what it is about", kind: row.Text, width: 22, grow: 2, left: true, up: true, cut: middle,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Object.Name) }, text: func(f *finding) string { return f.About() }},
			{id: "title", head: "WHAT", help: "what is wrong", kind: row.Text, width: 24, grow: 4, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Title) }, text: func(f *finding) string { return f.Title }},
			{id: "class", head: "CLASS", help: "the rule: see seine why --rules", kind: row.Text, width: 18, rank: 2, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Class) }, text: func(f *finding) string { return f.Class }},
			{id: "confidence", head: "SURE", help: "certain, likely or possible", kind: row.Text, width: 8, rank: 1, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(string(f.Confidence)) }, text: func(f *finding) string { return string(f.Confidence) }},
			{id: "advice", head: "WHAT TO DO", help: "what to do about it", kind: row.Text, width: 30, grow: 4, rank: 3, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Advice) }, text: func(f *finding) string { return f.Advice }},
			{id: "id", head: "ID", help: "stable name of class and object", kind: row.Text, rank: -1, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.ID) }, text: func(f *finding) string { return f.ID }},
			{id: "next", head: "NEXT", help: "the command that shows more", kind: row.Text, rank: -1, left: true, up: true,
				cell: func(f *finding, c *row.Cell) { c.SetText(f.Next) }, text: func(f *finding) string { return f.Next }},
		})
})

func (s *Snapshot) findings(do func(*finding)) {
	for _, f := range s.Answer.Findings {
		do(&finding{f})
	}
}

// told is a finding in full, one string for each paragraph.
func told(f *why.Finding) []string {
	out := []string{fmt.Sprintf("%s: %s, %s", f.Class, words.Clean(f.About()), words.Clean(f.Title)), ""}
	for _, e := range f.Evidence {
		out = append(out, fmt.Sprintf("seen  %s: %s (%s, %.0f s)", words.Clean(e.What), evidence(e), words.Clean(e.From), e.Window))
	}
	out = append(out, "sure  "+string(f.Confidence)+": "+words.Clean(f.Reason))
	if len(f.Causes) > 0 {
		var ranks []string
		for _, n := range f.Causes {
			ranks = append(ranks, strconv.Itoa(n))
		}
		out = append(out, "from  finding "+words.And(ranks))
	}
	return append(out, "do    "+words.Clean(f.Advice), "next  "+words.Clean(f.Next), "", "rule  "+f.Rule)
}

// evidence is a number with its unit.
func evidence(e why.Evidence) string {
	s := strings.TrimSuffix(strconv.FormatFloat(e.Value, 'f', 1, 64), ".0")
	if e.Unit == "" {
		return s
	}
	return s + " " + e.Unit
}
