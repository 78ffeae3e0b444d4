// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
)

// said is what a test binary prints with -v, with a pass, a skip with its
// reason, and a failure with what it said.
const said = `=== RUN   TestLive
=== RUN   TestLive/tcplife
=== RUN   TestLive/tcplife/best
=== RUN   TestLive/tcplife/best/ipv4
=== RUN   TestLive/tcplife/best/mptcp
    live_test.go:63: skipped: no MPTCP
=== RUN   TestLive/tcplife/raw
=== RUN   TestLive/tcplife/raw/ipv4
    live_test.go:66: 22 rows, want 23
--- FAIL: TestLive (1.00s)
    --- FAIL: TestLive/tcplife (1.00s)
        --- PASS: TestLive/tcplife/best (0.50s)
            --- PASS: TestLive/tcplife/best/ipv4 (0.21s)
            --- SKIP: TestLive/tcplife/best/mptcp (0.00s)
        --- FAIL: TestLive/tcplife/raw (0.50s)
            --- FAIL: TestLive/tcplife/raw/ipv4 (0.21s)
FAIL
`

func TestClosingLine(t *testing.T) {
	var r results
	p := &parser{results: &r, where: "5.10"}
	for _, b := range []byte(said) { // however the output is cut
		p.Write([]byte{b})
	}
	p.end(errors.New("exit status 1"))
	var out strings.Builder
	r.print(&out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := lines[len(lines)-1], "1 passed, 1 failed, 1 skipped"; got != want {
		t.Errorf("the last line is %q, want %q", got, want)
	}
	for _, want := range []string{"tcplife           best 1 (1 skipped)  raw 0 (1 FAILED)", "no MPTCP", "22 rows, want 23"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if r.failed() == 0 {
		t.Error("nothing failed")
	}
}

// TestSilence: a command that ends badly without a failed test, or runs no test
// at all, is a failure.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		out  string
		err  error
		want int
	}{
		{"--- PASS: TestX (0.00s)\n", nil, 0},
		{"--- PASS: TestX (0.00s)\n", errors.New("exit status 2"), 1},
		{"", nil, 1},
		{"panic: boom\n", errors.New("exit status 2"), 1},
	} {
		var r results
		p := &parser{results: &r, where: "native"}
		p.Write([]byte(c.out))
		p.end(c.err)
		if got := r.failed(); got != c.want {
			t.Errorf("%q with %v: %d failed, want %d", c.out, c.err, got, c.want)
		}
	}
}

// TestAgain: what failed and passes at a second try counts once, as passed, with
// why it was tried again; what fails twice has failed; and of a package that did
// not run to its end nothing is tried again.
func TestAgain(t *testing.T) {
	run := func(out string, err error) *results {
		r := &results{}
		p := &parser{results: r, where: "go test"}
		p.Write([]byte(out))
		p.end(err)
		return r
	}
	failed := errors.New("exit status 1")
	first := run(`=== RUN   TestA
=== RUN   TestA/x
    a_test.go:1: too late
=== RUN   TestA/y
--- FAIL: TestA (0.00s)
    --- FAIL: TestA/x (0.00s)
    --- PASS: TestA/y (0.00s)
--- PASS: TestB (0.00s)
FAIL
FAIL	seine/a	0.1s
=== RUN   TestA
    b_test.go:1: wrong
--- FAIL: TestA (0.00s)
FAIL
FAIL	seine/b	0.1s
=== RUN   TestC
--- FAIL: TestC (0.00s)
panic: boom
FAIL	seine/c	0.1s
--- PASS: TestD (0.00s)
ok	seine/d	0.1s
`, failed)
	again := first.failedIn()
	if len(again) != 3 || len(again["seine/a"]) != 1 || len(again["seine/b"]) != 1 || len(again[""]) != 1 {
		t.Fatalf("to be tried again: %v", again)
	}
	second := run("--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n    --- PASS: TestA/y (0.00s)\nok\tseine/a\t0.1s\n"+
		"--- FAIL: TestA (0.00s)\nFAIL\nFAIL\tseine/b\t0.1s\n", failed)
	var all results
	all.take(first, second)
	var out strings.Builder
	all.print(&out)
	if want := "\n4 passed, 2 failed\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the end is not %q:\n%s", want, &out)
	}
	if want := "passed when tried again: go test: TestA/x: a_test.go:1: too late"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, &out)
	}
}
