// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seine/internal/host"
)

// TestBpftrace runs scripts under the name and with the flags of bpftrace, and with
// those that seine run has of them.
func TestBpftrace(t *testing.T) {
	if len(host.NeedTrace.Missing()) > 0 {
		t.Skip("needs CAP_BPF and CAP_PERFMON")
	}
	file := filepath.Join(t.TempDir(), "out")
	header := filepath.Join(t.TempDir(), "own.h")
	if err := os.WriteFile(header, []byte("#define OWN 17\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const text = `BEGIN { printf("hi %d\n", 5); @a = 3; @b["x", 1] = count(); @h = hist(5); @s = stats(4); print((1, "two")); print(@b["x", 1]); }`
	const json = `{"type": "attached_probes", "data": {"probes": 1}}
{"type": "printf", "data": "hi 5\n"}
{"type": "value", "data": [1, "two"]}
{"type": "map", "data": {"@b": {"x,1": 1}}}
{"type": "map", "data": {"@a": 3}}
{"type": "map", "data": {"@b": {"x,1": 1}}}
{"type": "hist", "data": {"@h": [{"min": 4, "max": 7, "count": 1}]}}
{"type": "stats", "data": {"@s": {"count": 1, "average": 4, "total": 4}}}
`
	for _, c := range []struct {
		args           []string
		out, err, file string
	}{
		{[]string{"bpftrace", "-q", "-f", "json", "-e", text}, json, "", ""},
		{[]string{"bpftrace", "-q", "-f", "json", "-o", file, "-e", text}, "", "", json},
		{[]string{"bpftrace", "-q", "-e", `BEGIN { print($1); }`, "7"}, "7\n", "", ""},
		{[]string{"bpftrace", "-q", "-o", file, "-e", `BEGIN { print(getopt("n", 1)); }`, "--", "--n=9"}, "", "", "9\n"},
		{[]string{"bpftrace", "--dry-run", "-e", `BEGIN { print(1); } t:nosuch:probe { print(2); }`}, "", "seine: the script is valid: 1 probe\n", ""},
		{[]string{"bpftrace", "--dry-run", "-e", `k:tcp_v4_connect { @[arg0] = count(); } f:tcp_v4_connect { @s = sum(args.addr_len); } kr:tcp_v4_connect { @r = max(retval); }`}, "", "seine: the script is valid: 3 probes\n", ""},
		{[]string{"bpftrace", "--dry-run", "-e", `k:no_such_function_at_all { @[*kaddr("no_such_symbol")] = count(); } END { print(@); }`}, "", "seine: the script is valid: 2 probes\n", ""},
		{[]string{"bpftrace", "--dry-run", "-e", `f:tcp_v4_connect { @s = sum(args.addr_lem); }`}, "", "has no argument addr_lem: did you mean addr_len?", ""},
		{[]string{"bpftrace", "-l", "-e", `BEGIN { } t:syscalls:sys_enter_getpp* { }`}, "BEGIN\ntracepoint:syscalls:sys_enter_getppid\n", "", ""},
		{[]string{"bpftrace", "-lv", "t:syscalls:sys_enter_getppid"}, "tracepoint:syscalls:sys_enter_getppid\n    int __syscall_nr\n", "", ""},
		{[]string{"bpftrace", "-l", "t:syscalls:sys_enter_getppid,t:syscalls:sys_exit_getppid"}, "tracepoint:syscalls:sys_enter_getppid\ntracepoint:syscalls:sys_exit_getppid\n", "", ""},
		{[]string{"bpftrace", "-lv", "struct in_addr"}, "struct in_addr {\n        __be32 s_addr;\n};\n", "", ""},
		{[]string{"bpftrace", "-l", "kprobe:tcp_v4_connect"}, "kprobe:tcp_v4_connect\n", "", ""},
		{[]string{"bpftrace", "-q", "-c", "/bin/true", "--no-feature", "uprobe_multi,kprobe_multi", "--usdt-file-activation", "--no-warnings", "-e", `BEGIN { print(has_cpid); }`}, "true\n", "", ""},
		{[]string{"bpftrace", "-q", "-p", "1", "-e", `BEGIN { print("one"); exit(); }`}, "one\n", "", ""},
		{[]string{"bpftrace", "-q", "-B", "none", "-k", "-I", "/x", "--include", "y.h", "--unsafe", "-e", `BEGIN { system("echo run"); }`}, "run\n", "", ""},
		{[]string{"bpftrace", "-q", "--test", "-e", `test:a { } test:b { return 1; } bench:c { }`}, "ok     a\nFAILED b: it returned 1\n1 of 2 tests passed\n", "the script ended with exit(1)", ""},
		{[]string{"bpftrace", "-q", "--test", "--probe-filter", ":a$", "-e", `test:a { } test:b { return 1; } bench:c { }`}, "ok     a\n1 of 1 test passed\n", "", ""},
		{[]string{"bpftrace", "--test", "--bench", "-e", `test:a { }`}, "", "--bench and --test exclude each other", ""},
		{[]string{"bpftrace", "--probe-filter", "(", "-e", `BEGIN { }`}, "", "--probe-filter: error parsing regexp", ""},
		{[]string{"bpftrace", "-q", "-k", "-e", `BEGIN { print(*uptr((int8 *)8)); }`}, "0\n", "-e:1:9: warning: probe_read_user failed: bad address (-14)", ""},
		{[]string{"bpftrace", "-q", "--include", header, "-e", `BEGIN { print(OWN); }`}, "17\n", "", ""},
		{[]string{"bpftrace", "-q", "-I", filepath.Dir(header), "-e", "#include <own.h>\nBEGIN { print(OWN); }"}, "17\n", "", ""},
		{[]string{"seine", "run", "--children", "-e", `BEGIN { }`}, "", "--children goes with -p", ""},
		{[]string{"bpftrace", "-f", "xml", "-e", "BEGIN { }"}, "", "-f xml: text or json", ""},
		{[]string{"bpftrace"}, "", "bpftrace needs a file, or a program with -e", ""},
		{[]string{"seine", "run", "-q", "--to", file, "-e", `BEGIN { print(4); }`}, "", "", "4\n"},
		{[]string{"seine", "run", "-q", "--no-warnings", "-e", `config = { log_size = 1 } BEGIN { print(4); }`}, "4\n", "", ""},
	} {
		_ = os.Remove(file)
		var out, errs bytes.Buffer
		err := execute(t.Context(), c.args, &out, &errs)
		if err != nil {
			errs.WriteString(err.Error())
		}
		written, _ := os.ReadFile(file)
		if out.String() != c.out || !strings.Contains(errs.String(), c.err) || c.err == "" && errs.Len() > 0 || string(written) != c.file {
			t.Errorf("%q: got\n%s\nand %q and in the file\n%s\nwant\n%s\nand %q and\n%s", c.args, out.String(), errs.String(), written, c.out, c.err, c.file)
		}
	}
	// What the manual of bpftrace has.
	cmd := bpftraceCommand(io.Discard, io.Discard)
	for _, name := range strings.Fields("B c d e f I k l o p q V v dry-run help include info no-feature no-warnings unsafe usdt-file-activation version bench test") {
		cmd.InitDefaultHelpFlag()
		if fs := cmd.Flags(); len(name) == 1 && fs.ShorthandLookup(name) == nil || len(name) > 1 && fs.Lookup(name) == nil {
			t.Errorf("bpftrace has no flag %s", name)
		}
	}
	for args, want := range map[string]string{"-V": "bpftrace (seine ", "--version": "bpftrace (seine ", "--help": "-e, --program", "-d ast -e BEGIN{}": "exit"} {
		var out bytes.Buffer
		if err := execute(t.Context(), append([]string{"bpftrace"}, strings.Fields(args)...), &out, &out); err != nil || !strings.Contains(strings.ToLower(out.String()), strings.ToLower(want)) {
			t.Errorf("%s: got %v\n%s", args, err, out.String())
		}
	}
	var out bytes.Buffer
	if err := execute(t.Context(), []string{"bpftrace", "--info"}, &out, &out); err != nil || !strings.Contains(out.String(), "tracepoints") {
		t.Errorf("--info: got %v\n%s", err, out.String())
	}
}
