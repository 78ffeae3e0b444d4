// SPDX-License-Identifier: Apache-2.0

// Package why finds what is wrong with the machine's network. Its rules look at a view of
// internal/watch. Each finding has evidence, advice and the next command. The package reads
// nothing from the machine and prints nothing.
package why

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"seine/internal/watch"
)

// Severity is how bad a finding is.
type Severity int

// The severities.
const (
	Info Severity = iota
	Warn
	Bad
)

var severities = []string{"info", "warn", "bad"}

func (s Severity) String() string { return severities[s] }

// MarshalText gives the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ParseSeverity reads the word.
func ParseSeverity(word string) (Severity, error) {
	for i, w := range severities {
		if w == word {
			return Severity(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not a severity: one of %s", word, strings.Join(severities, ", "))
}

// Confidence is how sure a finding is.
type Confidence string

// The confidences.
const (
	Certain  Confidence = "certain"  // the kernel says so
	Likely   Confidence = "likely"   // the evidence fits, and little else would explain it
	Possible Confidence = "possible" // there may be another reason
)

// An Object is what a finding is about.
type Object struct {
	Name string // as a user would say it
	watch.Who
	Lport uint16
	Raddr netip.Addr
	Rport uint16
	PID   uint32 // one of its processes, 0: unknown
}

// MarshalText gives the name.
func (o Object) MarshalText() ([]byte, error) { return []byte(o.Name), nil }

// Machine is the object of findings about the whole machine.
const Machine = "this machine"

// service makes an object of a service.
func service(k watch.ServiceKey) Object {
	if k.Comm == "" {
		k.Comm = "an unknown process"
	}
	return object(k.String(), k)
}

func object(name string, k watch.ServiceKey) Object {
	if k.Container != "" {
		name += " in " + k.Container
	}
	return Object{Name: name, Who: k.Who, Lport: k.Lport, Raddr: k.Raddr, Rport: k.Rport}
}

// Evidence is a number and its source.
type Evidence struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	From   string  `json:"from"` // a tool, or a counter of the kernel
	Window float64 `json:"window_s"`
}

// A Finding is something that is wrong.
type Finding struct {
	ID         string     `json:"id"`   // stable: a hash of class and object
	Rank       int        `json:"rank"` // from 1 on
	Class      string     `json:"class"`
	Severity   Severity   `json:"severity"`
	Object     Object     `json:"object"`
	Rname      string     `json:"rname,omitempty"` // of the remote address
	Confidence Confidence `json:"confidence"`
	Evidence   []Evidence `json:"evidence"`
	Advice     string     `json:"advice"`
	Next       string     `json:"next"` // a command that can be run as it is
	Rule       string     `json:"rule"`
	Causes     []int      `json:"causes"` // ranks of findings that explain it

	Title   string `json:"-"` // one line
	Reason  string `json:"-"` // for the confidence
	weight  float64
	patient bool // the service may wait on purpose
	caused  []*Finding
}

// About is the object with the name of its remote address.
func (f *Finding) About() string {
	if f.Rname == "" {
		return f.Object.Name
	}
	return f.Object.Name + " (" + f.Rname + ")"
}

// add appends evidence.
func (f *Finding) add(what string, value float64, unit, from string) *Finding {
	f.Evidence = append(f.Evidence, Evidence{What: what, Value: value, Unit: unit, From: from})
	return f
}

// within says how many seconds the last evidence was looked for, if not in all of the view.
func (f *Finding) within(seconds float64) *Finding {
	f.Evidence[len(f.Evidence)-1].Window = seconds
	return f
}

func (f *Finding) sure(c Confidence, reason string) *Finding {
	f.Confidence, f.Reason = c, reason
	return f
}

// id is a hash of class and object.
func (f *Finding) id() string {
	h := fnv.New64a()
	h.Write([]byte(f.Class + "\x00" + f.Object.Name))
	return fmt.Sprintf("%016x", h.Sum64())
}
