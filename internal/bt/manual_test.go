// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// manual is what bpftrace's reference has names for, of the newest text that could be had: it has what 0.25 added, without what 0.25 dropped.
var manual = []struct {
	group string
	names string
	has   func(name string) bool
}{
	{"helpers", `assert assert_str bswap buf cat cgroup cgroup_path cgroupid clear comm cpid cpu curtask debugf default_str_length delete elapsed errorf exit fail find func getopt gid globmatch
		has_cpid has_key is_array is_integer is_literal is_ptr is_str is_unsigned_integer jiffies join kaddr kfunc_allowed kfunc_exist kptr kstack ksym len macaddr memcmp ncpus nsecs ntop numaid offsetof
		override path pcomm percpu_kaddr pid ppid print printf probe probetype pton rand reg retval signal signal_name signal_thread sizeof skboutput socket_cookie static_assert str strcap strcontains
		strerror strftime strlen strncmp strstr syscall_name system tid time typeinfo uaddr uid unwatch uptr usermode username ustack usym warnf write_user zero`,
		func(name string) bool {
			_, function := functions[name]
			_, lib := library[name]
			_, builtin := builtins[name]
			return function || lib || builtin || slices.Contains([]string{"getopt", "sizeof", "offsetof"}, name)
		}},
	{"map values", "avg count hist lhist max min stats sum tseries", func(name string) bool { return aggregations[name] != 0 }},
	{"probes", "begin end test bench self hardware h interval i iter it fentry f fexit fr kprobe k kretprobe kr profile p rawtracepoint rt software s tracepoint t uprobe u uretprobe ur usdt U watchpoint w asyncwatchpoint aw",
		func(name string) bool { _, ok := kindNames[name]; return ok }},
	{"forms of probes", `begin end test:x bench:x self:signal:SIGUSR1 hardware:cycles: hardware:cache-misses:1e6 interval:1s interval:us:100 interval:ms:5 interval:s:1 interval:hz:10 iter:task iter:task:pin iter:task:/sys/fs/bpf/x
		iter:task_file iter:task_file:pin iter:task_vma iter:task_vma:pin fentry:vfs_read fentry:bpf:prog fentry:bpf:1:prog fexit:vfs_read fexit:bpf:prog fexit:bpf:1:prog kprobe:vfs_read kprobe:vfs_read+4 kprobe:vmlinux:vfs_read
		kretprobe:vfs_read profile:1ms profile:us:100 profile:ms:5 profile:s:1 profile:hz:99 rawtracepoint:sched_switch rawtracepoint:vmlinux:sched_switch software:faults: software:faults:100 tracepoint:sched:sched_switch
		uprobe:/bin/x:f uprobe:/bin/x:f+4 uprobe:/bin/x:0x40 uprobe:libc:malloc uprobe:/bin/x:cpp:f uretprobe:/bin/x:f usdt:/bin/x:p usdt:/bin/x:n:p usdt:*:p watchpoint:0x1000:8:rw  name=begin`,
		understood},
	{"settings", `cache_user_symbols cpp_demangle lazy_symbolication license log_size max_bpf_progs max_cat_bytes max_map_keys max_probes max_strlen missing_probes on_stack_limit perf_rb_pages print_maps_on_exit
		show_debug_info stack_mode str_trunc_trailer unstable_addr unstable_map_decl unstable_tseries`,
		func(name string) bool { k, ok := settingOf(name); return ok && k.idle == "" || harmless[name] }},
	{"formats of printf", "%d %i %u %x %X %o %c %s %p %lld %llx %hhu %r %rx %rh %gr", func(name string) bool { v, err := parseFormatString(name); return err == nil && len(v) == 1 }},
	{"keywords and types", "break config continue else for if import let macro offsetof return sizeof unroll while bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 string struct union enum typedef typeof comptime true false",
		nil}, // what scripts of the tests have
	{"maps", "hash lruhash percpuhash percpulruhash", func(name string) bool { _, ok := mapKinds[name]; return ok }},
}

// harmless are settings that ask for nothing that a script could see the lack of: what they choose is so anyway.
var harmless = map[string]bool{
	"cache_user_symbols": true, "lazy_symbolication": true, "log_size": true,
}

// understood says whether a probe is one by its form: what is wrong with it at most is that it is not here.
func understood(point string) bool {
	_, err := Compile(&Source{Name: "-e", Text: point + " { }"}, Options{PIDs: self()})
	var missing *missingError
	return err == nil || errors.As(err, &missing) || KernelsFault(err) || strings.Contains(err.Error(), "only bench and test probes")
}

// TestManual wants all names of the manual.
func TestManual(t *testing.T) {
	needRoot(t)
	all := 0
	used := ""
	if _, err := os.Stat(docs); err == nil {
		found := scriptsOf(t)
		for _, test := range asserting {
			used += strings.Join(found[test], "\n")
		}
	}
	for _, g := range manual {
		if g.has == nil {
			if used == "" {
				continue // the source is not here
			}
			g.has = func(name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(used) }
		}
		for name := range strings.FieldsSeq(g.names) {
			all++
			if !g.has(name) {
				t.Errorf("%s: %s is not there", g.group, name)
			}
		}
	}
	t.Logf("%d names", all)
}
