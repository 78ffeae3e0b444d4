// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
)

// handle does what a record asks for.
func (r *Run) handle(data []byte) {
	if len(data) < recordHead || word(data) >= uint64(len(r.p.u.actions)) || len(data)-recordHead < r.p.u.actions[word(data)].size() {
		r.broken++
		return
	}
	a := r.p.u.actions[word(data)]
	if r.exit && a.probe != End.String() {
		return // after exit() or -n only END has a say
	}
	ev := &Event{a: a, Time: time.Now(), data: data[recordHead:]}
	if at := word(data[8:]); at != 0 {
		ev.Time = kern.Wall(kern.Mono(at))
	}
	switch a.kind {
	case "printf":
		if r.p.opts.Line != nil {
			r.p.opts.Line(r, ev)
			r.line()
			return
		}
		r.write(ev, r.sprintf(ev))
	case "read":
		r.readFailed(ev)
	case "errorf", "warnf":
		r.errors += int(b2i(a.kind == "errorf"))
		r.p.opts.note("%s", strings.TrimSuffix(r.sprintf(ev), "\n"))
	case "time":
		r.write(ev, strftime(a.format, time.Now()))
	case "cat":
		r.cat(ev)
	case "system":
		r.system(ev)
	case "join":
		r.write(ev, r.joined(ev)+"\n")
	case "value":
		r.value(ev)
	case "print":
		r.print(ev)
	case "clear":
		r.clear(a.m, false)
	case "zero":
		r.clear(a.m, true)
	case "seen":
		r.procs.Seen(uint32(word(ev.data)))
	case "skboutput":
		r.packet(ev)
	case "unwatch":
		r.a.unwatch(word(ev.data))
	case "exit":
		r.exit = true
		if len(a.types) > 0 {
			r.Code = int(int32(word(ev.data)))
		}
		r.stop()
	}
}

func (a *action) size() int {
	n := 0
	for _, t := range a.types {
		n += t.store()
	}
	if a.kind == "join" {
		n += joinMost * joinLen
	}
	return n
}

// line counts a line of output for -n.
func (r *Run) line() {
	r.lines++
	if o := &r.p.opts; o.Count > 0 && o.Interval == 0 && r.lines >= o.Count {
		r.exit = true
		r.stop()
	}
}

// write puts out text as it is, and as a row with the values by name.
func (r *Run) write(ev *Event, s string) {
	if r.native() {
		r.nativeText(ev, s)
	} else if r.out != nil {
		r.out.WriteString(s)
	}
	if r.rows() {
		r.emitEvent(ev, s)
	}
	r.line()
}

// sprintf formats the values of a record.
func (r *Run) sprintf(ev *Event) string {
	var s strings.Builder
	b := ev.data
	for i, v := range ev.a.verbs {
		t := ev.a.types[i]
		s.WriteString(text(v.before))
		switch {
		case v.form == 'g':
			s.WriteString(v.str(gfp(word(b), gfpNames())))
		case t.Kind == Buffer:
			s.WriteString(v.bytes(b[8 : 8+min(int(word(b)), t.Len)]))
		case v.conv == 's' && ev.a.texts[i] != nil: // colours are meant
			s.WriteString(v.str(*ev.a.texts[i]))
		case v.conv == 's' || v.conv == 'r':
			s.WriteString(v.str(r.text(t, b)))
		default:
			s.WriteString(v.number(int64(word(b)), t))
		}
		b = b[t.store():]
	}
	s.WriteString(text(tail(ev.a.format)))
	return s.String()
}

func (r *Run) joined(ev *Event) string {
	var parts []string
	for i := range joinMost {
		p := ev.data[i*joinLen : (i+1)*joinLen]
		if p[0] == 0 {
			break
		}
		parts = append(parts, clean(cstring(p)))
	}
	return strings.Join(parts, ev.a.format)
}

func (r *Run) value(ev *Event) {
	t := ev.a.types[0]
	text := r.text(t, ev.data)
	if own := ev.a.texts[0]; own != nil {
		text = *own
	}
	r.write(ev, text+"\n")
}

// print is print(@map) and print(@map[key]), one output to -n.
func (r *Run) print(ev *Event) {
	defer r.line()
	a := ev.a
	d := a.m
	if !a.key {
		_ = r.show(d, a.top, a.div, time.Now())
		return
	}
	e := &entry{key: ev.data[:d.keySize()]}
	if d.value.aggregate() {
		if e = r.one(d, e.key); e == nil {
			return
		}
	} else {
		e.value = ev.data[d.keySize():]
	}
	if r.native() {
		r.nativeMap(d, []*entry{e}, a.div)
	} else if r.out != nil {
		r.printValue(r.out, d, e, a.div) // the key is known: bpftrace prints the value alone
	}
	if r.rows() {
		r.emitEntries(d, []*entry{e}, 0, ev.Time)
	}
}

func (r *Run) cat(ev *Event) {
	name := r.sprintf(ev)
	data, err := os.ReadFile(name)
	if err != nil {
		r.p.opts.note("cat(%q): %v", name, err)
		return
	}
	data = data[:min(len(data), r.p.set.catBytes)]
	r.write(ev, string(data))
}

// system runs a command of the script: with --unsafe only. When the run ends, it
// ends too, and those that have not begun are only counted; but for END's.
func (r *Run) system(ev *Event) {
	ctx := r.ctx
	if ev.a.probe == End.String() {
		ctx = context.Background()
	} else if ctx.Err() != nil {
		r.unrun++
		return
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.sprintf(ev))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end what it starts too
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	r.write(ev, string(out))
	if ctx.Err() != nil {
		r.unrun++
		return
	}
	if err != nil {
		r.p.opts.note("system(): %v", err)
	}
	_ = r.flush() // the ring need not be empty for a long time; an error comes again
}

// Summary is what was lost, in words; empty if nothing was.
func (l Lost) Summary() []string {
	var out []string
	say := func(n uint64, one, many, why string) {
		switch {
		case n == 1:
			out = append(out, "1 "+one+": "+why)
		case n > 1:
			out = append(out, fmt.Sprintf("%d %s: %s", n, many, why))
		}
	}
	say(l.Events, "event was lost", "events were lost", "the ring was full. Try a larger --buffer, or a predicate")
	say(l.Updates, "update of a map was refused", "updates of maps were refused", "a map was full. Set config = { max_map_keys = … }, or use fewer keys")
	say(l.Runs, "event was not handled", "events were not handled", "too many interrupted one another")
	say(l.Stacks, "stack was not kept", "stacks were not kept", "there were too many different ones")
	say(l.Skipped, "run of a BPF program was skipped by the kernel", "runs of BPF programs were skipped by the kernel", "they came in the middle of another one, or another tracer is at the same hooks")
	say(l.Cut, "reading of a map was cut short", "readings of maps were cut short", "its keys came and went meanwhile, so that some are missing. Use fewer keys")
	say(l.Commands, "command of system() was not run", "commands of system() were not run", "the run ended before they did. Call it less often, or use a predicate")
	say(l.Loops, "loop was ended", "loops were ended", fmt.Sprintf("the kernel allows no more than %d turns", maxTurns))
	say(l.Broken, "record could not be understood", "records could not be understood", "this is a mistake of seine: please report it")
	return out
}
