// SPDX-License-Identifier: Apache-2.0

// Package cli tests the contract of the command line from outside: the shipped
// binary, its exit codes, and its output. Scripts are in testdata. Tests that
// need a terminal, signals or exact traffic are in Go.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"seine/internal/lab"
	"seine/internal/probe"
)

// seine is the binary under test.
var seine string

func TestMain(m *testing.M) {
	if addr := os.Getenv(served); addr != "" {
		serveAt(addr)
	}
	lab.Main()
	testscript.Main(builder{m}, map[string]func(){
		"nobody":   nobody,
		"uncapped": uncapped,
		"nobtf":    nobtf,
		"pidns":    pidns,
	})
}

// builder builds the binary, then runs the tests.
type builder struct{ m *testing.M }

func (b builder) Run() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root")
		return 1
	}
	dir, err := os.MkdirTemp("", "seine-cli")
	if err == nil {
		err = os.Chmod(dir, 0o755) // for nobody
	}
	defer os.RemoveAll(dir)
	seine = filepath.Join(dir, "seine")
	if err == nil {
		build := exec.Command("go", "build", "-o", seine, "seine/cmd/seine")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building seine:", err)
		return 1
	}
	flag.Set("test.parallel", "8") // they wait more than they work
	return b.m.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:             "testdata",
		ContinueOnError: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(seine)+":"+e.Getenv("PATH"))
			e.Setenv("SEINE", seine)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"count": count,
			"jsonl": jsonl,
			"csv":   csvFile,
			"plain": plain,
			"place": place,
		},
		Condition: func(cond string) (bool, error) {
			k, err := probe.Running()
			if err != nil {
				return false, err
			}
			switch offers := k.Offers(); cond {
			case "fexit":
				return offers["fentry"] == nil, nil
			case "functions":
				return offers["fentry"] == nil || offers["kprobe"] == nil, nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
	})
}

// exits CODE PATTERN COMMAND… checks the exit code, that nothing is on stdout
// and that stderr is one line from seine that matches.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: exits CODE PATTERN COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	if got := exitCode(ts.Exec(args[2], args[3:]...)); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout has %q, want nothing", out)
	}
	line := ts.ReadFile("stderr")
	if !strings.HasPrefix(line, "seine: ") || strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
		ts.Fatalf("stderr is %q, want one line from seine", line)
	}
	if !pattern.MatchString(line) {
		ts.Fatalf("stderr is %q, want a match of %s", line, pattern)
	}
}

// place CODE PATTERN CARET COMMAND… is exits for a script with a mistake: above
// the line from seine are the script's line and another with the caret.
func place(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: place CODE PATTERN CARET COMMAND…")
	}
	if got := fmt.Sprint(exitCode(ts.Exec(args[3], args[4:]...))); got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
	lines := strings.Split(ts.ReadFile("stderr"), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Attaching ") })
	if len(lines) != 4 || !strings.Contains(lines[1], args[2]) || strings.Trim(lines[1], " \t^~") != "" ||
		!strings.HasPrefix(lines[2], "seine: ") || !regexp.MustCompile(args[1]).MatchString(lines[2]) {
		ts.Fatalf("stderr is %q, want the place with a caret %q and one line that matches %s", lines, args[2], args[1])
	}
}

// exitCode is the exit code of a command: 128 plus the number if a signal ended
// it.
func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		return -1
	case e.ExitCode() < 0:
		return 128 + int(signalOf(e))
	}
	return e.ExitCode()
}

// count FILE N checks the number of lines.
func count(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: count FILE N")
	}
	if got := strings.Count(ts.ReadFile(args[0]), "\n"); strconv.Itoa(got) != args[1] {
		ts.Fatalf("%s has %d lines, want %s", args[0], got, args[1])
	}
}

// plain FILE checks that there are no control codes.
func plain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: plain FILE")
	}
	if i := strings.IndexFunc(ts.ReadFile(args[0]), isControl); i >= 0 {
		ts.Fatalf("%s has a control code at byte %d", args[0], i)
	}
}

func isControl(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f || r == 0x9b }
