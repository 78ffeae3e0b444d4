// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// event is a line of test2json: see go doc cmd/test2json.
type event struct {
	Action, Package, ImportPath, Test, Output, Key, Value string
	Elapsed                                               float64
}

// events reads them and keeps the result of each test.
type events struct {
	results *results
	where   string
	running map[string]*result // by package and test, until its end
	built   map[string]string  // the compiler's output, by import path
	seen    int
	failed  map[string]bool // packages of which a test failed
}

func (s *events) read(r io.Reader) error {
	s.running, s.built, s.failed = map[string]*result{}, map[string]string{}, map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("test2json said %q: %w", lines.Text(), err)
		}
		s.event(e)
	}
	return lines.Err()
}

func (s *events) event(e event) {
	if e.Action == "build-output" {
		s.built[e.ImportPath] += e.Output
		return
	}
	if e.Test == "" {
		if e.Action == "fail" && !s.failed[e.Package] {
			s.torn(e.Package)
		}
		return
	}
	id := e.Package + " " + e.Test
	t := s.running[id]
	if t == nil {
		t = &result{where: s.where, pkg: e.Package, name: e.Test}
		s.running[id] = t
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") && !strings.HasPrefix(strings.TrimSpace(e.Output), "--- ") {
			t.log += strings.TrimSpace(e.Output) + "\n"
		}
	case "attr":
		if e.Key == "flaky" {
			t.flaky = append(t.flaky, e.Value)
		}
	case "pass", "fail", "skip":
		delete(s.running, id)
		s.seen++
		t.outcome, t.took = strings.ToUpper(e.Action), time.Duration(e.Elapsed*float64(time.Second))
		if t.log = strings.TrimSpace(t.log); t.outcome == "PASS" {
			t.log = ""
		} else {
			fmt.Fprintf(os.Stdout, "%s: %s %s: %.300s\n", s.where, t.outcome, t.name, t.log)
		}
		if t.outcome == "FAIL" {
			s.failed[e.Package] = true
		}
		s.results.put(*t)
	}
}

// torn is a package that failed without a failed test: it did not build, or a
// test ended the process.
func (s *events) torn(pkg string) {
	var said []string
	for _, out := range s.built {
		said = append(said, out)
	}
	s.unended(pkg)
	if !s.failed[pkg] {
		s.results.put(result{where: s.where, pkg: pkg, name: pkg + " runs to its end", outcome: "FAIL", log: strings.Join(said, "")})
		s.failed[pkg] = true
	}
}

// unended records a failure for each test of a package that has begun and not
// ended.
func (s *events) unended(pkg string) {
	for id, t := range s.running {
		if t.pkg != pkg {
			continue
		}
		delete(s.running, id)
		t.outcome, t.log = "FAIL", strings.TrimSpace(t.log+"\nit did not end")
		s.failed[pkg] = true
		s.results.put(*t)
	}
}

// end records how the command ended, with its other output. A command that failed
// without a failed test, or ran no test at all, is a failure.
func (s *events) end(err error, said string) {
	for _, t := range s.running {
		s.unended(t.pkg)
	}
	if err != nil && len(s.failed) == 0 || s.seen == 0 {
		s.results.put(result{where: s.where, name: "tests ran to their end", outcome: "FAIL", log: fmt.Sprintf("%v\n%s", err, said)})
	}
}

// goTest runs go test -json with these arguments.
func (s *suite) goTest(ctx context.Context, where string, args ...string) error {
	return s.watch(ctx, where, nil, append([]string{"go", "test", "-json"}, args...))
}

// tests runs a test binary with -test.v=test2json, here or in a guest.
func (s *suite) tests(ctx context.Context, where string, command []string) error {
	return s.watch(ctx, where, []string{"go", "tool", "test2json", "-t", "-p", where}, command)
}

// watch runs a command whose output, once it has gone through another one, is of
// test2json, and keeps the results.
func (s *suite) watch(ctx context.Context, where string, through, argv []string) error {
	from, to := io.Pipe()
	e := &events{results: &s.results, where: where}
	read := make(chan error, 1)
	var errs errorLines
	errs.where = where
	if through == nil {
		go func() { read <- e.read(from) }()
	} else {
		c := command(ctx, through[0], through[1:]...)
		c.Stdin, c.Stderr = from, os.Stderr
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return err
		}
		go func() { err := e.read(out); read <- errors.Join(err, c.Wait()) }()
	}
	c := command(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = to, &errs
	err := c.Run()
	to.Close()
	err = errors.Join(err, <-read)
	e.end(err, errs.tail())
	return err
}

// errorLines shows the standard error of a command, and keeps its last lines.
type errorLines struct {
	where string
	rest  []byte
	kept  []string
}

func (l *errorLines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		line := strings.TrimRight(string(l.rest[:i]), "\r")
		l.rest = l.rest[i+1:]
		if strings.HasPrefix(line, "vm: ") {
			fmt.Printf("%s: %s\n", l.where, line)
		}
		if l.kept = append(l.kept, line); len(l.kept) > 60 {
			l.kept = l.kept[1:]
		}
	}
}

func (l *errorLines) tail() string { return strings.Join(l.kept, "\n") }
