// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestKfuncAllowed asks of functions that the kernel itself marks: those that all programs may
// call, and one that is there and no program may call.
func TestKfuncAllowed(t *testing.T) {
	needRoot(t)
	k := running()
	spec := must(k.types())
	var tag *btf.Func
	marked := spec.TypeByName("bpf_rcu_read_lock", &tag) == nil
	if !marked {
		t.Skip("this kernel has no bpf_rcu_read_lock")
	}
	for name, want := range map[string]bool{"bpf_rcu_read_lock": true, "do_exit": false, "no_such_function": false} {
		if got := k.kfuncAllowed(name, RawTracepoint); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
