// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

const stampMark = "Measured on "

// stamp says when and where figures were taken, and beside which versions of others.
func (o *options) stamp() string {
	s := fmt.Sprintf("%s%s by `make bench`: %d processors, %d rounds", stampMark, time.Now().Format(time.DateOnly), runtime.NumCPU(), o.rounds)
	if text, err := os.ReadFile("/var/lib/dpkg/status"); err == nil {
		all := parseStatus(text)
		for _, suite := range suites {
			if p := all[suite.pkg]; p != nil {
				s += ", " + suite.name + " " + p.version
			}
		}
	}
	return s + "."
}

// record puts a machine's figures into a document: into the table under the heading
// with its title, or at the end. Other text stays. The rows of a partial run
// replace the rows about the same measurement.
func (m *machine) record(doc []byte, whole bool) []byte {
	heading := []byte("### " + m.Title + "\n")
	at := bytes.Index(doc, heading)
	if at < 0 {
		return append(append(bytes.TrimRight(doc, "\n"), "\n\n"...), m.section()...)
	}
	end := len(doc)
	if next := bytes.Index(doc[at+len(heading):], []byte("\n### ")); next >= 0 {
		end = at + len(heading) + next + 1
	}
	lines := strings.Split(strings.TrimRight(string(doc[at:end]), "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, stampMark) })
	isRow := func(l string) bool { return strings.HasPrefix(l, "|") }
	first := slices.IndexFunc(lines, isRow)
	if first < 0 {
		first = len(lines)
	}
	last := first
	for last < len(lines) && isRow(lines[last]) {
		last++
	}
	table := m.table()
	if !whole {
		table = merge(lines[first:last], table)
	}
	words := lines[1:first]
	for len(words) > 0 && words[0] == "" {
		words = words[1:]
	}
	lines = slices.Concat(lines[:1], []string{"", m.Stamp, ""}, words, table, lines[last:])
	return slices.Concat(doc[:at], []byte(strings.Join(lines, "\n")+"\n\n"), bytes.TrimLeft(doc[end:], "\n"))
}

// section is a machine's part of a document.
func (m *machine) section() []byte {
	return fmt.Appendf(nil, "### %s\n\n%s\n\n%s\n\n", m.Title, m.Stamp, strings.Join(m.table(), "\n"))
}

func (m *machine) table() []string {
	lines := []string{"| " + strings.Join(head, " | ") + " |", "|" + strings.Repeat("---|", len(head))}
	for _, f := range m.Figures {
		lines = append(lines, "| "+strings.Join(f.cells(), " | ")+" |")
	}
	return lines
}

// merge puts rows into a table.
func merge(old, rows []string) []string {
	same := func(row string) func(string) bool {
		want := about(row)
		return func(l string) bool { return about(l) == want }
	}
	out := slices.Clone(old)
	for _, row := range rows {
		if i := slices.IndexFunc(out, same(row)); i >= 0 {
			out[i] = row
		} else {
			out = append(out, row)
		}
	}
	return out
}

// about is the subject of a row of a table, and what it is compared with.
func about(row string) [2]string {
	cells := strings.Split(row, "|")
	if len(cells) < 5 {
		return [2]string{row}
	}
	return [2]string{strings.TrimSpace(cells[1]), strings.TrimSpace(cells[4])}
}
