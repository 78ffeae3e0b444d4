// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"time"
)

// StackOptions are stackcount's own.
type StackOptions struct {
	Regex, User, Kernel, PerProcess, Offsets bool
}

// StackCount compiles BCC's stackcount: by which ways functions or tracepoints
// are reached. Of kernel functions the kernel's stacks are shown, of user
// functions the user's, unless so says otherwise.
func StackCount(pattern string, so StackOptions, o Options) (*Program, error) {
	b := &bccSpec{src: &Source{Name: "stackcount", Text: pattern}, to: len(pattern)}
	s := newScript(b.src)
	c, err := b.pattern(so.Regex)
	if err != nil {
		return nil, err
	}
	if !so.User && !so.Kernel {
		so.User = b.kind == "u" || b.lib != "" && b.kind != "t"
		so.Kernel = !so.User
	}
	n := b.node()
	m := &MapRef{node: n, Name: "@"}
	if so.Kernel {
		m.Keys = append(m.Keys, &Ident{n, "kstack"})
	}
	if so.User {
		m.Keys = append(m.Keys, &Ident{n, "ustack"})
	}
	if so.PerProcess || so.User {
		m.Keys = append(m.Keys, &Ident{n, "pid"}, &Ident{n, "comm"})
	}
	c.Body = []Stmt{&Assign{Target: m, Value: &Call{node: n, Name: "count"}}}
	s.Clauses = []*Clause{c}
	o.Show = func(r *Run, now time.Time) error { return showStacks(r, so, now) }
	return compile(s, running(), o)
}

func showStacks(r *Run, so StackOptions, now time.Time) error {
	d := r.p.c.maps["@"]
	list, err := r.entries(d)
	if err != nil {
		return err
	}
	if r.rows() {
		r.emitEntries(d, list, 0, now)
	}
	if r.out == nil {
		return nil
	}
	for _, e := range list {
		key := e.key
		var pid, comm string
		for i, t := range d.keys {
			switch d.keyNames[i] {
			case "kstack", "ustack":
				for _, f := range r.frames(t, key) {
					fmt.Fprintf(r.out, "  %s\n", clean(symText(f, so.Offsets)))
				}
			case "pid":
				pid = r.text(t, key)
			case "comm":
				comm = r.text(t, key)
			}
			key = key[t.store():]
		}
		if pid != "" {
			fmt.Fprintf(r.out, "    %s [%s]\n", comm, pid)
		}
		fmt.Fprintf(r.out, "    %d\n\n", e.nums[0])
	}
	return nil
}
