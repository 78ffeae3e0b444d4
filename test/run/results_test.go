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
