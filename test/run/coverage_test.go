// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	} {
		r.put(t)
	}
	var b strings.Builder
	r.coverage(&b)
	for _, line := range []string{
		"| tool | native | 5.10 |\n|---|---|---|\n",
		"| filetype | – | best 1 |\n",
		"| tcplife | best 2, raw 1 | best 1 (1) |\n",
		"| tcplife (libbpf-tools) | yes |\n| tcptop (libbpf-tools) | no [1] |\n",
		"\n1. `no kprobe`\n",
	} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}
