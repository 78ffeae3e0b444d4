// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"

	"seine/internal/watch"
)

// Options change what the rules report. The zero value works.
type Options struct {
	Slow    float64 // a turn is slow from so many milliseconds on; 0: 100
	Patient bool    // include services whose answers may wait on purpose
	// Past is the time before the view. A service that has become slower is a finding too. Nil:
	// it is not known.
	Past *watch.View
}

func (o Options) filled() Options {
	if o.Slow == 0 {
		o.Slow = 100
	}
	return o
}

// A Rule finds one class of faults.
type Rule struct {
	Class     string
	Short     string   // what the class means
	Looks     string   // what it looks at
	Threshold string   // when it reports a finding
	Severity  string   // of its findings
	Sure      string   // its confidence, and why
	Advice    string   // what to do
	Needs     []string // sources that it cannot judge without: tools, or watch.Counters
	Any       bool     // one of Needs is enough
	find      func(j *judge) []*Finding
	// closer is the command line of a tool that looks more closely at what the rule has
	// found. Nil: no tool does.
	closer func(found []*Finding) string
}

// Rules are all rules, in the order of the classes of the command line's contract.
var Rules = slices.Concat(turnRules, lossRules, pathRules, connectRules, queueRules, limitRules, resetRules, dnsRules, kernelRules)

// Lookup is the rule of a class, nil if there is none.
func Lookup(class string) *Rule {
	for i := range Rules {
		if Rules[i].Class == class {
			return &Rules[i]
		}
	}
	return nil
}

// unasked says why a rule cannot judge a view. It is empty if the rule can.
func (r *Rule) unasked(v *watch.View) string {
	var missing []string
	for _, n := range r.Needs {
		if v.Asked(n) {
			if r.Any {
				return ""
			}
			continue
		}
		if s, ok := v.Sources[n]; ok {
			missing = append(missing, n+": "+s.Why)
		} else {
			missing = append(missing, n+" did not run")
		}
	}
	return strings.Join(missing, "; ")
}

// judge is the input of a rule.
type judge struct {
	*watch.View
	Options
	rule *Rule
}

// finding makes a finding of the rule, without evidence yet.
func (j *judge) finding(o Object, s Severity, weight float64) *Finding {
	return &Finding{
		Class: j.rule.Class, Rule: j.rule.Looks + ": " + j.rule.Threshold, Severity: s, Object: o, Advice: j.rule.Advice,
		Title: j.rule.Short, weight: weight, Confidence: Likely, Evidence: []Evidence{}, Causes: []int{},
	}
}

// worse is Bad if bad, else Warn.
func worse(bad bool) Severity {
	if bad {
		return Bad
	}
	return Warn
}
