// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"seine/internal/probe"
)

// List writes the probes that match a pattern: TYPE:REST, with * and ?, or a
// word that is looked for in all of them; several with commas between; or a type of the kernel,
// as struct NAME. With args, each is followed by its
// arguments.
func List(w io.Writer, pattern string, args bool) error {
	for one := range strings.SplitSeq(pattern, ",") {
		if err := list(w, strings.TrimSpace(one), args); err != nil {
			return err
		}
	}
	return nil
}

func list(w io.Writer, pattern string, args bool) error {
	k := running()
	kind, rest, hasKind := strings.Cut(pattern, ":")
	want := func(k ProbeKind) bool {
		if !hasKind {
			return true
		}
		is, ok := kindNames[kind]
		return ok && is == k || wild(kind) && match(kind, k.String())
	}
	if hasKind && !wild(kind) {
		if _, ok := kindNames[kind]; !ok {
			return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(kind)), "unknown probe type %s%s", kind, didYouMean(kind, slices.Sorted(maps.Keys(kindNames))))
		}
	}
	if !hasKind {
		rest = pattern
		if rest == "" {
			rest = "*"
		}
		if !wild(rest) {
			rest = "*" + rest + "*"
		}
	}
	l := &lister{w: w, k: k, args: args}
	if tag, name, ok := strings.Cut(pattern, " "); ok && (tag == "struct" || tag == "union" || tag == "enum") {
		if err := l.types(tag, strings.TrimSpace(name)); err != nil || l.n > 0 {
			return errors.Join(err, l.err)
		}
		return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(pattern)), "the kernel has no such type")
	}
	if want(Software) && (hasKind || match(rest, "software")) {
		for _, n := range sortedKeys(softEvents) {
			if match(rest, n) || match(rest, n+":") {
				l.add("software:" + n + ":")
			}
		}
	}
	if want(Hardware) && hasKind {
		for _, n := range sortedKeys(hardEvents) {
			if match(rest, n) {
				l.add("hardware:" + n + ":")
			}
		}
	}
	for _, only := range []ProbeKind{Begin, End} {
		if want(only) && (hasKind || match(rest, only.String())) {
			l.add(only.String())
		}
	}
	var hidden error
	if want(Tracepoint) {
		hidden = l.tracepoints(rest)
	}
	if want(RawTracepoint) && hasKind {
		hidden = errors.Join(hidden, l.raw(rest))
	}
	if (want(Uprobe) || want(Uretprobe)) && hasKind && !wild(kind) {
		if err := l.user(kindNames[kind], rest, pattern); err != nil {
			return err
		}
	}
	if want(Iter) && hasKind {
		l.iterators(rest)
	}
	if want(Usdt) && hasKind && !wild(kind) {
		if err := l.usdt(rest); err != nil {
			return err
		}
	}
	for _, fn := range []ProbeKind{Kprobe, Kretprobe, Fentry, Fexit} {
		if !want(fn) || !hasKind && fn != Kprobe {
			continue
		}
		if own, ok := strings.CutPrefix(rest, "bpf:"); ok && fn >= Fentry {
			l.bpfPrograms(fn, own)
			continue
		}
		l.functions(fn, rest)
	}
	if hidden != nil {
		return noEvents(hidden)
	}
	if l.n == 0 {
		events, _ := k.events()
		hint := didYouMean(strings.TrimPrefix(strings.TrimPrefix(pattern, "tracepoint:"), "t:"), events)
		return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(pattern)), "no probe matches%s", hint)
	}
	return l.err
}

// noEvents says why tracepoints are not listed, after what could be.
func noEvents(why error) error {
	if errors.Is(why, os.ErrPermission) {
		return fmt.Errorf("tracepoints are not listed: %w: run as root", why)
	}
	return fmt.Errorf("tracepoints are not listed: %w: %w", probe.ErrNotSupported, why)
}

type lister struct {
	w    io.Writer
	k    *kernel
	args bool
	n    int
	err  error
}

func (l *lister) add(probe string, args ...string) {
	l.n++
	if _, err := fmt.Fprintln(l.w, probe); err != nil && l.err == nil {
		l.err = err
	}
	if l.args {
		for _, a := range args {
			fmt.Fprintln(l.w, "    "+a)
		}
	}
}

func (l *lister) tracepoints(pattern string) error {
	events, err := l.k.events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if !match(pattern, e) && !match(pattern, "tracepoint:"+e) {
			continue
		}
		var args []string
		if l.args {
			group, name, _ := strings.Cut(e, ":")
			fields, _ := readFormat(group, name)
			for _, f := range fields {
				args = append(args, f.String())
			}
		}
		l.add("tracepoint:"+e, args...)
	}
	return nil
}

func (f *tpField) String() string {
	s := strings.ReplaceAll(f.decl, "*", " * ")
	s = strings.Join(strings.Fields(s), " ")
	if f.dataLoc {
		return "__data_loc " + s + "[] " + f.name
	}
	if f.array > 0 {
		return fmt.Sprintf("%s %s[%d]", s, f.name, f.array)
	}
	return s + " " + f.name
}

func (l *lister) raw(pattern string) error {
	if _, err := l.k.events(); err != nil {
		return err
	}
	x := &expander{src: &Source{Name: "-l", Text: pattern}, k: l.k, note: func(string, ...any) {}}
	list, err := x.rawTracepoints(AttachPoint{}, "*", pattern)
	if err != nil {
		return nil // none matches
	}
	for _, t := range list {
		var args []string
		if proto, err := l.k.rawProto(t.Name); err == nil && l.args {
			for _, p := range proto.Params {
				args = append(args, describe(p.Type)+" "+p.Name)
			}
		}
		l.add(t.Probe, args...)
	}
	return nil
}

func (l *lister) user(kind ProbeKind, rest, pattern string) error {
	path, name, ok := strings.Cut(rest, ":")
	if !ok || path == "" {
		return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(pattern)), "write user functions as %s:FILE:PATTERN", kind)
	}
	found, ok := findBinary(path)
	if !ok {
		return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(pattern)), "there is no file %s", path)
	}
	funcs, err := elfFunctions(found)
	if err != nil {
		return err
	}
	before := l.n
	for _, f := range funcs {
		if match(name, f) || name == "" {
			var args []string
			if l.args && kind == Uprobe {
				if proto, err := l.k.user.proto(found, f); err == nil {
					args = described(proto.Params)
				}
			}
			l.add(kind.String()+":"+found+":"+f, args...)
		}
	}
	if l.n == before {
		return (&Source{Name: "-l", Text: pattern}).errorf(0, Pos(len(pattern)), "%s", noFunction(found, name, funcs))
	}
	return nil
}

// described is the arguments of a function, with their types.
func described(params []btf.FuncParam) (args []string) {
	for _, p := range params {
		args = append(args, describe(p.Type)+" "+p.Name)
	}
	return args
}

// functions lists kernel functions. Where none can be traced, it says so if they
// were asked for.
func (l *lister) functions(kind ProbeKind, pattern string) {
	functions, err := l.k.functions()
	if err != nil {
		return
	}
	for _, f := range functions.find(func(f traceable) bool { return match(pattern, f.name) || match(pattern, f.module+":"+f.name) }) {
		var args []string
		if l.args || kind == Fentry || kind == Fexit {
			proto, err := l.k.proto(f.name, f.module)
			if err != nil && (kind == Fentry || kind == Fexit) {
				continue
			}
			if err == nil {
				args = described(proto.Params)
				if kind.returns() {
					args = append(args, describe(proto.Return)+" retval")
				}
			}
		}
		l.add(kind.String()+":"+f.name, args...)
	}
}
