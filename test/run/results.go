// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// result is the result of one test.
type result struct {
	where, name string   // the kernel, TestLive/tcplife/best/ipv4
	pkg         string   // of go test
	outcome     string   // PASS, FAIL, SKIP
	log         string   // what it said, if it did not pass
	flaky       []string // what was wrong at the tries before the last
	took        time.Duration
}

// results is all of them, in the order in which they came.
type results struct {
	mu       sync.Mutex
	all      []result
	steps    []timing
	fetching string // how long it took
}

func (r *results) time(t timing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, t)
}

func (r *results) put(t result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, t)
}

func (r *results) add(where, name string, ok bool) {
	outcome := "PASS"
	if !ok {
		outcome = "FAIL"
	}
	r.put(result{where: where, name: name, outcome: outcome})
}

// leaves is the tests without subtests, and those that failed without a failed
// subtest.
func (r *results) leaves() []result {
	type id struct{ where, pkg, name string }
	parents, blamed := map[id]bool{}, map[id]bool{}
	for _, t := range r.all {
		for name := t.name; strings.Contains(name, "/"); {
			name = name[:strings.LastIndex(name, "/")]
			of := id{t.where, t.pkg, name}
			parents[of] = true
			blamed[of] = blamed[of] || t.outcome == "FAIL"
		}
	}
	return slices.DeleteFunc(slices.Clone(r.all), func(t result) bool {
		of := id{t.where, t.pkg, t.name}
		return parents[of] && (t.outcome != "FAIL" || blamed[of])
	})
}

func (r *results) failed() (n int) {
	for _, t := range r.all {
		if t.outcome == "FAIL" {
			n++
		}
	}
	return n
}

// print writes the table of live tests, the skips with their reasons, what
// failed, and the closing line.
func (r *results) print(w io.Writer) {
	leaves := r.leaves()
	fmt.Fprintf(w, "\n%s", table(leaves))
	count := map[string]int{}
	skips := map[string]int{}
	for _, t := range leaves {
		count[t.outcome]++
		if t.outcome == "SKIP" {
			skips[t.where+": "+toolOf(t.name)+": "+t.log]++
		}
	}
	if len(skips) > 0 {
		fmt.Fprintln(w, "\nskipped:")
		for _, s := range sorted(skips) {
			fmt.Fprintf(w, "  %d × %s\n", skips[s], s)
		}
	}
	r.dear(w, leaves)
	for _, t := range leaves {
		if t.outcome == "FAIL" {
			fmt.Fprintf(w, "\nFAIL %s: %s\n", t.where, t.name)
			for line := range strings.SplitSeq(strings.TrimSpace(t.log), "\n") {
				fmt.Fprintf(w, "      %.400s\n", line)
			}
		}
	}
	// Print the failures again without the logs, because people see the
	// last lines.
	if count["FAIL"] > 0 {
		fmt.Fprintln(w, "\nfailed:")
		for _, t := range leaves {
			if t.outcome == "FAIL" {
				fmt.Fprintf(w, "  %s: %s\n", t.where, t.name)
			}
		}
	}
	if f := flakyOnes(leaves); len(f) > 0 {
		fmt.Fprintf(w, "\n%d flaky: passed when they were tried again, as test/flaky/list.txt allows or because the kernel skipped a program\n", len(f))
		for _, t := range f {
			fmt.Fprintf(w, "  %s: %s: %.300s\n", t.where, t.name, strings.Join(t.flaky, "; "))
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed", count["PASS"], count["FAIL"])
	if count["SKIP"] > 0 {
		fmt.Fprintf(w, ", %d skipped", count["SKIP"])
	}
	fmt.Fprintln(w)
}

// flakyOnes are those that passed, but not at their first try.
func flakyOnes(all []result) (out []result) {
	for _, t := range all {
		if len(t.flaky) > 0 && t.outcome == "PASS" {
			out = append(out, t)
		}
	}
	return out
}

// flakyBudget is how many may need another try in one run.
const flakyBudget = 12

// overBudget makes a failure of too many flaky tests.
func (r *results) overBudget() {
	if n := len(flakyOnes(r.leaves())); n > flakyBudget {
		r.put(result{where: "make test", name: "flaky tests within their budget", outcome: "FAIL", log: fmt.Sprintf("%d, want %d at most", n, flakyBudget)})
	}
}

// nowhere records a failure for each case of TestLive and each script of TestAgree
// that every kernel skipped. It is for whole runs.
func (r *results) nowhere() {
	ran := map[string]bool{} // whether it ran somewhere by some way
	for _, t := range r.leaves() {
		if name := anywhere(t.name); name != "" {
			ran[name] = ran[name] || t.outcome != "SKIP"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ran)) {
		if !ran[name] {
			r.put(result{where: "make test", name: name + " runs somewhere", outcome: "FAIL", log: "each kernel that this run asked has skipped it: see notHere in test/run/plan.go"})
		}
	}
	r.untraced()
}

// untraced records a failure for each test of the language of which the machine's own kernel
// skipped something, if no guest has run it.
func (r *results) untraced() {
	inGuest, missing := map[string]bool{}, map[string]bool{}
	for _, t := range r.all {
		if slices.ContainsFunc(guests, func(g guest) bool { return g.name == t.where }) {
			inGuest[topOf(t.name)] = true
		}
	}
	for _, t := range r.all {
		if top := topOf(t.name); t.where == units && t.pkg == languagePackage && t.outcome == "SKIP" && !inGuest[top] {
			missing[top] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		r.put(result{where: "make test", name: name + " runs in a guest", outcome: "FAIL", log: "the machine's own kernel skips some of it: see traced in test/run/plan.go"})
	}
}

// languagePackage has the tests of the language.
const languagePackage = "seine/internal/bt"

// topOf is TestLive for TestLive/tcplife/best/ipv4.
func topOf(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

// anywhere is what must run on some kernel: tcplife/ipv4 for TestLive/tcplife/best/ipv4,
// TestAgree/tcplife as it is, and nothing for other tests.
func anywhere(name string) string {
	switch p := strings.SplitN(name, "/", 4); {
	case p[0] == "TestLive" && len(p) == 4:
		return p[1] + "/" + p[3]
	case p[0] == "TestAgree" && len(p) == 2:
		return name
	}
	return ""
}

// dear prints where the time went: the steps, the tests with their subtests, and
// the slowest subtests.
func (r *results) dear(w io.Writer, leaves []result) {
	fmt.Fprintln(w, "\ntime:")
	for _, t := range r.steps {
		fmt.Fprintf(w, "  %s\n", t)
		if t.near() {
			fmt.Fprintf(w, "  warning: that is more than %d %% of its limit\n", nearly)
		}
	}
	if r.fetching != "" {
		fmt.Fprintf(w, "  %s\n", r.fetching)
	}
	// The time of each kernel by test: TestLive, TestLoad, ...
	took := map[string]time.Duration{}
	for _, t := range leaves {
		took[t.where+": "+topOf(t.name)] += t.took
	}
	for _, name := range slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		return cmp.Or(cmp.Compare(took[b], took[a]), cmp.Compare(a, b))
	}) {
		if took[name] >= 30*time.Second {
			fmt.Fprintf(w, "  %6.0f s  %s\n", took[name].Seconds(), name)
		}
	}
	const most = 10
	byTime := slices.SortedStableFunc(slices.Values(leaves), func(a, b result) int { return cmp.Compare(b.took, a.took) })
	for _, t := range byTime[:min(most, len(byTime))] {
		fmt.Fprintf(w, "  %6.1f s  %s: %s\n", t.took.Seconds(), t.where, t.name)
	}
}

func sorted(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// toolOf is tcplife for TestLive/tcplife/best/ipv4.
func toolOf(name string) string {
	if p := strings.Split(name, "/"); len(p) > 1 {
		return p[1]
	}
	return name
}

// table shows for each tool and kernel how many cases passed by each way.
func table(leaves []result) string {
	type cell struct{ pass, fail, skip int }
	cells := map[string]map[string]*cell{} // tool, then "kernel way"
	var tools, columns []string
	for _, t := range leaves {
		p := strings.Split(t.name, "/")
		if p[0] != "TestLive" || len(p) < 4 {
			continue
		}
		tool, col := p[1], t.where+" "+p[2]
		if cells[tool] == nil {
			cells[tool] = map[string]*cell{}
			tools = append(tools, tool)
		}
		if !slices.Contains(columns, col) {
			columns = append(columns, col)
		}
		c := cells[tool][col]
		if c == nil {
			c = &cell{}
			cells[tool][col] = c
		}
		switch t.outcome {
		case "PASS":
			c.pass++
		case "FAIL":
			c.fail++
		default:
			c.skip++
		}
	}
	slices.Sort(tools)
	var b strings.Builder
	kernel := ""
	for _, col := range columns {
		k, _, _ := strings.Cut(col, " ")
		if k == kernel {
			continue
		}
		kernel = k
		fmt.Fprintf(&b, "%s: cases passed, by way\n", k)
		for _, tool := range tools {
			line := ""
			for _, c := range columns {
				if way, ok := strings.CutPrefix(c, k+" "); ok && cells[tool][c] != nil {
					n := cells[tool][c]
					line += fmt.Sprintf("  %s %d", way, n.pass)
					if n.fail > 0 {
						line += fmt.Sprintf(" (%d FAILED)", n.fail)
					}
					if n.skip > 0 {
						line += fmt.Sprintf(" (%d skipped)", n.skip)
					}
				}
			}
			if line != "" {
				fmt.Fprintf(&b, "  %-16s%s\n", tool, line)
			}
		}
	}
	return b.String()
}
