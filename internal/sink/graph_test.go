// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"seine/internal/row"
)

// svgTexts has Graphviz draw the graph and returns what can be read in it.
func svgTexts(t *testing.T, source []byte) map[string]int {
	t.Helper()
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("Graphviz is not installed")
	}
	cmd := exec.Command("dot", "-Tsvg")
	cmd.Stdin = bytes.NewReader(source)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	svg, err := cmd.Output()
	if err != nil || strings.Contains(complaints.String(), "syntax error") || strings.Contains(complaints.String(), "Warning: not") {
		t.Fatalf("dot: %v: %s", err, complaints.String())
	}
	texts := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			inText = tok.Name.Local == "text"
		case xml.CharData:
			if inText {
				texts[strings.ReplaceAll(string(tok), "\u00a0", " ")]++ // Graphviz writes spaces as no-break ones
			}
		case xml.EndElement:
			inText = false
		}
	}
}

func TestDotDrawsHostileNames(t *testing.T) {
	s := life()
	g := Graph{From: []string{"comm"}, To: []string{"raddr", "rport"}, Sum: []string{"tx_bytes", "rx_bytes"}}
	texts := svgTexts(t, render(t, "dot", Options{Schemas: []*row.Schema{s}, Graph: g}, hostileRows(s)))
	for _, h := range hostile {
		want := string(appendEscaped(nil, h))
		if texts[want] != 1 && texts[strings.TrimSpace(want)] != 1 {
			t.Errorf("no node %.60q", want)
		}
	}
	if n := texts["1 session, tx 3 B, rx 4 B"]; n != len(hostile) {
		t.Errorf("%d edges, want %d", n, len(hostile))
	}
	if n := texts["["+six.String()+"]:2"]; n != 1 {
		t.Errorf("%d nodes for the remote end, want 1", n)
	}
}

func TestDotAddsUp(t *testing.T) {
	s := life()
	g := Graph{From: []string{"comm", "pid"}, To: []string{"raddr"}, Sum: []string{"tx_bytes", "duration_ms"}, Noun: "calls"}
	var rows []*row.Row
	for range 23 {
		rows = append(rows, fill(s, moment, 7, "curl", four, 1, four, 2, 1<<20, nil, 500_000))
	}
	rows = append(rows, fill(s, moment, nil, nil, four, 1, six, 2), fill(s))
	got := string(render(t, "dot", Options{Schemas: []*row.Schema{s}, Graph: g}, rows))
	for _, want := range []string{
		`[label="curl 7",shape="box"]`, `[label="10.0.0.1"]`, `[label="` + six.String() + `"]`,
		`[label="23 calls, tx 23.0 MB, duration_ms 11.5"]`, `[label="1 call"]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if texts := svgTexts(t, []byte(got)); texts["unknown"] != 2 { // a process, a host
		t.Errorf("%d unknown nodes, want 2", texts["unknown"])
	}
}

func TestDotBound(t *testing.T) {
	s := life()
	g := Graph{From: []string{"pid"}, To: []string{"raddr"}}
	var b bytes.Buffer
	out, err := New("dot", &b, Options{Schemas: []*row.Schema{s}, Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxEdges + 23 {
		if err := out.Row(fill(s, moment, i, nil, nil, nil, four)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.End(row.End{Output: true}); err != nil || b.Len() > 0 {
		t.Errorf("%d bytes before the last end, error %v", b.Len(), err)
	}
	for range 2 { // the second one adds nothing
		if err := out.End(row.End{Last: true}); err != nil {
			t.Fatal(err)
		}
	}
	if n := bytes.Count(b.Bytes(), []byte("->")); n != maxEdges {
		t.Errorf("%d edges, want %d", n, maxEdges)
	}
	if want := fmt.Sprintf("23 sessions are not drawn: more than %d edges", maxEdges); !bytes.Contains(b.Bytes(), []byte(want)) {
		t.Errorf("the graph does not say %q", want)
	}
	if n := bytes.Count(b.Bytes(), []byte("digraph")); n != 1 {
		t.Errorf("%d graphs", n)
	}
}

func TestDotErrors(t *testing.T) {
	s := life()
	for _, g := range []Graph{{}, {From: []string{"comm"}}, {From: []string{"com"}, To: []string{"raddr"}}} {
		if _, err := New("dot", io.Discard, Options{Schemas: []*row.Schema{s}, Graph: g}); err == nil {
			t.Errorf("%+v was taken", g)
		}
	}
}

func TestFolded(t *testing.T) {
	z := sizes()
	if _, err := New("folded", io.Discard, Options{Schemas: []*row.Schema{z}}); err == nil {
		t.Error("rows without stacks were taken")
	}
	d := drops()
	line := regexp.MustCompile(`^[^; ]+(;[^; ]+)* [0-9]+$`)
	rows := dropRows(d)
	for _, h := range hostile {
		rows = append(rows, fill(d, h, nil, 3, rows[0].Cells[3].Ref))
	}
	b := render(t, "folded", Options{Schemas: []*row.Schema{d, z}}, append(rows, sizeRows(z)...))
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) != len(rows) {
		t.Errorf("%d lines for %d rows with stacks", len(lines), len(rows))
	}
	for _, l := range lines {
		if !line.MatchString(l) {
			t.Errorf("%q is not folded", l)
		}
	}
	// Without a column count, a histogram's.
	z.Columns = append(z.Columns, row.Column{ID: "ustack", Kind: row.Object, As: "ustack"})
	got := render(t, "folded", Options{Schemas: []*row.Schema{z}}, []*row.Row{fill(z, moment, "x", "read", hist(1, 2, 3), rows[0].Cells[4].Ref)})
	if want := "x;[anon];[app];std::map<int,_a:b>::at(int)_;connect 3\n"; string(got) != want {
		t.Errorf("got %s want %s", got, want)
	}
}
