// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// said is what test2json makes of a test binary's output: a pass, a skip with its
// reason, one that passed at its second try, and a failure with what it said.
var said = lines(
	`{"Action":"run","Package":"5.10","Test":"TestLive"}`,
	`{"Action":"run","Package":"5.10","Test":"TestLive/tcplife/best/ipv4"}`,
	`{"Action":"output","Package":"5.10","Test":"TestLive/tcplife/best/ipv4","Output":"=== RUN   TestLive/tcplife/best/ipv4\n"}`,
	`{"Action":"attr","Package":"5.10","Test":"TestLive/tcplife/best/ipv4","Key":"flaky","Value":"21 rows, want 23"}`,
	`{"Action":"pass","Package":"5.10","Test":"TestLive/tcplife/best/ipv4","Elapsed":0.21}`,
	`{"Action":"run","Package":"5.10","Test":"TestLive/tcplife/best/mptcp"}`,
	`{"Action":"output","Package":"5.10","Test":"TestLive/tcplife/best/mptcp","Output":"    live_test.go:63: skipped: no MPTCP\n"}`,
	`{"Action":"skip","Package":"5.10","Test":"TestLive/tcplife/best/mptcp","Elapsed":0}`,
	`{"Action":"run","Package":"5.10","Test":"TestLive/tcplife/raw/ipv4"}`,
	`{"Action":"output","Package":"5.10","Test":"TestLive/tcplife/raw/ipv4","Output":"    live_test.go:66: 22 rows, want 23\n"}`,
	`{"Action":"output","Package":"5.10","Test":"TestLive/tcplife/raw/ipv4","Output":"--- FAIL: TestLive/tcplife/raw/ipv4 (0.21s)\n"}`,
	`{"Action":"fail","Package":"5.10","Test":"TestLive/tcplife/raw/ipv4","Elapsed":7.21}`,
	`{"Action":"fail","Package":"5.10","Test":"TestLive","Elapsed":8}`,
	`{"Action":"fail","Package":"5.10"}`,
)

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

// resultsOf is the results of a command with this output and this end.
func resultsOf(t *testing.T, out string, err error) *results {
	t.Helper()
	r := &results{}
	e := &events{results: r, where: "5.10"}
	if err := e.read(iotest.OneByteReader(strings.NewReader(out))); err != nil {
		t.Fatal(err)
	}
	e.end(err, "")
	return r
}

func TestClosingLine(t *testing.T) {
	r := resultsOf(t, said, errors.New("exit status 1"))
	r.time(timing{"5.10", 700 * time.Second, 1000 * time.Second})
	var out strings.Builder
	r.print(&out)
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := got[len(got)-1], "1 passed, 1 failed, 1 skipped"; got != want {
		t.Errorf("the last line is %q, want %q", got, want)
	}
	for _, want := range []string{
		"tcplife           best 1 (1 skipped)  raw 0 (1 FAILED)", "no MPTCP", "22 rows, want 23",
		"\n1 flaky:", "  5.10: TestLive/tcplife/best/ipv4: 21 rows, want 23\n\n1 passed",
		"5.10: 700 s of 1000 s\n  warning", "7.2 s  5.10: TestLive/tcplife/raw/ipv4\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if r.failed() == 0 {
		t.Error("nothing failed")
	}
}

// TestSilence: a command that ends badly without a failed test, or runs no test at
// all, is a failure; so is a test that does not end, and a package that does not
// build.
func TestSilence(t *testing.T) {
	const (
		pass  = `{"Action":"pass","Package":"p","Test":"TestX","Elapsed":0}` + "\n"
		begun = `{"Action":"run","Package":"p","Test":"TestY"}` + "\n"
		torn  = `{"Action":"fail","Package":"p"}` + "\n"
	)
	ended := errors.New("exit status 2")
	for _, c := range []struct {
		out  string
		err  error
		want int
	}{
		{pass, nil, 0},
		{pass, ended, 1},
		{"", nil, 1},
		{pass + begun, ended, 1},
		{pass + begun, nil, 1},
		{pass + begun + torn, ended, 1},
		{pass + `{"Action":"build-output","ImportPath":"q","Output":"x.go:1: undefined\n"}` + "\n" + `{"Action":"fail","Package":"q"}` + "\n", ended, 1},
	} {
		if got := resultsOf(t, c.out, c.err).failed(); got != c.want {
			t.Errorf("%q with %v: %d failed, want %d", c.out, c.err, got, c.want)
		}
	}
}

// TestRealOutput uses the real output of go test and test2json.
func TestRealOutput(t *testing.T) {
	s := &suite{ctx: t.Context(), dir: t.TempDir()}
	if err := s.goTest(s.ctx, units, "-run", "TestOn", "seine/test/flaky"); err != nil {
		t.Fatal(err)
	}
	binary := s.dir + "/flaky.test"
	if err := quiet(s.ctx, "go", "test", "-c", "-o", binary, "seine/test/flaky"); err != nil {
		t.Fatal(err)
	}
	if err := s.tests(s.ctx, native, []string{binary, "-test.v=test2json"}); err != nil {
		t.Fatal(err)
	}
	if err := s.tests(s.ctx, native, []string{"sh", "-c", binary + " -test.v=test2json; echo lost >&2; exit 3"}); err == nil {
		t.Error("no error")
	}
	var got []string
	for _, t := range s.results.all {
		got = append(got, fmt.Sprint(t.where, " ", t.name, " ", t.outcome))
	}
	want := "unit TestOn PASS, native TestList PASS, native TestOn PASS, native TestList PASS, native TestOn PASS, native tests ran to their end FAIL"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if log := s.results.all[len(s.results.all)-1].log; !strings.Contains(log, "lost") {
		t.Errorf("the log is %q", log)
	}
}

func TestFlakyBudget(t *testing.T) {
	for _, n := range []int{0, flakyBudget, flakyBudget + 1} {
		var r results
		for i := range n {
			r.put(result{where: "new", name: fmt.Sprint("TestLive/x/best/", i), outcome: "PASS", flaky: []string{"6 rows, want 7"}})
		}
		if r.overBudget(); (r.failed() > 0) != (n > flakyBudget) {
			t.Errorf("%d flaky: %d failed", n, r.failed())
		}
	}
}

func TestNowhere(t *testing.T) {
	var r results
	for _, t := range []result{
		{where: "native", name: "TestLive/qdisclat/best/cake", outcome: "SKIP"},
		{where: "6.12", name: "TestLive/qdisclat/best/cake", outcome: "PASS"},
		{where: "native", name: "TestLive/qdisclat/raw/card", outcome: "SKIP"},
		{where: "6.12", name: "TestLive/qdisclat/best/card", outcome: "SKIP"},
		{where: "native", name: "TestAgree/ipecn", outcome: "SKIP"},
		{where: "6.12", name: "TestAgree/ipecn", outcome: "PASS"},
		{where: "native", name: "TestAgree/qdisclat", outcome: "SKIP"},
		{where: "native", name: "TestOffers", outcome: "SKIP"},
		{where: units, pkg: languagePackage, name: "TestOrder/k:tcp_v4_connect", outcome: "SKIP"},
		{where: "6.12", name: "TestOrder/k:tcp_v4_connect", outcome: "PASS"},
		{where: units, pkg: languagePackage, name: "TestIter", outcome: "SKIP"},
		{where: units, pkg: "seine/internal/cli", name: "TestReplay", outcome: "SKIP"},
	} {
		r.put(t)
	}
	r.nowhere()
	var got []string
	for _, t := range r.all {
		if t.outcome == "FAIL" {
			got = append(got, t.name)
		}
	}
	if got, want := strings.Join(got, ", "), "TestAgree/qdisclat runs somewhere, qdisclat/card runs somewhere, TestIter runs in a guest"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
