// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seine/tools"
)

// run runs seine, which must succeed, and returns its stdout.
func run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(seine, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("seine %v: %v, stderr %q", args, err, errs.String())
	}
	return string(out)
}

// strict decodes JSON and refuses unexpected members.
func strict(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}

func names() (all []string) {
	for _, tl := range tools.All {
		all = append(all, tl.Name)
	}
	slices.Sort(all)
	return all
}

func TestListJSON(t *testing.T) {
	t.Parallel()
	var got []string
	for line := range strings.Lines(run(t, "list", "-o", "json")) {
		var e struct {
			Tool, Layer, Short, Status string
			Aliases                    []string
		}
		strict(t, line, &e)
		if e.Layer == "" || e.Short == "" || e.Status == "" {
			t.Errorf("something is empty in %s", line)
		}
		got = append(got, e.Tool)
	}
	slices.Sort(got)
	if !slices.Equal(got, names()) {
		t.Errorf("list has %v, want %v", got, names())
	}
}

// verdict is doctor's output, as scripts read it.
type verdict struct {
	Kernel, Arch     string
	BTF              bool
	Missing          []string `json:"missing_capabilities"`
	Cgroup2, Tracefs string
	Ways, Sysctls    map[string]string
	Tools            []struct {
		Tool                 string
		Runs                 bool
		Why                  string
		Needs, Better, Keeps []struct{ Capability, For string }
		Points               []struct {
			Point, Way, Misses string
			Refused            []struct{ Way, Why string }
		}
		Selftest []struct {
			Case string
			OK   bool
			Why  string

			Skipped bool
			Seconds float64
		}
		Verdict string
	}
	Verdict string
}

func TestDoctorJSON(t *testing.T) {
	t.Parallel()
	var v verdict
	strict(t, run(t, "doctor", "-o", "json"), &v)
	if !v.BTF || v.Kernel == "" || v.Arch == "" || len(v.Missing) != 0 {
		t.Errorf("kernel %q, arch %q, BTF %t, missing %v", v.Kernel, v.Arch, v.BTF, v.Missing)
	}
	for _, way := range []string{"btf", "raw", "tp", "fentry", "kprobe"} {
		if v.Ways[way] == "" {
			t.Errorf("nothing about the way %s", way)
		}
	}
	var got []string
	for _, tl := range v.Tools {
		got = append(got, tl.Tool)
		if !tl.Runs && tl.Why == "" {
			t.Errorf("%s does not run, and doctor does not say why", tl.Tool)
		}
		if tl.Runs && len(tl.Points) == 0 {
			t.Errorf("%s runs without a point", tl.Tool)
		}
		kept := capNames(tl.Keeps)
		for i, k := range kept {
			if slices.Contains(kept[:i], k) {
				t.Errorf("%s keeps %s twice", tl.Tool, k)
			}
		}
		for _, p := range tl.Points {
			if tl.Runs && p.Way == "" && p.Misses == "" {
				t.Errorf("%s: point %s has no way, and nothing is missed by it", tl.Tool, p.Point)
			}
			for i, r := range p.Refused {
				if slices.Contains(p.Refused[:i], r) {
					t.Errorf("%s: point %s: said twice: %+v", tl.Tool, p.Point, r)
				}
				if r.Way == "" || r.Why == "" {
					t.Errorf("%s: point %s: a refusal without a reason: %+v", tl.Tool, p.Point, r)
				}
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, names()) {
		t.Errorf("doctor has %v, want %v", got, names())
	}
}

// A self-test is small: a case or two of each tool, each with its verdict.
func TestSelftest(t *testing.T) {
	t.Parallel()
	var v verdict
	strict(t, run(t, "doctor", "tcplife", "tcpbind", "--selftest", "-o", "json"), &v)
	if len(v.Tools) != 2 || !strings.HasPrefix(v.Verdict, "all well: 2 of 2 tools") {
		t.Fatalf("%d tools, verdict %q", len(v.Tools), v.Verdict)
	}
	for _, tl := range v.Tools {
		if tl.Verdict != "works" || len(tl.Selftest) < 1 || len(tl.Selftest) > 2 {
			t.Errorf("%s: %q after the cases %+v, want one or two", tl.Tool, tl.Verdict, tl.Selftest)
		}
		for _, c := range tl.Selftest {
			if !c.OK || c.Skipped || c.Seconds <= 0 {
				t.Errorf("%s: %+v", tl.Tool, c)
			}
		}
	}
}

// Help shows the examples of a tool's README; so does its man page.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, tl := range tools.All {
		readme, err := os.ReadFile(filepath.Join("../../tools", tl.Name, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		_, text, found := strings.Cut(string(readme), "\n## Examples\n")
		if !found {
			continue // that a README has its sections is another test's business
		}
		text, _, _ = strings.Cut(text, "\n## ")
		help := run(t, "help", tl.Name)
		for line := range strings.Lines(text) {
			if example, ok := strings.CutPrefix(line, "    "); ok && !strings.Contains(help, strings.TrimSpace(example)) {
				t.Errorf("help %s does not show %q", tl.Name, example)
			}
		}
	}
}
