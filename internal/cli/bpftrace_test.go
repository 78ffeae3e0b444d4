// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
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
		{[]string{"bpftrace", "--dry-run", "-e", `BEGIN { print(1); } t:nosuch:probe { print(2); }`}, "", "seine: the script is fine: 1 probe\n", ""},
		{[]string{"bpftrace", "-l", "-e", `BEGIN { } t:syscalls:sys_enter_getpp* { }`}, "BEGIN\ntracepoint:syscalls:sys_enter_getppid\n", "", ""},
		{[]string{"bpftrace", "-lv", "t:syscalls:sys_enter_getppid"}, "tracepoint:syscalls:sys_enter_getppid\n    int __syscall_nr\n", "", ""},
		{[]string{"bpftrace", "-q", "-B", "none", "-k", "-I", "/x", "--include", "y.h", "--unsafe", "-e", `BEGIN { system("echo run"); }`}, "run\n", "", ""},
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
	var out bytes.Buffer
	if err := execute(t.Context(), []string{"bpftrace", "--info"}, &out, &out); err != nil || !strings.Contains(out.String(), "tracepoints") {
		t.Errorf("--info: got %v\n%s", err, out.String())
	}
}
