// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"seine/internal/host"
	"seine/internal/trial"
	"seine/internal/words"
)

// Verdicts of a self-test on one tool.
const (
	works    = "works"      // a case ran, and none failed
	failed   = "failed"     // a case did not give the expected rows
	untested = "untested"   // it attaches, but no case can run here
	cannot   = "cannot run" // this kernel lacks what the tool needs
	denied   = "denied"     // privileges are missing
)

// A self-test runs one or two cases of each tool. The second one runs only where
// the first was quick, so that all tools together take well under a minute.
const (
	mostCases = 2
	quick     = 400 * time.Millisecond
)

type testDiagnosis struct {
	Case    string  `json:"case"`
	OK      bool    `json:"ok"`
	Skipped bool    `json:"skipped,omitempty"`
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds"`
}

// selftest runs the first of a tool's cases that can run here, and sets the verdict.
func (d *toolDiagnosis) selftest(ctx context.Context, cases []trial.Case, run func(trial.Case) error) {
	if !d.Runs {
		return
	}
	d.Verdict = untested
	ran := 0
	for _, c := range cases {
		if c.Slow {
			continue
		}
		if ctx.Err() != nil {
			d.Why = "interrupted"
			return
		}
		began := time.Now()
		err := run(c)
		took := time.Since(began)
		r := testDiagnosis{Case: c.Name, OK: err == nil, Skipped: errors.Is(err, trial.ErrSkip), Seconds: took.Round(time.Millisecond).Seconds()}
		if err != nil {
			r.Why = oneLine(err)
		}
		d.Selftest = append(d.Selftest, r)
		switch {
		case r.Skipped:
			d.Why = r.Why
			continue
		case err != nil && ctx.Err() != nil:
			d.Verdict, d.Why = untested, "interrupted"
			return
		case err != nil:
			d.Verdict, d.Why = failed, "case "+c.Name+": "+r.Why
			if errors.Is(err, os.ErrPermission) && !host.HasCap(host.CapSysAdmin) {
				d.Verdict = denied
			}
			return
		}
		d.Verdict, d.Why = works, ""
		if ran++; ran == mostCases || took > quick {
			return
		}
	}
}

// result is the text that the self-test prints behind a tool's name.
func (d *toolDiagnosis) result() string {
	switch d.Verdict {
	case works:
		var cases []string
		for _, s := range d.Selftest {
			if s.OK {
				cases = append(cases, s.Case)
			}
		}
		return works + " (" + strings.Join(cases, ", ") + ")"
	case failed:
		return "FAILED: " + d.Why
	case untested:
		return "not tested: " + or(d.Why, "it has no case")
	case denied:
		return "not allowed: " + d.lacks()
	}
	return "cannot run: " + d.Why
}

// judge gives the self-test's last line and the error that holds its exit code.
func (d *diagnosis) judge() (string, error) {
	names := map[string][]string{}
	for _, t := range d.Tools {
		names[t.Verdict] = append(names[t.Verdict], t.Tool)
	}
	can := len(d.Tools) - len(names[cannot])
	line := fmt.Sprintf("%d of %s that can run here %s seen to work", len(names[works]), words.Count(uint64(can), "tool", "tools"), were(len(names[works])))
	for _, v := range []struct{ verdict, said string }{{failed, "failed"}, {untested, "not tested"}, {denied, "not allowed"}, {cannot, "cannot run"}} {
		if all := names[v.verdict]; len(all) > 0 && len(all) == len(d.Tools) {
			line += "; " + v.said + ": all"
		} else if len(all) > 0 {
			line += "; " + v.said + ": " + strings.Join(all, ", ")
		}
	}
	switch {
	case len(names[denied]) > 0:
		return "NOT ALLOWED: " + line, exitCode(exitPermission)
	case len(names[works]) < can || can == 0:
		return "NOT WELL: " + line, exitCode(exitKernel)
	}
	return "all well: " + line, nil
}

func were(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
