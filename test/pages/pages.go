// SPDX-License-Identifier: Apache-2.0

// Package pages reads the documents of this tree: the commands that they show and
// the links that they have.
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// A Page is one document.
type Page struct {
	Path  string // from the root of the tree
	lines []line
}

// A line is text, or code if it is in a fenced or indented block.
type line struct {
	number int
	text   string
	code   bool
}

// A Span is a piece of a page and its line.
type Span struct {
	Line int
	Text string
}

// All reads the documents below root: every file that ends in .md.
func All(root string) (out []*Page, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		out = append(out, Parse(name, string(text)))
		return nil
	})
	return out, err
}

// Parse splits a document into lines of text and lines of code. A command that
// continues after a backslash is one line.
func Parse(path, text string) *Page {
	p := &Page{Path: path}
	fenced, number := false, 0
	for l := range strings.Lines(text) {
		number++
		l = strings.TrimRight(l, "\n")
		if strings.HasPrefix(l, "```") {
			fenced = !fenced
			continue
		}
		code := fenced || strings.HasPrefix(l, "    ")
		if last := len(p.lines) - 1; code && last >= 0 && p.lines[last].code && strings.HasSuffix(p.lines[last].text, "\\") {
			p.lines[last].text = strings.TrimSuffix(p.lines[last].text, "\\") + strings.TrimSpace(l)
			continue
		}
		p.lines = append(p.lines, line{number, l, code})
	}
	return p
}

// shown is a line of code that calls seine, with or without a prompt.
var shown = regexp.MustCompile(`^(?:    )?(?:[#$] )?(?:\./)?(seine [a-z].*)$`)

// Commands is what the page shows in blocks of code.
func (p *Page) Commands() (out []Span) {
	for _, l := range p.lines {
		if m := shown.FindStringSubmatch(l.text); m != nil && l.code {
			out = append(out, Span{l.number, outside(m[1])})
		}
	}
	return out
}

// Code is the lines of the page's blocks of code.
func (p *Page) Code() []Span { return p.spans(true) }

// Text is the lines of the page outside of blocks of code.
func (p *Page) Text() []Span { return p.spans(false) }

func (p *Page) spans(code bool) (out []Span) {
	for _, l := range p.lines {
		if l.code == code {
			out = append(out, Span{l.number, l.text})
		}
	}
	return out
}

var inline = regexp.MustCompile("`([^`]+)`")

// Inline is the code between backticks in the page's text.
func (p *Page) Inline() (out []Span) {
	for _, l := range p.lines {
		for _, m := range inline.FindAllStringSubmatch(l.text, -1) {
			if !l.code {
				out = append(out, Span{l.number, m[1]})
			}
		}
	}
	return out
}

// Torn is the lines of text that end within code between backticks.
func (p *Page) Torn() (out []Span) {
	for _, l := range p.lines {
		if !l.code && strings.Count(l.text, "`")%2 != 0 {
			out = append(out, Span{l.number, l.text})
		}
	}
	return out
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:href|src)="([^"]+)"`)

// Links is the targets of the page's links and pictures.
func (p *Page) Links() (out []Span) {
	for _, l := range p.lines {
		if l.code {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(l.text, ""), -1) {
			out = append(out, Span{l.number, m[1] + m[2]})
		}
	}
	return out
}

// Anchors is the headings of the page, as links name them.
func (p *Page) Anchors() map[string]bool {
	out := map[string]bool{}
	for _, l := range p.lines {
		if title := strings.TrimLeft(l.text, "#"); !l.code && title != l.text && strings.HasPrefix(title, " ") {
			out[anchor(title)] = true
		}
	}
	return out
}

// anchor is a heading as GitHub writes it into a link: letters and digits in lower
// case, a hyphen for a space, nothing for the rest.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(title))
}

// outside is a command up to a pipe, a redirection, a comment, or the gap before
// what explains it.
func outside(c string) string {
	quote := byte(0)
	for i := range len(c) {
		switch b := c[i]; {
		case quote != 0:
			if b == quote {
				quote = 0
			}
		case b == '\'' || b == '"':
			quote = b
		case strings.HasPrefix(c[i:], " 2>"), b == '|', b == '>', b == '&', b == ';', b == '#' && c[i-1] == ' ', strings.HasPrefix(c[i:], "  "):
			return strings.TrimSpace(c[:i])
		}
	}
	return strings.TrimSpace(c)
}
