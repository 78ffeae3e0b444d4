// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A page is a document whose marked blocks are commands and their output.
type page struct {
	text   []string // between the blocks: text[i] comes before blocks[i]
	blocks []*block
}

// A block is one command and its output.
type block struct {
	line    int // of the mark
	mark    string
	command string
	output  []string

	beside string   // the load that runs meanwhile; "": the command makes its own
	head   int      // lines to show of the beginning; 0 is all
	skip   int      // lines to leave out before those
	tail   int      // lines to show of the end
	exact  []string // columns of a table whose figures are compared
	vary   bool     // lines come and go: only those of the page must be there
	only   []string // show only the findings whose first line has one of these words
}

const (
	fence  = "```"
	prompt = "# "
	cutOff = "…"
)

var mark = regexp.MustCompile(`^<!-- run(| .*) -->$`)

// parse takes a page apart.
func parse(text string) (*page, error) {
	p := &page{}
	lines := strings.SplitAfter(text, "\n")
	var before strings.Builder
	for i := 0; i < len(lines); i++ {
		before.WriteString(lines[i])
		m := mark.FindStringSubmatch(strings.TrimSuffix(lines[i], "\n"))
		if m == nil {
			continue
		}
		b := &block{line: i + 1, mark: m[1]}
		if err := b.options(); err != nil {
			return nil, fmt.Errorf("%d: %w", b.line, err)
		}
		at := func(k int) string {
			if k < len(lines) {
				return strings.TrimSuffix(lines[k], "\n")
			}
			return ""
		}
		if at(i+1) != fence || !strings.HasPrefix(at(i+2), prompt) {
			return nil, fmt.Errorf("%d: no block with a command (%q) behind the mark", b.line, prompt)
		}
		b.command = strings.TrimPrefix(at(i+2), prompt)
		for i += 3; at(i) != fence; i++ {
			if i >= len(lines) {
				return nil, fmt.Errorf("%d: the block has no end", b.line)
			}
			b.output = append(b.output, at(i))
		}
		p.text = append(p.text, before.String())
		p.blocks = append(p.blocks, b)
		before.Reset()
	}
	p.text = append(p.text, before.String())
	return p, nil
}

// options reads what the mark says.
func (b *block) options() (err error) {
	for _, word := range strings.Fields(b.mark) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "beside":
			b.beside = value
			if loads[value] == nil {
				err = fmt.Errorf("there is no load %q", value)
			}
		case "head":
			b.head, err = strconv.Atoi(value)
		case "skip":
			b.skip, err = strconv.Atoi(value)
		case "tail":
			b.tail, err = strconv.Atoi(value)
		case "exact":
			b.exact = strings.Split(value, ",")
		case "vary":
			b.vary = true
		case "only":
			b.only = strings.Split(value, ",")
		default:
			err = fmt.Errorf("a mark has no option %q", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// String is the page with its blocks as they are now.
func (p *page) String() string {
	var out strings.Builder
	for i, b := range p.blocks {
		out.WriteString(p.text[i])
		fmt.Fprintf(&out, "%s\n%s%s\n", fence, prompt, b.command)
		for _, l := range b.output {
			fmt.Fprintln(&out, l)
		}
		fmt.Fprintln(&out, fence)
	}
	out.WriteString(p.text[len(p.blocks)])
	return out.String()
}

// part says whether the page shows only a part of the output.
func (b *block) part() bool { return b.head+b.skip+b.tail+len(b.only) > 0 }

// cut is the part of an output that the page shows.
func (b *block) cut(out []string) []string {
	if len(b.only) > 0 {
		return b.chosen(out)
	}
	if b.head+b.skip+b.tail == 0 || len(out) <= b.head+b.tail {
		return out
	}
	var short []string
	if b.skip > 0 {
		short = append(short, cutOff)
	}
	end := len(out) - b.tail
	from := min(b.skip, end)
	to := end
	if b.head > 0 || b.tail > 0 {
		to = min(from+b.head, end)
	}
	short = append(short, out[from:to]...)
	if to < end {
		short = append(short, cutOff)
	}
	return append(short, out[end:]...)
}

// chosen is the findings that the mark names. A finding is a line and the indented lines
// behind it. Messages of seine are left out.
func (b *block) chosen(out []string) (short []string) {
	keep := false
	for _, l := range out {
		if !strings.HasPrefix(l, " ") {
			keep = !strings.HasPrefix(l, "seine:") && slices.ContainsFunc(strings.Fields(l), func(w string) bool { return slices.Contains(b.only, strings.Trim(w, ":,")) })
		}
		if keep {
			short = append(short, l)
		} else if len(short) > 0 && short[len(short)-1] != cutOff {
			short = append(short, cutOff)
		}
	}
	return short
}
