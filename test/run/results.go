// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// result is what became of one test.
type result struct {
	where, name string // the kernel, TestLive/tcplife/best/ipv4
	pkg         string // of go test
	outcome     string // PASS, FAIL, SKIP
	log         string // what it said, if it did not pass
	again       string // why it was tried twice, if it passed then
}

// results is all of them, in the order in which they came.
type results struct {
	mu  sync.Mutex
	all []result
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

// pack says which package the results from one on are of, and returns where the
// next one begins.
func (r *results) pack(from int, pkg string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := from; i < len(r.all); i++ {
		r.all[i].pkg = pkg
	}
	return len(r.all)
}

// failedAt counts the failures of one place.
func (r *results) failedAt(where string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.all {
		if t.where == where && t.outcome == "FAIL" {
			n++
		}
	}
	return n
}

// failedIn is the tests that failed, by their package as far as that is known.
func (r *results) failedIn() map[string][]string {
	out := map[string][]string{}
	for _, t := range r.all {
		if t.outcome == "FAIL" && strings.HasPrefix(t.name, "Test") && !strings.Contains(t.name, "/") {
			out[t.pkg] = append(out[t.pkg], t.name)
		}
	}
	return out
}

// take adds the results of a first run, and where there was a second, those.
func (r *results) take(first, second *results) {
	why, again := map[string]string{}, map[string]bool{}
	for _, t := range second.all {
		again[t.pkg+" "+topOf(t.name)] = true
	}
	for _, t := range first.all {
		if id := t.pkg + " " + t.name; again[t.pkg+" "+topOf(t.name)] {
			why[id] = t.log
			continue
		}
		r.put(t)
	}
	for _, t := range second.all {
		if log := why[t.pkg+" "+t.name]; log != "" && t.outcome == "PASS" {
			t.again = log
		}
		r.put(t)
	}
}

// topOf is TestLive for TestLive/tcplife/best/ipv4.
func topOf(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

// leaves is the tests that are not made of others, and those that failed though
// none of their parts did.
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
	for _, t := range leaves {
		if t.again != "" {
			fmt.Fprintf(w, "passed when tried again: %s: %s: %.300s\n", t.where, t.name, t.again)
		}
	}
	for _, t := range leaves {
		if t.outcome == "FAIL" {
			fmt.Fprintf(w, "\nFAIL %s: %s\n", t.where, t.name)
			for line := range strings.SplitSeq(strings.TrimSpace(t.log), "\n") {
				fmt.Fprintf(w, "      %.400s\n", line)
			}
		}
	}
	// Once more without the logs: the last lines are those that people see.
	if count["FAIL"] > 0 {
		fmt.Fprintln(w, "\nfailed:")
		for _, t := range leaves {
			if t.outcome == "FAIL" {
				fmt.Fprintf(w, "  %s: %s\n", t.where, t.name)
			}
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed", count["PASS"], count["FAIL"])
	if count["SKIP"] > 0 {
		fmt.Fprintf(w, ", %d skipped", count["SKIP"])
	}
	fmt.Fprintln(w)
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

// parser reads the output of tests run with -v.
type parser struct {
	results *results
	where   string
	rest    []byte
	said    map[string]string // by test, until its outcome is known
	current string
	seen    int
	ended   int  // how many results are of packages that have ended
	torn    bool // the package does not run to its end
}

var (
	outcome = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	running = regexp.MustCompile(`^=== (?:RUN|CONT|NAME)\s+(\S+)`)
	ended   = regexp.MustCompile(`^(?:ok|FAIL)\s+(\S+)\s+(?:[0-9.]+s|\(cached\))`)
	broken  = regexp.MustCompile(`^(FAIL\s+\S+ \[|panic:|FAIL\s+\S+\s+\(cached\)|.*\[build failed\]|.*\[setup failed\])`)
)

func (p *parser) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		p.line(strings.TrimRight(string(p.rest[:i]), "\r"))
		p.rest = p.rest[i+1:]
	}
}

func (p *parser) line(line string) {
	if p.said == nil {
		p.said = map[string]string{}
	}
	switch m := outcome.FindStringSubmatch(line); {
	case m != nil:
		p.seen++
		r := result{where: p.where, name: m[2], outcome: m[1]}
		if _, first, again := strings.Cut(p.said[m[2]], "another try, after: "); again && m[1] == "PASS" {
			r.again = strings.TrimSpace(first)
		}
		if m[1] != "PASS" {
			r.log = strings.TrimSpace(p.said[m[2]])
			fmt.Fprintf(os.Stdout, "%s: %s %s: %.300s\n", p.where, m[1], m[2], r.log)
		}
		delete(p.said, m[2])
		p.results.put(r)
	case ended.MatchString(line):
		pkg := ended.FindStringSubmatch(line)[1]
		if p.torn {
			pkg = ""
		}
		p.ended, p.torn = p.results.pack(p.ended, pkg), false
	case running.MatchString(line):
		p.current = running.FindStringSubmatch(line)[1]
	case broken.MatchString(line) || strings.HasPrefix(line, "vm: "):
		fmt.Fprintf(os.Stdout, "%s: %s\n", p.where, line)
		p.said[p.current] += line + "\n"
		p.torn = true
	case p.current != "" && strings.HasPrefix(line, " "):
		p.said[p.current] += strings.TrimSpace(line) + "\n"
	}
}

// end says how the command ended. One that failed without a failed test, or ran
// no test at all, is a failure of its own.
func (p *parser) end(err error) {
	if err != nil && p.results.failedAt(p.where) == 0 || p.seen == 0 {
		p.results.put(result{
			where: p.where, name: "tests ran to their end", outcome: "FAIL",
			log: fmt.Sprintf("%v\n%s", err, p.said[p.current]),
		})
	}
}
