// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCoverage(t *testing.T) {
	var r results
	for _, t := range []result{
		{where: "native", name: "TestLive/tcplife/best/ipv4", outcome: "PASS"},
		{where: "native", name: "TestLive/tcplife/best/ipv6", outcome: "PASS"},
		{where: "native", name: "TestLive/tcplife/raw/ipv4", outcome: "PASS"},
		{where: "5.10", name: "TestLive/tcplife/best/ipv4", outcome: "PASS"},
		{where: "5.10", name: "TestLive/tcplife/best/mptcp", outcome: "SKIP"},
		{where: "5.10", name: "TestLive/filetype/best/kinds", outcome: "PASS"},
		{where: "theirs native", name: "TestTheirs/libbpf-tools/tcplife", outcome: "PASS"},
		{where: "theirs native", name: "TestTheirs/libbpf-tools/tcptop", outcome: "SKIP", log: "live_test.go:82: skipped: tcptop: libbpf: no kprobe libbpf: more"},
		{where: "theirs new", name: "TestTheirs/BCC/tcplife", outcome: "SKIP", log: "live_test.go:82: skipped: tcplife-bpfcc: In file included from x.h:4: y.h:5:1: error: no type z Traceback: Exception: Failed to compile"},
		{where: "theirs new", name: "TestTheirs/BCC/tcptop", outcome: "SKIP", log: "live_test.go:82: skipped: tcptop-bpfcc: Traceback: f() Exception: Failed to attach"},
	} {
		r.put(t)
	}
	var b strings.Builder
	r.coverage(&b)
	r.theirs(&b)
	for _, line := range []string{
		"| tool | native | 5.10 |\n|---|---|---|\n",
		"| filetype | – | best 1 |\n",
		"| tcplife | best 2, raw 1 | best 1 (1) |\n",
		"| tool | native | new |\n|---|---|---|\n| tcplife (BCC) | – | no [2] |\n| tcplife (libbpf-tools) | yes | – |\n",
		"\n1. `no kprobe`\n",
		"\n3. `Exception: Failed to attach`\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

// A run of only our tools, or only the others', keeps the other part.
func TestParts(t *testing.T) {
	r := results{all: []result{
		{where: "native", name: "TestLive/tcplife/best/ipv4", outcome: "PASS"},
		{where: "theirs native", name: "TestTheirs/libbpf-tools/tcplife", outcome: "PASS"},
	}}
	var ours, all bytes.Buffer
	r.coverage(&ours)
	r.coverage(&all)
	r.theirs(&all)
	if bytes.Equal(ours.Bytes(), all.Bytes()) {
		t.Fatal("nothing about others")
	}
	for _, old := range [][]byte{ours.Bytes(), all.Bytes()} {
		a, b := parts(old)
		if want := old[ours.Len():]; !bytes.Equal(a, ours.Bytes()) || !bytes.Equal(b, want) {
			t.Errorf("got\n%s\nand\n%s\nwant\n%s\nand\n%s", a, b, ours.Bytes(), want)
		}
	}
}
