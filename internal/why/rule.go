// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"

	"seine/internal/watch"
)

// Options are what a user may ask of the rules. The zero value works.
type Options struct {
	Slow    float64 // milliseconds from which on a turn is slow; 0: 100
	Patient bool    // tell of services too whose answers may wait on purpose
}

func (o Options) filled() Options {
	if o.Slow == 0 {
		o.Slow = 100
	}
	return o
}

// A Rule finds one class of trouble.
type Rule struct {
	Class     string
	Short     string   // what the class means
	Looks     string   // what it looks at
	Threshold string   // when it speaks
	Severity  string   // which ones it gives
	Sure      string   // its confidence, and why
	Advice    string   // what to do
	Needs     []string // sources without which it cannot judge: tools, or watch.Counters
	Any       bool     // one of Needs is enough
	find      func(j *judge) []*Finding
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

// unasked says why a rule cannot judge a view; empty: it can.
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
			missing = append(missing, n+" was not asked")
		}
	}
	return strings.Join(missing, "; ")
}

// judge is what rules work with.
type judge struct {
	*watch.View
	Options
	rule *Rule
}

// finding begins one of the rule's findings.
func (j *judge) finding(o Object, s Severity, weight float64) *Finding {
	return &Finding{
		Class: j.rule.Class, Rule: j.rule.Looks + ": " + j.rule.Threshold, Severity: s, Object: o, Advice: j.rule.Advice,
		Title: j.rule.Short, weight: weight, Confidence: Likely, Evidence: []Evidence{}, Causes: []int{},
	}
}

// worse is bad from so much on, else warn.
func worse(bad bool) Severity {
	if bad {
		return Bad
	}
	return Warn
}
