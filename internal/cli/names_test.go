// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"seine/internal/sym"
)

// TestObserved: a stack begins where a tracepoint is, however many programs it has;
// a sample that was taken while one was called shows that.
func TestObserved(t *testing.T) {
	prog, run := sym.Frame{Module: "bpf", Sym: "bpf_prog_1_drop"}, sym.Frame{Sym: "bpf_trace_run3"}
	called, all, at := sym.Frame{Sym: "__bpf_trace_kfree_skb"}, sym.Frame{Sym: "__traceiter_kfree_skb"}, sym.Frame{Sym: "sk_skb_reason_drop"}
	for _, c := range []struct {
		frames []sym.Frame
		want   string
	}{
		{[]sym.Frame{prog, run, at}, at.Sym},
		{[]sym.Frame{prog, run, all, at}, at.Sym},
		{[]sym.Frame{prog, run, called, all, at}, at.Sym},
		{[]sym.Frame{all, at}, all.Sym},
	} {
		if got := observed(c.frames)[0].Sym; got != c.want {
			t.Errorf("%v begins with %s, want %s", c.frames, got, c.want)
		}
	}
}
