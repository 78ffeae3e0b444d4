// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/probe"
	"seine/internal/row"
)

// An expander finds the targets of attach points.
type expander struct {
	src  *Source
	k    *kernel
	args []string // of the script, for $1 in a probe
	way  string   // force: "fentry" or "kprobe"
	pids []uint32 // of -p, whose files u:*:f looks through
	// watched are the processes whose memory watchpoints are in.
	watched []uint32
	note    func(format string, args ...any)

	missingProbes string // the setting
	check, told   bool   // nothing will be attached; it has been said what could not be
}

// expand gives the targets of a clause. A name that is not there is an error, as in
// bpftrace since 0.24. Patterns without a match are one unless another point of the
// clause has a target.
func (x *expander) expand(c *Clause) ([]*Target, error) {
	var all []*Target
	var missing *missingError
	for _, ap := range c.Points {
		list, err := x.point(ap)
		var m *missingError
		if errors.As(err, &m) {
			switch x.missingProbes {
			case "error":
				return nil, m
			case "warn":
				x.note("%v", m)
				continue
			case "ignore":
				continue
			}
			if !wild(ap.Raw) && !ap.many {
				if len(c.Points) > 1 {
					m.at.Msg += `; config = { missing_probes = "warn" } runs the script without it`
				}
				return nil, m
			}
			if missing == nil {
				missing = m
			} else if len(c.Points) > 1 {
				x.note("%v", missing)
				missing = m
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			t.pos = ap
			t.Wild = t.Wild || ap.many
		}
		all = append(all, list...)
	}
	switch {
	case missing == nil:
	case len(all) == 0:
		return nil, missing
	default:
		x.note("%v", missing)
	}
	return all, nil
}

// A missingError says that nothing of that name is there.
type missingError struct{ at *Error }

func (e *missingError) Error() string { return e.at.Error() }
func (e *missingError) Unwrap() error { return e.at }

func (x *expander) missing(ap AttachPoint, format string, args ...any) error {
	return &missingError{x.src.errorf(ap.pos, ap.end, format, args...)}
}

func (x *expander) point(ap AttachPoint) ([]*Target, error) {
	raw := ap.Raw
	for i := len(x.args); i > 0; i-- {
		raw = strings.ReplaceAll(raw, "$"+strconv.Itoa(i), x.args[i-1])
	}
	parts := splitPoint(raw)
	fail := func(format string, args ...any) ([]*Target, error) {
		return nil, x.src.errorf(ap.pos, ap.end, format, args...)
	}
	kind, ok := kindNames[parts[0]]
	if !ok {
		if near := row.Nearest(parts[0], slices.Sorted(maps.Keys(kindNames))); near != "" {
			return fail("unknown probe type %s: did you mean %s?", parts[0], near)
		}
		return fail("unknown probe type %s: there are %s", parts[0], "BEGIN, END, interval, profile, tracepoint, rawtracepoint, kprobe, kretprobe, fentry, fexit, uprobe, uretprobe, usdt, watchpoint, iter, self, bench, test, software, hardware")
	}
	want := func(n ...int) bool { return slices.Contains(n, len(parts)) }
	t := Target{Kind: kind, Way: kind}
	switch kind {
	case Begin, End:
		if !want(1) {
			return fail("%s takes nothing after it", parts[0])
		}
		t.Probe = kind.String()
		return []*Target{&t}, nil
	case Interval, Profile:
		return x.timer(ap, t, parts)
	case Software, Hardware:
		return x.event(ap, t, parts)
	case Tracepoint:
		if !want(3) {
			return fail("write a tracepoint as tracepoint:GROUP:NAME")
		}
		return x.tracepoints(ap, parts[1], parts[2])
	case RawTracepoint:
		if !want(2, 3) {
			return fail("write a raw tracepoint as rawtracepoint:NAME")
		}
		group := "*"
		if len(parts) == 3 {
			group = parts[1]
		}
		return x.rawTracepoints(ap, group, parts[len(parts)-1])
	case Uprobe, Uretprobe:
		if cpp := want(4) && parts[2] == "cpp" && parts[1] != "" && parts[3] != ""; cpp {
			return x.userFunctions(ap, kind, parts[1], parts[3], true)
		}
		if !want(3) || parts[1] == "" || parts[2] == "" {
			return fail("write a user function as %s:PATH:FUNCTION", kind)
		}
		return x.userFunctions(ap, kind, parts[1], parts[2], false)
	case Usdt:
		return x.staticProbes(ap, parts)
	case Watch:
		return x.watch(ap, t, parts)
	case Iter:
		return x.iterator(ap, t, parts)
	case Self:
		return x.self(ap, t, parts)
	case Bench, Test:
		return x.own(ap, t, parts)
	}
	if (kind == Fentry || kind == Fexit) && want(3, 4) && parts[1] == "bpf" && parts[len(parts)-1] != "" {
		return x.bpfPrograms(ap, kind, parts[2:])
	}
	if !want(2, 3) || parts[len(parts)-1] == "" {
		return fail("write a kernel function as %s:FUNCTION or %s:MODULE:FUNCTION", kind, kind)
	}
	module := ""
	if len(parts) == 3 {
		module = parts[1]
	}
	return x.kernelFunctions(ap, kind, module, parts[len(parts)-1])
}

// splitPoint cuts at colons, but not inside quotes.
func splitPoint(raw string) []string {
	var parts []string
	start, quoted := 0, false
	for i := 0; i <= len(raw); i++ {
		if i == len(raw) || raw[i] == ':' && !quoted {
			parts = append(parts, strings.Trim(strings.TrimSpace(raw[start:i]), `"`))
			start = i + 1
		} else if raw[i] == '"' {
			quoted = !quoted
		}
	}
	return parts
}

func (x *expander) timer(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	fail := func() ([]*Target, error) {
		return nil, x.src.errorf(ap.pos, ap.end, "write a timer as %s:hz:N, :s:N, :ms:N, :us:N or %s:100ms", t.Kind, t.Kind)
	}
	unit, text := "", ""
	switch len(parts) {
	case 2:
		n, ok := number(parts[1])
		if !ok || n == 0 || n > 1<<62 { // without a unit it is nanoseconds
			return fail()
		}
		t.Every = time.Duration(n)
	case 3:
		unit, text = parts[1], parts[2]
		n, ok := number(text)
		if !ok || n == 0 || n > 1<<32 {
			return fail()
		}
		switch unit {
		case "hz":
			if n > 1e6 {
				return fail()
			}
			t.Hz = n
			t.Every = time.Second / time.Duration(n)
		case "s":
			t.Every = time.Duration(n) * time.Second
		case "ms":
			t.Every = time.Duration(n) * time.Millisecond
		case "us":
			t.Every = time.Duration(n) * time.Microsecond
		default:
			return fail()
		}
	default:
		return fail()
	}
	if t.Every < 10*time.Microsecond || t.Every > 24*365*time.Hour {
		return nil, x.src.errorf(ap.pos, ap.end, "a timer ticks between every 10 µs and every year")
	}
	t.Probe = t.Kind.String() + ":" + strings.Join(parts[1:], ":")
	return []*Target{&t}, nil
}

var softEvents = map[string]uint64{
	"alignment-faults": unix.PERF_COUNT_SW_ALIGNMENT_FAULTS, "bpf-output": unix.PERF_COUNT_SW_BPF_OUTPUT,
	"context-switches": unix.PERF_COUNT_SW_CONTEXT_SWITCHES, "cs": unix.PERF_COUNT_SW_CONTEXT_SWITCHES,
	"cpu-clock": unix.PERF_COUNT_SW_CPU_CLOCK, "cpu": unix.PERF_COUNT_SW_CPU_CLOCK, "cpu-migrations": unix.PERF_COUNT_SW_CPU_MIGRATIONS,
	"dummy": unix.PERF_COUNT_SW_DUMMY, "major-faults": unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ, "minor-faults": unix.PERF_COUNT_SW_PAGE_FAULTS_MIN,
	"page-faults": unix.PERF_COUNT_SW_PAGE_FAULTS, "faults": unix.PERF_COUNT_SW_PAGE_FAULTS, "task-clock": unix.PERF_COUNT_SW_TASK_CLOCK,
	"emulation-faults": unix.PERF_COUNT_SW_EMULATION_FAULTS,
}

var hardEvents = map[string]uint64{
	"cpu-cycles": unix.PERF_COUNT_HW_CPU_CYCLES, "cycles": unix.PERF_COUNT_HW_CPU_CYCLES, "instructions": unix.PERF_COUNT_HW_INSTRUCTIONS,
	"cache-references": unix.PERF_COUNT_HW_CACHE_REFERENCES, "cache-misses": unix.PERF_COUNT_HW_CACHE_MISSES,
	"branch-instructions": unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS, "branches": unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
	"branch-misses": unix.PERF_COUNT_HW_BRANCH_MISSES, "bus-cycles": unix.PERF_COUNT_HW_BUS_CYCLES, "ref-cycles": unix.PERF_COUNT_HW_REF_CPU_CYCLES,
	"frontend-stalls": unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND, "backend-stalls": unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
}

func (x *expander) event(ap AttachPoint, t Target, parts []string) ([]*Target, error) {
	table, per := softEvents, uint64(1)
	if t.Kind == Hardware {
		table, per = hardEvents, 1_000_000
	}
	name := ""
	if len(parts) > 1 {
		name = parts[1]
	}
	ev, ok := table[name]
	if !ok || len(parts) > 3 {
		near := row.Nearest(name, slices.Sorted(maps.Keys(table)))
		if near != "" {
			near = ": did you mean " + near + "?"
		}
		return nil, x.src.errorf(ap.pos, ap.end, "unknown %s event %q%s", t.Kind, name, near)
	}
	if len(parts) == 3 && parts[2] != "" {
		n, ok := number(parts[2])
		if !ok || n == 0 || n > 1<<62 {
			return nil, x.src.errorf(ap.pos, ap.end, "write an event as %s:%s:COUNT", t.Kind, name)
		}
		per = n
	}
	t.Event, t.Count = ev, per
	t.Probe = fmt.Sprintf("%s:%s:%d", t.Kind, name, per)
	return []*Target{&t}, nil
}

func (x *expander) tracepoints(ap AttachPoint, group, name string) ([]*Target, error) {
	var list []*Target
	add := func(g, n string) error {
		fields, err := readFormat(g, n)
		if err != nil {
			return err
		}
		list = append(list, &Target{
			Kind: Tracepoint, Way: Tracepoint, Group: g, Name: n, Func: n, format: fields,
			Probe: "tracepoint:" + g + ":" + n, Wild: wild(group + name),
		})
		return nil
	}
	if !wild(group) && !wild(name) && group != "" && name != "" && !strings.ContainsAny(group+name, "/\x00") {
		if add(group, name) == nil {
			return list, nil
		}
	}
	events, err := x.k.events()
	if err != nil {
		return nil, fmt.Errorf("tracepoints: %w", err)
	}
	for _, e := range events {
		g, n, _ := strings.Cut(e, ":")
		if match(group, g) && match(name, n) && add(g, n) != nil {
			x.note("tracepoint:%s has no format to be read", e)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	if wild(group + name) {
		return nil, x.missing(ap, "no tracepoint matches %s:%s on this kernel", group, name)
	}
	if near := row.Nearest(group+":"+name, events); near != "" {
		return nil, x.missing(ap, "unknown tracepoint %s:%s: did you mean %s?", group, name, near)
	}
	return nil, x.missing(ap, "unknown tracepoint %s:%s: seine run -l '%s' lists them", group, name, "t:*")
}

// rawTracepoints gives the raw tracepoints of a category, or of a module of the
// kernel, which is what bpftrace writes today: rawtracepoint:vmlinux:sched_switch.
func (x *expander) rawTracepoints(ap AttachPoint, group, name string) ([]*Target, error) {
	events, err := x.k.events()
	if err != nil {
		return nil, fmt.Errorf("raw tracepoints: %w", err)
	}
	events = append(slices.DeleteFunc(slices.Clone(events), func(e string) bool { return strings.HasPrefix(e, "syscalls:") }),
		"raw_syscalls:sys_enter", "raw_syscalls:sys_exit")
	all := group == "*" || group == "vmlinux" || slices.Contains(x.k.modules(), group)
	seen := map[string]bool{}
	var names []string
	for _, e := range events {
		g, n, _ := strings.Cut(e, ":")
		if match(name, n) && (all || match(group, g)) && !seen[n] {
			seen[n] = true
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var list []*Target
	for _, n := range names {
		list = append(list, &Target{Kind: RawTracepoint, Way: RawTracepoint, Name: n, Func: n, Probe: "rawtracepoint:" + n, Wild: wild(name)})
	}
	if len(list) > 0 {
		return list, nil
	}
	what := name
	if group != "*" {
		what = group + ":" + name
		for _, e := range events { // of another category, perhaps
			if strings.HasSuffix(e, ":"+name) {
				return nil, x.missing(ap, "unknown raw tracepoint %s: did you mean %s?", what, e)
			}
		}
	} else {
		for i, e := range events {
			_, events[i], _ = strings.Cut(e, ":")
		}
	}
	return nil, x.missing(ap, "unknown raw tracepoint %s%s", what, didYouMean(what, events))
}

// successors are functions that took over from one that scripts still name.
var successors = map[string]string{
	"kmem_cache_alloc": "kmem_cache_alloc_noprof", "kmem_cache_alloc_node": "kmem_cache_alloc_node_noprof",
	"__kmalloc": "__kmalloc_noprof", "sock_sendmsg_nosec": "__sock_sendmsg", "__napi_alloc_skb": "napi_alloc_skb",
	"tcp_drop": "tcp_drop_reason", "blk_account_io_start": "__blk_account_io_start", "blk_account_io_done": "__blk_account_io_done",
	"do_sys_open": "do_sys_openat2", "udp_recvmsg_nosec": "udp_recvmsg", "finish_task_switch": "finish_task_switch.isra.0",
	"__alloc_pages": "__alloc_pages_noprof", "cfg80211_get_bss": "__cfg80211_get_bss", "kfree_skb": "sk_skb_reason_drop",
}

// chooseWay decides how a kernel function is traced: as the script says if the kernel can do it,
// else the other way.
func (x *expander) chooseWay(kind ProbeKind) (ProbeKind, error) {
	toFentry := map[ProbeKind]ProbeKind{Kprobe: Fentry, Kretprobe: Fexit, Fentry: Fentry, Fexit: Fexit}
	toKprobe := map[ProbeKind]ProbeKind{Kprobe: Kprobe, Kretprobe: Kretprobe, Fentry: Kprobe, Fexit: Kretprobe}
	type way struct {
		kind ProbeKind
		can  func() error
	}
	ways := []way{{toKprobe[kind], x.k.kprobes}, {toFentry[kind], x.k.fentry}}
	switch {
	case x.way == "kprobe":
		ways = ways[:1]
	case x.way == "fentry":
		ways = ways[1:]
	case kind == toFentry[kind]:
		slices.Reverse(ways)
	}
	var why error
	for _, w := range ways {
		switch err := w.can(); {
		case err == nil:
			return w.kind, nil
		case why == nil:
			why = err
		default:
			why = fmt.Errorf("%w; %w", why, err)
		}
	}
	if x.check {
		if !x.told {
			x.note("this kernel cannot trace functions (%s): they are checked all the same", strings.ReplaceAll(why.Error(), probe.ErrNotSupported.Error()+": ", ""))
		}
		x.told = true
		return kind, nil
	}
	return kind, why
}

func (x *expander) kernelFunctions(ap AttachPoint, kind ProbeKind, module, name string) ([]*Target, error) {
	way, err := x.chooseWay(kind)
	if err != nil {
		return nil, x.noFunctions(ap, name, err)
	}
	name, offset, hasOffset := strings.Cut(name, "+")
	var off uint64
	if hasOffset {
		if off, err = strconv.ParseUint(offset, 0, 32); err != nil || way != Kprobe {
			return nil, x.src.errorf(ap.pos, ap.end, "%s: an offset is a number, and for kprobes only", ap.Raw)
		}
	}
	make := func(n, mod string) *Target {
		return &Target{Kind: kind, Way: way, Name: n, Func: n, Module: mod, Offset: off, Probe: kind.String() + ":" + n, Wild: wild(name)}
	}
	switch {
	case wild(name):
	case ap.many: // it was found in the list
		return []*Target{make(name, module)}, nil
	case way != Kprobe && way != Kretprobe:
		// BTF knows, and is at hand.
		if _, err := x.k.proto(name, module); err == nil {
			return []*Target{make(name, module)}, nil
		}
	case module == "":
		if at, _ := x.k.lookUp(name); at != 0 {
			return []*Target{make(name, "")}, nil // in ftrace's list or not: a kprobe may do
		}
	}
	functions, err := x.k.functions()
	if err != nil {
		return nil, fmt.Errorf("kernel functions: %w", err)
	}
	var list []*Target
	if !wild(name) {
		if mod, ok := functions.module(name); ok && (module == "" || match(module, mod)) {
			return []*Target{make(name, mod)}, nil
		}
		if module == "" && way <= Kretprobe && x.k.address(name) != 0 {
			return []*Target{make(name, "")}, nil
		}
		if next := successors[name]; next != "" {
			if mod, ok := functions.module(next); ok {
				x.note("this kernel has no function %s: using %s, which took over from it", name, next)
				return []*Target{make(next, mod)}, nil
			}
		}
		if x.check {
			x.note("this kernel has no function %s (inlined or gone): its clause is checked all the same", name)
			return []*Target{make(name, "")}, nil
		}
		if near := row.Nearest(name, sameStart(name, functions)); near != "" {
			return nil, x.missing(ap, "this kernel has no function %s (inlined or gone): did you mean %s?", name, near)
		}
		return nil, x.missing(ap, "this kernel has no function %s (inlined or gone)", name)
	}
	for _, f := range functions.find(func(f traceable) bool { return match(name, f.name) && (module == "" || match(module, f.module)) }) {
		list = append(list, make(f.name, f.module))
	}
	if len(list) == 0 {
		return nil, x.missing(ap, "no function of this kernel matches %s", name)
	}
	return list, nil
}

// sameStart keeps names that begin alike: measuring the distance to all 60,000
// would take long.
func sameStart(name string, all functionList) (some []string) {
	for _, f := range all.find(func(f traceable) bool {
		return len(name) > 2 && len(f.name) > 2 && (f.name[:3] == name[:3] || strings.Contains(f.name, name))
	}) {
		some = append(some, f.name)
	}
	return some
}

// stand names tracepoints that serve in place of functions, by the function's
// beginning, most fitting first.
var stand = []struct {
	function string
	events   []string
}{
	{"tcp_v4_connect", []string{"sock:inet_sock_set_state", "syscalls:sys_enter_connect"}},
	{"tcp_v6_connect", []string{"sock:inet_sock_set_state", "syscalls:sys_enter_connect"}},
	{"tcp_v*_connect", []string{"sock:inet_sock_set_state", "syscalls:sys_enter_connect"}},
	{"inet_csk_accept", []string{"syscalls:sys_exit_accept4", "syscalls:sys_exit_accept", "sock:inet_sock_set_state"}},
	{"tcp_sendmsg", []string{"sock:sock_send_length", "tcp:tcp_sendmsg_locked", "syscalls:sys_exit_sendto", "syscalls:sys_exit_write"}},
	{"tcp_recvmsg", []string{"sock:sock_recv_length", "tcp:tcp_rcv_space_adjust", "syscalls:sys_exit_recvfrom"}},
	{"tcp_retransmit", []string{"tcp:tcp_retransmit_skb", "tcp:tcp_retransmit_synack"}},
	{"sock_sendmsg", []string{"sock:sock_send_length", "syscalls:sys_exit_sendto"}},
	{"sock_recvmsg", []string{"sock:sock_recv_length", "syscalls:sys_exit_recvfrom"}},
	{"udp_sendmsg", []string{"sock:sock_send_length", "syscalls:sys_exit_sendto"}},
	{"udp_recvmsg", []string{"sock:sock_recv_length", "syscalls:sys_exit_recvfrom"}},
	{"ip_rcv", []string{"net:netif_receive_skb"}},
	{"ip_output", []string{"net:net_dev_queue"}},
	{"dev_", []string{"net:net_dev_queue", "net:net_dev_xmit", "net:netif_receive_skb"}},
	{"kmem_cache_", []string{"kmem:kmem_cache_alloc", "kmem:kmem_cache_free"}},
	{"kfree_skb", []string{"skb:kfree_skb"}},
	{"tcp", []string{"tcp:tcp_probe", "sock:inet_sock_set_state", "tcp:tcp_retransmit_skb", "tcp:tcp_destroy_sock"}},
	{"udp", []string{"udp:udp_fail_queue_rcv_skb", "sock:sock_send_length", "sock:sock_recv_length"}},
	{"vfs_", []string{"syscalls:sys_enter_read", "syscalls:sys_enter_write", "syscalls:sys_enter_openat"}},
	{"do_sys_open", []string{"syscalls:sys_enter_openat"}},
	{"ieee80211_", []string{"cfg80211:rdev_scan", "mac80211:api_scan_completed"}},
}

// noFunctions says why functions cannot be traced, and what could serve.
func (x *expander) noFunctions(ap AttachPoint, name string, why error) error {
	var some []string
	if events, err := x.k.events(); err == nil {
		has := func(e string) bool { _, ok := slices.BinarySearch(events, e); return ok }
		for _, s := range stand {
			if strings.HasPrefix(name, s.function) || match(s.function, name) {
				for _, e := range s.events {
					if has(e) && !slices.Contains(some, e) {
						some = append(some, e)
					}
				}
				if len(some) > 0 {
					break
				}
			}
		}
		words := strings.FieldsFunc(name, func(c rune) bool { return strings.ContainsRune("_*?", c) })
		for _, e := range events {
			// Of the same subsystem, and alike in more than its name.
			group, event, _ := strings.Cut(e, ":")
			alike := func(word string) bool { return slices.Contains(strings.Split(event, "_"), word) }
			if len(words) > 1 && group == words[0] && slices.ContainsFunc(words[1:], alike) && len(some) < 6 && !slices.Contains(some, e) {
				some = append(some, e)
			}
		}
	}
	msg := strings.ReplaceAll(why.Error(), probe.ErrNotSupported.Error()+": ", "")
	text := fmt.Sprintf("%s: this kernel cannot trace functions (%s)", ap.Raw, msg)
	if len(some) > 0 {
		for i := range some {
			some[i] = "t:" + some[i]
		}
		text += ": tracepoints that could serve: " + strings.Join(some, ", ")
	}
	return &unsupportedError{x.src.errorf(ap.pos, ap.end, "%s", text)}
}

// An unsupportedError is at a place, and the kernel's fault.
type unsupportedError struct{ at *Error }

func (e *unsupportedError) Error() string   { return e.at.Error() }
func (e *unsupportedError) Unwrap() []error { return []error{e.at, probe.ErrNotSupported} }
