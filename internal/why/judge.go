// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"seine/internal/watch"
)

// An Answer holds the findings of all rules about a view.
type Answer struct {
	Findings []*Finding // worst first, but a cause comes before its effect
	Patient  []*Finding // left out: services whose answers may wait on purpose
	Judged   []string   // classes that could be judged
	Unjudged []Unjudged
}

// Unjudged is a class that could not be judged.
type Unjudged struct{ Class, Why string }

// Judge applies all rules to a view.
func Judge(v *watch.View, o Options) *Answer {
	o = o.filled()
	a := &Answer{}
	by := map[string]*Finding{}
	for i := range Rules {
		r := &Rules[i]
		if why := r.unasked(v); why != "" {
			a.Unjudged = append(a.Unjudged, Unjudged{r.Class, why})
			continue
		}
		a.Judged = append(a.Judged, r.Class)
		for _, f := range r.find(&judge{View: v, Options: o, rule: r}) {
			f.ID = f.id()
			if v.Name != nil && f.Object.Raddr.IsValid() {
				f.Rname = v.Name(f.Object.Who, f.Object.Raddr)
			}
			for i := range f.Evidence {
				if e := &f.Evidence[i]; e.Window == 0 { // else it is of the past, or of a closer look
					e.Window = v.Seconds()
				}
			}
			if was := by[f.ID]; was == nil || f.Severity > was.Severity || f.Severity == was.Severity && f.weight > was.weight {
				by[f.ID] = f
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		if f := by[id]; f.patient && !o.Patient {
			a.Patient = append(a.Patient, f)
		} else {
			a.Findings = append(a.Findings, f)
		}
	}
	join(a.Findings, v)
	a.Findings = ranked(a.Findings)
	return a
}

// ranked sorts findings: the worst comes first, but the causes of a finding come before it.
func ranked(all []*Finding) []*Finding {
	slices.SortFunc(all, func(a, b *Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(b.weight, a.weight), strings.Compare(a.ID, b.ID))
	})
	out := make([]*Finding, 0, len(all))
	placed := map[*Finding]bool{}
	var place func(f *Finding)
	place = func(f *Finding) {
		if placed[f] {
			return
		}
		placed[f] = true // before its causes, because two findings may explain each other
		for _, c := range all {
			if slices.Contains(f.caused, c) {
				place(c)
			}
		}
		out = append(out, f)
	}
	for _, f := range all {
		place(f)
	}
	for i, f := range out {
		f.Rank = i + 1
	}
	for _, f := range out {
		for _, c := range f.caused {
			f.Causes = append(f.Causes, c.Rank)
		}
		slices.Sort(f.Causes)
		if len(f.Causes) > 0 && (f.Class == "app-slow" || f.Class == "peer-slow") {
			f.Advice = "start with the finding that this one comes from: the service waits for it"
		}
	}
	return out
}

// join records which findings explain which.
func join(all []*Finding, v *watch.View) {
	ends := bothEnds{v, meetings(all, v)}
	slices.SortFunc(all, func(a, b *Finding) int { return strings.Compare(a.ID, b.ID) })
	for _, effect := range all {
		for _, cause := range all {
			if cause != effect && ends.explain(cause, effect) {
				effect.caused = append(effect.caused, cause)
			}
		}
	}
}

var (
	fullQueue = []string{"accept-queue", "syn-queue"}
	losses    = []string{"loss-fast", "loss-tail", "loss-timeout"}
	dropping  = []string{"packets-dropped", "local-queue", "softirq-starved"}
	// ofServers are faults of a server that its client sees as a slow peer.
	ofServers = append([]string{"app-slow", "reads-late", "send-buffer", "path", "delayed-ack", "mtu-blackhole", "loss-spurious"}, losses...)
	// ofBoth are faults that both ends of a connection see.
	ofBoth = append([]string{"path", "delayed-ack", "resets", "loss-spurious", "peer-window"}, losses...)
)

// explain reports whether one finding is the cause of another.
func (e bothEnds) explain(cause, effect *Finding) bool {
	is := func(f *Finding, classes []string) bool { return slices.Contains(classes, f.Class) }
	switch {
	case effect.Class == cause.Class && is(effect, ofBoth): // the same, seen by the client
		return e.same(cause, effect)
	case effect.Class == "peer-slow" && is(cause, ofServers): // the peer is on this machine
		return e.same(cause, effect)
	case effect.Class == "peer-window" && cause.Class == "reads-late":
		return e.same(cause, effect) || e.same(effect, cause)
	case effect.Class == "app-slow" && cause.Class == "peer-slow": // it waits for a service that it calls
		return cause.Object.Who == effect.Object.Who
	case effect.Class == "app-slow" && (cause.Class == "dns-slow" || cause.Class == "dns-failing"):
		return cause.Object.Comm != "" && cause.Object.Who == effect.Object.Who
	case effect.Class == "connect-unanswered" && is(cause, fullQueue):
		return e.same(cause, effect)
	case is(effect, fullQueue) && (cause.Class == "app-slow" || cause.Class == "fds-exhausted"): // too busy to accept, or it cannot
		return cause.Object.Who == effect.Object.Who && cause.Object.Lport == effect.Object.Lport
	case is(effect, losses) && is(cause, fullQueue): // segments sent before the accept are dropped
		return e.same(cause, effect)
	case is(effect, losses) && is(cause, dropping):
		return cause.Severity >= Warn && (cause.Object.Netns == 0 || cause.Object.Netns == effect.Object.Netns)
	case effect.Class == "softirq-starved" && cause.Class == "cpu-imbalance": // the other processors could help
		return true
	case effect.Class == "connect-unanswered" && cause.Class == "packets-dropped":
		return cause.Severity >= Warn && (cause.Object.Netns == 0 || cause.Object.Netns == effect.Object.Netns)
	}
	return false
}
