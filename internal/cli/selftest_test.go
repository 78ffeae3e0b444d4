// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"seine/internal/trial"
	"strings"
	"testing"
)

// A self-test says that a tool works only if one of its cases ran and none failed.
func TestSelftestJudges(t *testing.T) {
	wrong := errors.New("3 rows, want 5")
	skip := trial.Skip("no card")
	for _, c := range []struct {
		name    string
		cases   []error
		verdict string
		ran     int
		said    string
		code    int
	}{
		{"two pass", []error{nil, nil, wrong}, works, 2, "works (a, b)", exitOK},
		{"the first fails", []error{wrong, nil}, failed, 1, "FAILED: case a: 3 rows, want 5", exitKernel},
		{"the second fails", []error{nil, wrong}, failed, 2, "FAILED: case b: 3 rows, want 5", exitKernel},
		{"skipped ones are passed over", []error{skip, nil, skip, nil}, works, 4, "works (b, d)", exitOK},
		{"all are skipped", []error{skip, skip}, untested, 2, "not tested: skipped: no card", exitKernel},
		{"there is none", nil, untested, 0, "not tested: it has no case", exitKernel},
	} {
		var cases []trial.Case
		for i := range c.cases {
			cases = append(cases, trial.Case{Name: string(rune('a' + i))})
		}
		d := toolDiagnosis{Tool: "tcpx", Runs: true}
		d.selftest(context.Background(), cases, func(one trial.Case) error { return c.cases[one.Name[0]-'a'] })
		if d.Verdict != c.verdict || len(d.Selftest) != c.ran || d.result() != c.said {
			t.Errorf("%s: %s after %d cases, said %q; want %s after %d, %q", c.name, d.Verdict, len(d.Selftest), d.result(), c.verdict, c.ran, c.said)
		}
		line, err := (&diagnosis{Tools: []toolDiagnosis{d}}).judge()
		if code(err) != c.code || strings.HasPrefix(line, "all well") != (c.code == exitOK) {
			t.Errorf("%s: verdict %q and code %d, want code %d", c.name, line, code(err), c.code)
		}
	}
}

// Tools that this kernel cannot run do not spoil the verdict; missing privileges do.
func TestVerdict(t *testing.T) {
	of := func(verdicts ...string) *diagnosis {
		d := &diagnosis{}
		for i, v := range verdicts {
			d.Tools = append(d.Tools, toolDiagnosis{Tool: string(rune('a' + i)), Verdict: v})
		}
		return d
	}
	for _, c := range []struct {
		d    *diagnosis
		line string
		code int
	}{
		{of(works, works, cannot), "all well: 2 of 2 tools that can run here were seen to work; cannot run: c", exitOK},
		{of(works, failed, untested), "NOT WELL: 1 of 3 tools that can run here was seen to work; failed: b; not tested: c", exitKernel},
		{of(cannot, cannot), "NOT WELL: 0 of 0 tools that can run here were seen to work; cannot run: all", exitKernel},
		{of(denied, denied), "NOT ALLOWED: 0 of 2 tools that can run here were seen to work; not allowed: all", exitPermission},
		{of(works, denied, failed), "NOT ALLOWED: 1 of 3 tools that can run here was seen to work; failed: c; not allowed: b", exitPermission},
	} {
		line, err := c.d.judge()
		if line != c.line || code(err) != c.code {
			t.Errorf("got %q, code %d; want %q, code %d", line, code(err), c.line, c.code)
		}
	}
}

func TestDevelopmentVersion(t *testing.T) {
	for want, got := range map[string]string{
		"0.2.0-dev":                                    development("", "", false),
		"0.2.0-dev+gitabcdef123456 (2026-11-16)":       development("abcdef123456", "2026-11-16", false),
		"0.2.0-dev+gitabcdef123456.dirty (2026-11-16)": development("abcdef123456", "2026-11-16", true),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if v := version(); !strings.HasPrefix(v, next+"-dev") {
		t.Errorf("this build says %q", v)
	}
}
