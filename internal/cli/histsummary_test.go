// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"seine/internal/enrich"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/tools"
)

// through sends one row of t's first histogram through the pipe of a command line.
func through(t *testing.T, tl *tool.Tool, h *kern.Hist, flags ...string) (string, error) {
	t.Helper()
	cfg := tl.NewConfig()
	fs := pflag.NewFlagSet(tl.Name, pflag.ContinueOnError)
	c := declare(fs, tl, cfg)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	o, err := c.options(tl, cfg, nil)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	r := &run{tool: tl, cfg: cfg, flags: c, out: &out, err: &bytes.Buffer{}}
	if r.prepared, err = tool.Prepare(tl, cfg, o); err != nil {
		t.Fatal(err)
	}
	schemas, err := r.view()
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.pipe(schemas)
	if err != nil {
		return "", err
	}
	s := schemas[slices.IndexFunc(schemas, (*row.Schema).HasHist)]
	one := s.New()
	one.Cells[slices.IndexFunc(s.Columns, func(c row.Column) bool { return c.IsHist() })] = row.Cell{Kind: row.Object, Ref: h}
	head := p.Head((&enrich.Names{}).Namers())
	if err := head.Row(one); err != nil {
		t.Fatal(err)
	}
	err = head.End(row.End{Output: true, Last: true})
	return out.String(), err
}

// Every tool that draws histograms has a line for each key in place of them; its
// numbers can be named in --columns.
func TestSummaryOfHistograms(t *testing.T) {
	h := &kern.Hist{}
	for range 97 {
		h.Add(1)
	}
	h.Add(70)
	checked := 0
	for _, tl := range tools.All {
		if !hasHist(tl) {
			continue
		}
		checked++
		lines, err := through(t, tl, h, "--summary")
		if err != nil {
			t.Errorf("%s: %v", tl.Name, err)
			continue
		}
		if !regexp.MustCompile(`(?i)COUNT +P50.* +P90.* +P99.* +MAX`).MatchString(lines) || !regexp.MustCompile(` 98 +1 +1 +[0-9]+ +70\n`).MatchString(lines) {
			t.Errorf("%s --summary writes\n%s", tl.Name, lines)
		}
		csv := []string{"--columns", "count,max", "-o", "csv"}
		if len(viewNames(tl)) > 0 {
			csv = append(csv, "--view", histView(tl))
		}
		if lines, err = through(t, tl, h, csv...); lines != "count,max\n98,70\n" || err != nil {
			t.Errorf("%s --columns count,max -o csv writes %q, error %v", tl.Name, lines, err)
		}
		if lines, err = through(t, tl, h, "--summary", "-o", "json"); err != nil || !strings.Contains(lines, `"count":98,"sum":167,"avg":1.7,"min":1,"max":70,"p50":1,`) || strings.Contains(lines, "buckets") {
			t.Errorf("%s --summary -o json writes %s, error %v", tl.Name, lines, err)
		}
	}
	if checked < 9 {
		t.Errorf("%d tools have histograms", checked)
	}
}

// histView is the first view that has a histogram.
func histView(tl *tool.Tool) string {
	for _, v := range tl.Views(tl.NewConfig()) {
		if s, err := v.Output.Schema(); err == nil && s.HasHist() {
			return v.Name
		}
	}
	return ""
}

func TestNoHistogramToSumUp(t *testing.T) {
	tcplife, _ := find("tcplife")
	if _, err := through(t, tcplife, nil, "--summary"); err == nil || !strings.Contains(err.Error(), "no histogram") {
		t.Errorf("tcplife --summary: %v", err)
	}
}
