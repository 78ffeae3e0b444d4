// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"seine/test/proof"
)

const coverageHead = `# Coverage

## seine

Made by ` + "`make test-full`" + ` from the proofs test/proof/test-full-*.json. For each tool and kernel: the ways by which it was tried, and how many
of its live cases passed by each. *best* is what the tool takes by itself; the others are forced with ` + "`--way`" + `. Native is a Linux with
neither kprobes nor fentry; the other kernels are Debian's, in guests. In brackets: cases that were left out, because the guest has not what
they need (a C library, a compiler, a card, a server) or the kernel cannot do it; ` + "`make test`" + ` prints each with its reason.

`

const theirsMark = "\n## Others\n"

const theirsHead = theirsMark + `
The tools for networks of libbpf-tools and BCC (Debian 13's packages; natively libbpf-tools of Debian 12, and no BCC, for there are no headers of
that kernel), on the same kernels, as seen on %s. BCC has the headers of each kernel to compile with. *yes*: it starts, and shows the
test's traffic. Where it does not, what it said.

`

// oursCoverage writes the part of docs/COVERAGE.md that is about our tools, from the proofs of
// make test-full. Without all of them it only says which are missing.
func oursCoverage(w io.Writer, root string) (missing []string, err error) {
	ours, dates := newGrid(), []string{}
	for _, step := range fullSteps() {
		p, err := proof.Read(root, proof.Full+step.name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil || !p.OK {
			missing = append(missing, step.name)
			continue
		}
		dates = append(dates, fmt.Sprintf("%s on %s", step.kernel, p.Date))
		for tool, text := range p.Figures {
			if tool != "tests" {
				ours.say(tool, step.kernel, text)
			}
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	fmt.Fprint(w, coverageHead)
	ours.markdown(w)
	fmt.Fprintf(w, "\nRun: %s.\n", strings.Join(dates, ", "))
	return nil, nil
}

// theirs writes the part about the tools of others.
func (r *results) theirs(w io.Writer) {
	theirs := newGrid()
	var why []string
	for _, t := range r.leaves() {
		p := strings.Split(t.name, "/")
		if p[0] != "TestTheirs" || len(p) != 3 {
			continue
		}
		said := "yes"
		if t.outcome != "PASS" {
			reason := shortly(t.log)
			if !slices.Contains(why, reason) {
				why = append(why, reason)
			}
			said = fmt.Sprintf("no [%d]", slices.Index(why, reason)+1)
		}
		theirs.say(p[2]+" ("+p[1]+")", strings.TrimPrefix(t.where, "theirs "), said)
	}
	if len(theirs.rows) == 0 {
		return
	}
	fmt.Fprintf(w, theirsHead, time.Now().Format(time.DateOnly))
	theirs.markdown(w)
	fmt.Fprintln(w)
	for i, reason := range why {
		fmt.Fprintf(w, "%d. %s\n", i+1, reason)
	}
}

// parts is the two parts of an earlier file: about our tools, and about those
// of others.
func parts(old []byte) (ours, theirs []byte) {
	i := bytes.Index(old, []byte(theirsMark))
	if i < 0 {
		return old, nil
	}
	return old[:i], old[i:]
}

var noise = regexp.MustCompile(`^.*skipped: (\S+: )?(libbpf: )?`)

// shortly is the beginning of a tool's output; for long output of a compiler or
// Python, the part from the error on.
func shortly(said string) string {
	said = noise.ReplaceAllString(said, "")
	said, _, _ = strings.Cut(said, " libbpf: ")
	for _, mark := range []string{" error: ", " Exception: "} {
		if i := strings.Index(said, mark); i >= 0 {
			said = said[i+1:]
			break
		}
	}
	return "`" + strings.ReplaceAll(fmt.Sprintf("%.160s", said), "`", "'") + "`"
}

// A grid is a table of rows and columns in the order in which they came.
type grid struct {
	rows, columns []string
	cells         map[[2]string][]*tally
}

// A tally is one thing that a cell says.
type tally struct {
	text       string
	pass, left int
}

func newGrid() *grid { return &grid{cells: map[[2]string][]*tally{}} }

func (g *grid) at(row, column, text string) *tally {
	if !slices.Contains(g.rows, row) {
		g.rows = append(g.rows, row)
	}
	if !slices.Contains(g.columns, column) {
		g.columns = append(g.columns, column)
	}
	key := [2]string{row, column}
	if i := slices.IndexFunc(g.cells[key], func(t *tally) bool { return t.text == text }); i >= 0 {
		return g.cells[key][i]
	}
	t := &tally{text: text}
	g.cells[key] = append(g.cells[key], t)
	return t
}

func (g *grid) say(row, column, text string) { g.at(row, column, text) }

func (g *grid) count(row, column, text, outcome string) {
	t := g.at(row, column, text)
	if outcome == "PASS" {
		t.pass++
	} else {
		t.left++
	}
}

func (t *tally) String() string {
	s := t.text
	if t.pass+t.left > 0 {
		s += fmt.Sprintf(" %d", t.pass)
	}
	if t.left > 0 {
		s += fmt.Sprintf(" (%d)", t.left)
	}
	return s
}

// cell is what a cell says.
func (g *grid) cell(row, column string) string {
	var b []string
	for _, t := range g.cells[[2]string{row, column}] {
		b = append(b, t.String())
	}
	return strings.Join(b, ", ")
}

func (g *grid) markdown(w io.Writer) {
	slices.Sort(g.rows)
	fmt.Fprintf(w, "| tool | %s |\n|---|%s\n", strings.Join(g.columns, " | "), strings.Repeat("---|", len(g.columns)))
	for _, row := range g.rows {
		fmt.Fprintf(w, "| %s |", row)
		for _, column := range g.columns {
			fmt.Fprintf(w, " %s |", cmp.Or(g.cell(row, column), "–"))
		}
		fmt.Fprintln(w)
	}
}
