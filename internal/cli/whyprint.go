// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"seine/internal/why"
	"seine/internal/words"
)

// writeAnswer writes findings in a format.
func writeAnswer(w io.Writer, format string, a *why.Answer) error {
	write := findingTable
	switch format {
	case "json":
		write = findingJSON
	case "md":
		write = findingMarkdown
	}
	for _, f := range a.Findings {
		text, err := write(f)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

func findingJSON(f *why.Finding) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(f)
	return b.String(), err
}

func findingTable(f *why.Finding) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-3d %-5s %s: %s, %s\n", f.Rank, strings.ToUpper(f.Severity.String()), f.Class, words.Clean(f.About()), words.Clean(f.Title))
	fmt.Fprintf(&b, "    seen  %s\n", words.Clean(evidence(f)))
	fmt.Fprintf(&b, "    sure  %s: %s\n", f.Confidence, words.Clean(f.Reason))
	if len(f.Causes) > 0 {
		fmt.Fprintf(&b, "    from  %s\n", ranks(f.Causes))
	}
	fmt.Fprintf(&b, "    do    %s\n    next  %s\n", words.Clean(f.Advice), f.Next)
	return b.String(), nil
}

func findingMarkdown(f *why.Finding) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "## %d. %s: %s (%s, %s)\n\n%s.\n\n", f.Rank, f.Class, words.Clean(f.About()), f.Severity, f.Confidence, words.Clean(f.Title))
	for _, e := range f.Evidence {
		fmt.Fprintf(&b, "- %s: %s (%s, %.0f s)\n", words.Clean(e.What), value(e), words.Clean(e.From), e.Window)
	}
	if len(f.Causes) > 0 {
		fmt.Fprintf(&b, "- explained by %s\n", ranks(f.Causes))
	}
	fmt.Fprintf(&b, "\nWhat to do: %s.\n\nNext: `%s`\n\n", words.Clean(f.Advice), f.Next)
	return b.String(), nil
}

// ranks names findings by their rank.
func ranks(all []int) string {
	var out []string
	for _, n := range all {
		out = append(out, strconv.Itoa(n))
	}
	return "finding " + words.And(out)
}

// evidence puts all numbers on one line and names each source once, with the time that it looked
// if that was another one than the first one's.
func evidence(f *why.Finding) string {
	var b strings.Builder
	for i, e := range f.Evidence {
		fmt.Fprintf(&b, "%s %s", e.What, value(e))
		last := i+1 == len(f.Evidence)
		if last || f.Evidence[i+1].From != e.From {
			b.WriteString(" (" + e.From)
			if e.Window != f.Evidence[0].Window {
				fmt.Fprintf(&b, " in %s s", words.Thousands(uint64(e.Window+0.5)))
			}
			b.WriteString(")")
		}
		if !last {
			b.WriteString(", ")
		}
	}
	return b.String()
}

// value is a number with its unit.
func value(e why.Evidence) string {
	s := strconv.FormatFloat(e.Value, 'f', 1, 64)
	if e.Value == float64(uint64(e.Value)) {
		s = words.Thousands(uint64(e.Value))
	} else if e.Value >= 100 {
		s = words.Thousands(uint64(e.Value + 0.5))
	}
	if e.Unit == "" {
		return s
	}
	return s + " " + e.Unit
}

// WriteRules writes all rules in a format.
func WriteRules(w io.Writer, format string) error {
	for i := range why.Rules {
		r := &why.Rules[i]
		var text string
		switch format {
		case "json":
			b, err := json.Marshal(map[string]any{
				"class": r.Class, "short": r.Short, "looks": r.Looks, "threshold": r.Threshold, "severity": r.Severity, "confidence": r.Sure, "advice": r.Advice, "needs": r.Needs,
			})
			if err != nil {
				return err
			}
			text = string(b) + "\n"
		case "md":
			text = fmt.Sprintf("### %s\n\n%s.\n\n- looks at: %s\n- reported if: %s\n- severity: %s\n- confidence: %s\n- needs: %s\n- what to do: %s\n\n", r.Class, r.Short, r.Looks, r.Threshold,
				r.Severity, r.Sure, strings.Join(r.Needs, ", "), r.Advice)
		default:
			text = fmt.Sprintf("%s: %s\n    looks at    %s\n    reported if %s\n    severity    %s\n    confidence  %s\n    needs       %s\n    do          %s\n", r.Class, r.Short, r.Looks,
				r.Threshold, r.Severity, r.Sure, strings.Join(r.Needs, ", "), r.Advice)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}
