// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strings"
	"testing"
)

// TestStackPlaces counts by kernel stack, with room for all stacks in the kernel's map,
// and with room for one: the others are kept under their hash. No stack is lost, and none
// is taken for another.
func TestStackPlaces(t *testing.T) {
	defer func(n int) { stackPlaces = n }(stackPlaces)
	for _, stackPlaces = range []int{8192, 1} {
		for _, key := range []string{"kstack", "kstack(40)", "kstack, 1"} {
			out, errs := live(t, script("t:net:net_dev_xmit { @["+key+"] = count(); }"), Options{PIDs: self()}, func() {
				datagrams(64, 64, 64, 300, 1200)
				refused(4)
			})
			for function, n := range map[string]int{"udp_sendmsg+": 5, "tcp_connect+": 4} {
				found := 0
				for block := range strings.SplitSeq(out, "@[") {
					if strings.Contains(block, function) && !strings.Contains(block, "process_backlog+") && strings.Contains(block, fmt.Sprintf("]: %d\n", n)) {
						found++
					}
				}
				if found != 1 {
					t.Errorf("%s with %d places: %d stacks have %s and the count %d, want 1, in\n%s", key, stackPlaces, found, function, n, out)
				}
			}
			if strings.Contains(errs, "not kept") {
				t.Errorf("%s with %d places: %s", key, stackPlaces, errs)
			}
		}
	}
}
