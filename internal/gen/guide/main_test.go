// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPages: every mark of every page is known, every block has output, and blocks that
// show seine with output are marked, so that make docs reruns them.
func TestPages(t *testing.T) {
	list, err := files("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("only %d pages found", len(list))
	}
	index, err := os.ReadFile("../../../docs/guide/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(string(text))
		if err != nil {
			t.Errorf("%s:%v", path, err)
			continue
		}
		if got := p.String(); got != string(text) {
			t.Errorf("%s: a page that nothing changed is written otherwise", path)
		}
		for _, b := range p.blocks {
			blocks++
			if len(b.output) == 0 {
				t.Errorf("%s:%d: no output: run go run ./internal/gen/guide -update", path, b.line)
			}
		}
		for i, between := range p.text {
			if strings.Contains(between, fence+"\n"+prompt) {
				t.Errorf("%s: a block with a command has no mark, behind block %d", path, i)
			}
		}
		if name := filepath.Base(path); filepath.Base(filepath.Dir(path)) == "guide" && name != "README.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/guide/README.md does not lead to %s", name)
		}
	}
	if blocks < 25 {
		t.Errorf("only %d blocks found", blocks)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"<!-- run beside=nobody -->\n```\n# seine list\n```\n": `1: there is no load "nobody"`,
		"a\n<!-- run hed=3 -->\n```\n# seine list\n```\n":      `2: a mark has no option "hed"`,
		"<!-- run -->\n\n```\n# seine list\n```\n":             `1: no block with a command ("# ") behind the mark`,
		"<!-- run -->\n```\n# seine list\nx\n":                 `1: the block has no end`,
	} {
		if _, err := parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestShape: figures that differ from run to run are gone, and the rest is there.
func TestShape(t *testing.T) {
	for line, want := range map[string]string{
		"12:19:34.187455   17469 browser    192.0.2.1:26016    L> 192.0.2.2:8080    tlp    ESTABLISHED": "T N browser 192.0.2.1:N L> 192.0.2.2:8080 tlp ESTABLISHED",
		"[64K, 128K)            36 |@@@@@@   |":                                                         "[N, N) N |@|",
		"count 36, avg 82822, p99 94302":                                                                "count N, avg N, p99 N",
		`{"time":"2026-11-17T12:29:13.8Z","comm":"db","count":33,"ms":1.5}`:                             `{"time":"T","comm":"db","count":N,"ms":N}`,
		"seine: 6 rows, 0 lost, 2.4s":                                                                   "seine: N rows, N lost, N",
		"NO_SOCKET            __udp4_lib_rcv+0x4bc      22":                                             "NO_SOCKET __udp4_lib_rcv+N N",
		"web   2001:db8::2   -":                                                                         "web 2001:db8::2 N",
	} {
		if got := shape(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// TestCompare: a figure of a column that the mark names counts, and so does a line that
// the page lacks, unless the block may vary.
func TestCompare(t *testing.T) {
	page := []string{"REASON  COUNT", "NO_SOCKET  23", "seine: 1 row, 0 lost, 0.4s"}
	for name, c := range map[string]struct {
		b          block
		out        []string
		gone, come []string
	}{
		"figures":    {block{}, []string{"REASON  COUNT", "NO_SOCKET  99", "seine: 1 row, 0 lost, 7s"}, nil, nil},
		"exact":      {block{exact: []string{"COUNT"}}, []string{"REASON  COUNT", "NO_SOCKET  22", "seine: 1 row, 0 lost, 7s"}, []string{"NO_SOCKET 23"}, []string{"NO_SOCKET 22"}},
		"new line":   {block{}, append([]string{"UDP_CSUM 5"}, page...), nil, []string{"UDP_CSUM N"}},
		"may vary":   {block{vary: true}, append([]string{"UDP_CSUM 5"}, page...), nil, nil},
		"gone":       {block{vary: true}, page[:1], []string{"NO_SOCKET N", "seine: N row, N lost, N"}, nil},
		"first time": {block{vary: true}, page, nil, nil},
	} {
		c.b.output = page
		gone, come := c.b.compare(c.out)
		if !slices.Equal(gone, c.gone) || !slices.Equal(come, c.come) {
			t.Errorf("%s: gone %q, come %q; want %q, %q", name, gone, come, c.gone, c.come)
		}
	}
	b := block{vary: true, head: 1}
	if _, come := b.compare(page); len(come) != 3 {
		t.Errorf("a block without output takes %q", come)
	}
}

// TestChosen: the findings that a mark names, each with its lines, and a mark for the rest.
func TestChosen(t *testing.T) {
	out := []string{"seine: web asks db, which", "1 WARN app-slow: db :5432, slow", "    next  seine flows", "2 WARN peer-slow: web → db.example:5432", "    next  x", "3 BAD accept-queue: web :80", "    do  y", "seine: 3 findings"}
	b := block{only: []string{"db", "accept-queue"}}
	want := append(append(append([]string{}, out[1:3]...), cutOff), append(slices.Clone(out[5:7]), cutOff)...)
	if got := b.cut(out); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b.output = want
	if gone, come := b.compare(out); len(gone)+len(come) > 0 {
		t.Errorf("gone %q, new %q", gone, come)
	}
	if gone, _ := b.compare(out[:5]); len(gone) != 2 {
		t.Errorf("without the third: gone %q, want two lines", gone)
	}
}

func TestCut(t *testing.T) {
	out := []string{"1", "2", "3", "4", "5", "6"}
	for want, b := range map[string]block{
		"1 2 3 4 5 6": {},
		"1 2 …":       {head: 2},
		"… 5 6":       {tail: 2},
		"1 … 6":       {head: 1, tail: 1},
		"… 3 4 5 6":   {skip: 2},
		"… 3 …":       {skip: 2, head: 1},
	} {
		if got := strings.Join(b.cut(out), " "); got != want {
			t.Errorf("skip %d, head %d, tail %d: %s, want %s", b.skip, b.head, b.tail, got, want)
		}
	}
}
