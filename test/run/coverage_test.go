// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"seine/test/proof"
)

// TestCoverage: a kernel's results become figures of its proof, and the proofs of all kernels the
// table. Without one of them there is no table.
func TestCoverage(t *testing.T) {
	var r results
	for _, t := range []result{
		{where: "native", name: "TestLive/tcplife/best/ipv4", outcome: "PASS"},
		{where: "native", name: "TestLive/tcplife/best/ipv6", outcome: "PASS"},
		{where: "native", name: "TestLive/tcplife/raw/ipv4", outcome: "PASS"},
		{where: "native", name: "TestOffers", outcome: "PASS"},
		{where: "5.10", name: "TestLive/tcplife/best/ipv4", outcome: "PASS"},
		{where: "5.10", name: "TestLive/tcplife/best/mptcp", outcome: "SKIP"},
		{where: "5.10", name: "TestLive/filetype/best/kinds", outcome: "PASS"},
		{where: "6.1", name: "TestLive/filetype/best/kinds", outcome: "FAIL"},
	} {
		r.put(t)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, proof.Folder), 0o755); err != nil {
		t.Fatal(err)
	}
	steps := fullSteps()
	for i, step := range steps {
		p := &proof.Proof{Name: proof.Full + step.name, Date: fmt.Sprint("day ", i), Figures: map[string]string{}}
		r.prove(p, step.kernel)
		if ok := map[string]bool{"native": true, "5.10": true}[step.kernel]; p.OK != ok {
			t.Errorf("%s: %+v", step.kernel, p)
		}
		if step.kernel == "native" && p.Figures["tests"] != "4 passed, 0 failed, 0 skipped" {
			t.Errorf("figures %v", p.Figures)
		}
		if err := p.Write(root); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	missing, err := oursCoverage(&b, root)
	if err != nil || len(missing) != len(steps)-2 || b.Len() > 0 {
		t.Fatalf("missing %q, %v: %s", missing, err, b.String())
	}
	for _, name := range missing {
		p, err := proof.Read(root, proof.Full+name)
		if err == nil {
			p.OK = true
			err = p.Write(root)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if missing, err := oursCoverage(&b, root); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	for _, line := range []string{
		"| tool | native | 5.10 | 6.1 |\n|---|---|---|---|\n",
		"| filetype | – | best 1 | best 0 (1) |\n",
		"| tcplife | best 2, raw 1 | best 1 (1) | – |\n",
		"native on day 0, ",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

func TestTheirs(t *testing.T) {
	var r results
	for _, t := range []result{
		{where: "theirs native", name: "TestTheirs/libbpf-tools/tcplife", outcome: "PASS"},
		{where: "theirs native", name: "TestTheirs/libbpf-tools/tcptop", outcome: "SKIP", log: "live_test.go:82: skipped: tcptop: libbpf: no kprobe libbpf: more"},
		{where: "theirs new", name: "TestTheirs/BCC/tcplife", outcome: "SKIP", log: "live_test.go:82: skipped: tcplife-bpfcc: In file included from x.h:4: y.h:5:1: error: no type z Traceback: Exception: Failed to compile"},
		{where: "theirs new", name: "TestTheirs/BCC/tcptop", outcome: "SKIP", log: "live_test.go:82: skipped: tcptop-bpfcc: Traceback: f() Exception: Failed to attach"},
	} {
		r.put(t)
	}
	var b strings.Builder
	r.theirs(&b)
	for _, line := range []string{
		"| tool | native | new |\n|---|---|---|\n| tcplife (BCC) | – | no [2] |\n| tcplife (libbpf-tools) | yes | – |\n",
		"\n1. `no kprobe`\n",
		"\n3. `Exception: Failed to attach`\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
	// A run of only our tools, or only the others', keeps the other part.
	for _, ours := range []string{"# Coverage\n", coverageHead} {
		a, o := parts([]byte(ours + b.String()))
		if string(a) != ours || string(o) != b.String() {
			t.Errorf("got\n%s\nand\n%s\nwant\n%s\nand\n%s", a, o, ours, b.String())
		}
	}
}

// TestFullRequired: make test fails if the proof of a kernel is missing.
func TestFullRequired(t *testing.T) {
	for _, step := range fullSteps() {
		if name := proof.Full + step.name; !slices.Contains(proof.Required, name) {
			t.Errorf("%s is not among the proofs that must exist", name)
		}
	}
}
