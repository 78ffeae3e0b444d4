// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ownScript has all that seine runs itself.
const ownScript = `begin { @begun = 1; } test:fine { print("not shown"); return 0; } test:none { @a = 1; }
	test:wrong { print("shown"); if (@begun == 1) { return 3; } print("not here"); } test:exits { exit(2); } test:errs { errorf("bad"); }
	bench:nothing { } bench:loop { unroll(50) { @b = count(); } } t:syscalls:sys_enter_getppid { @traced = count(); }`

// TestModes runs tests and benchmarks of a script, each only where it is asked for.
func TestModes(t *testing.T) {
	run := func(o Options, text string) (string, string) {
		return live(t, func(opts Options) (*Program, error) {
			opts.Mode, opts.Filter = o.Mode, o.Filter
			return Compile(&Source{Name: "-e", Text: text}, opts)
		}, Options{}, nil)
	}
	out, errs := run(Options{Mode: ToTest}, ownScript)
	if want := "ok     fine\nok     none\nFAILED wrong: it returned 3\nshown\nFAILED exits: exit(2)\nFAILED errs: 1 error\n2 of 5 tests passed\n@a: 1\n@begun: 1\n"; out != want || !strings.Contains(errs, "bad") {
		t.Errorf("got %q, want %q\n%s", out, want, errs)
	}
	out, _ = run(Options{Mode: ToTest, Filter: regexp.MustCompile("^test:[fn]")}, ownScript)
	if want := "ok     fine\nok     none\n2 of 2 tests passed\n@a: 1\n@begun: 1\n"; out != want {
		t.Errorf("with a filter: got %q, want %q", out, want)
	}
	out, _ = run(Options{Mode: ToBench}, ownScript)
	m := regexp.MustCompile(`^\+-+\+-+\+\n\| BENCHMARK \| NANOSECONDS \|\n\+-+\+-+\+\n\| nothing   \| (\d+) +\|\n\| loop      \| (\d+) +\|\n\+-+\+-+\+\n@b: (\d+)\n@begun: 1\n$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("got\n%s", out)
	}
	nothing, loop, count := must(strconv.Atoi(m[1])), must(strconv.Atoi(m[2])), must(strconv.Atoi(m[3]))
	if loop <= nothing || loop < 50 || count != 50*benchTurns { // an addition takes a nanosecond at least
		t.Errorf("nothing takes %d ns, fifty counts %d ns, and counted are %d", nothing, loop, count)
	}
	for _, c := range []struct {
		o          Options
		text, want string
	}{
		{Options{}, `test:a { } bench:b { }`, "only bench and test probes"},
		{Options{Mode: ToTest}, `bench:b { }`, "the script has no test probes"},
		{Options{Mode: ToBench}, `test:b { }`, "the script has no bench probes"},
		{Options{Filter: regexp.MustCompile("xyz")}, `t:syscalls:sys_enter_getppid { }`, "no probe of the script matches the filter xyz"},
		{Options{}, `test { }`, "write it as test:NAME"},
	} {
		if _, err := Compile(&Source{Name: "-e", Text: c.text}, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		}
	}
}

// TestProbeFilter attaches the probes that a filter lets through.
func TestProbeFilter(t *testing.T) {
	out, _ := live(t, func(o Options) (*Program, error) {
		o.Filter = regexp.MustCompile(`sys_enter_getpp.d$`)
		return Compile(&Source{Name: "-e", Text: `begin { @b = 1; } t:syscalls:sys_enter_getppid,t:syscalls:sys_enter_getpgid { @[probe] = count(); } end { @e = 1; }`}, o)
	}, Options{PIDs: self()}, func() {
		unix.Getppid()
		_, _ = unix.Getpgid(0)
	})
	if want := "@[tracepoint:syscalls:sys_enter_getppid]: 1\n\n@b: 1\n@e: 1\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// TestReads tells of reads that fail, and of no others.
func TestReads(t *testing.T) {
	const text = "begin {\n  $p = (int32 *)16; print(*uptr($p)); print(*kptr($p)); print(str(uptr(8)));\n  $t = curtask; print($t->tgid > 0); }"
	for _, on := range []bool{true, false} {
		_, errs := live(t, func(o Options) (*Program, error) {
			o.Reads = on
			return Compile(&Source{Name: "x.bt", Text: text}, o)
		}, Options{}, nil)
		for want, n := range map[string]int{
			"seine: x.bt:2:21: warning: probe_read_user failed: bad address (-14)\n": 1, "seine: x.bt:2:39: warning: probe_read_kernel failed: ": 1,
			"probe_read_user_str failed: bad address (-14)\n": 1, "failed": 3,
		} {
			if !on {
				n = 0
			}
			if got := strings.Count(errs, want); got != n {
				t.Errorf("-k %v: %q is told %d times, want %d\n%s", on, want, got, n, errs)
			}
		}
	}
	_, errs := live(t, func(o Options) (*Program, error) {
		o.Reads = true
		return Compile(&Source{Name: "x.bt", Text: "begin { for ($i : 0..30) { $p = (int32 *)16; print(*uptr($p)); } }"}, o)
	}, Options{}, nil)
	if n := strings.Count(errs, "probe_read_user failed"); n != readMost || !strings.Contains(errs, "more of these are not told") {
		t.Errorf("a place is told of %d times, want %d\n%s", n, readMost, errs)
	}
}

// TestIncludes reads headers of the script's own, and leaves out the kernel's.
func TestIncludes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		check(os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("own.h", "#ifndef OWN_H\n#define OWN_H\n#include <linux/skbuff.h>\n#include \"more/deep.h\"\n#define TWICE 14\nstruct own { int a; deep_t b; };\n#endif\n")
	write("more/deep.h", "typedef unsigned short deep_t; enum { DEEP = 5 };\n")
	first := write("first.h", "#define FIRST 3\n")
	dirs := []string{filepath.Join(dir, "dirs")}
	write("dirs/there.h", "struct there { char name[12]; };")
	out, errs := live(t, func(o Options) (*Program, error) {
		o.Headers = []string{first}
		return Compile(&Source{Name: filepath.Join(dir, "x.bt"), Dirs: dirs, Text: "#include \"own.h\"\n#include <there.h>\n#include <linux/tcp.h>\nbegin { print((sizeof(struct own), TWICE, DEEP, FIRST, sizeof(struct there), (deep_t)65537)); }"}, o)
	}, Options{}, nil)
	if want := "(8, 14, DEEP, 3, 12, 1)\n"; out != want {
		t.Errorf("got %q, want %q\n%s", out, want, errs)
	}
	write("own.h", "\nint f(int);\n")
	_, err := Compile(&Source{Name: filepath.Join(dir, "x.bt"), Text: "#include \"own.h\"\nbegin { }"}, Options{})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "own.h")+":2:1: of a header, seine takes struct") {
		t.Errorf("a function in a header: %v", err)
	}
}

// TestFamily counts calls of a process, of a child that it has, and of one that it
// starts, and none of ours.
func TestFamily(t *testing.T) {
	needRoot(t)
	if os.Getenv("SEINE_BT_FAMILY") != "" {
		family(t)
		return
	}
	exe := must(os.Executable())
	cmd := exec.Command(exe, "-test.run=^TestFamily$")
	cmd.Env = append(os.Environ(), "SEINE_BT_FAMILY=2")
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	if line := readLine(out); line != "ready 0" {
		t.Fatalf("the family says %q", line)
	}
	pid := uint32(cmd.Process.Pid)
	got, _ := live(t, script(`t:syscalls:sys_enter_getpgid /args.pid == 77777/ { @[pid == $1] = count(); @n[pid] = count(); }`, fmt.Sprint(pid)), Options{PIDs: []uint32{pid}, Children: true}, func() {
		_, _ = unix.Getpgid(77777)
		fmt.Fprintln(in, "go")
		if line := readLine(out); line != "done" {
			t.Errorf("the family says %q", line)
		}
	})
	want(t, got, "@[true]: 1\n", "@[false]: 2\n")
	if n := strings.Count(got, "@n["); n != 3 {
		t.Errorf("%d processes are counted, want 3\n%s", n, got)
	}
}

// family is a process with a child that was there before, when it is told to go. It
// then starts another one. Each calls once.
func family(t *testing.T) {
	depth := must(strconv.Atoi(os.Getenv("SEINE_BT_FAMILY")))
	start := func() func() {
		cmd := exec.Command(must(os.Executable()), "-test.run=^TestFamily$")
		cmd.Env = append(os.Environ(), "SEINE_BT_FAMILY=0")
		in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
		check(cmd.Start())
		readLine(out)
		return func() {
			fmt.Fprintln(in, "go")
			readLine(out)
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	if depth == 0 {
		fmt.Println("ready")
		readLine(os.Stdin)
		_, _ = unix.Getpgid(77777)
		fmt.Println("done")
		return
	}
	old := start()
	fmt.Println("ready 0")
	readLine(os.Stdin)
	_, _ = unix.Getpgid(77777)
	old()
	start()()
	fmt.Println("done")
	readLine(os.Stdin)
}

// readLine reads one line, byte by byte.
func readLine(r interface{ Read([]byte) (int, error) }) string {
	var line []byte
	for b := make([]byte, 1); ; {
		if n, err := r.Read(b); n == 0 || err != nil || b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}
