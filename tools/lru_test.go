// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"testing"

	"github.com/cilium/ebpf"

	"seine/internal/tool"
)

// forgetful are the maps that evict old entries silently, with the reason why that
// is reported or harmless.
var forgetful = map[string]string{
	"openers":    "a socket whose entry has gone is counted when it is looked for",
	"flows":      "a packet whose flow has gone is counted when it is looked for",
	"stack_pids": "a process is looked at again",
	"execs":      "a program is looked at again",
	"received":   "a packet that is not found has no softirq part, as the README says",
	"peers":      "a peer is shown again, as the README says",
}

// TestForgetful: a map of operations under way refuses entries that do not fit, and
// counts them. An LRU map would evict another entry silently.
func TestForgetful(t *testing.T) {
	seen := map[string]bool{}
	each(t, func(t *testing.T, _ *tool.Tool, spec *ebpf.CollectionSpec) {
		for name, m := range spec.Maps {
			if m.Type != ebpf.LRUHash && m.Type != ebpf.LRUCPUHash {
				continue
			}
			if seen[name] = true; forgetful[name] == "" {
				t.Errorf("%s forgets entries: use SPAN, or count what is not found and say so here", name)
			}
		}
	})
	for name := range forgetful {
		if !seen[name] {
			t.Errorf("%s does not forget entries any more", name)
		}
	}
}
