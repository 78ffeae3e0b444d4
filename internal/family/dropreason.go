// SPDX-License-Identifier: Apache-2.0

package family

import (
	"fmt"
	"strings"
	"sync"

	"seine/internal/probe"
	"seine/internal/row"
)

// DropReason is why the kernel dropped a packet: enum skb_drop_reason of the
// running kernel, by its own name. The numbers differ from release to release.
type DropReason uint32

// DropUntold is the reason on kernels that do not give one: DROP_UNTOLD of drop.h.
const DropUntold = ^DropReason(0)

// Subsystems have numbers of their own, with theirs in the upper half.
const dropSubsystem = 16

// dropNames reads the names from the BTF of the running kernel.
var dropNames = sync.OnceValue(func() map[DropReason]string {
	k, err := probe.Running()
	if err != nil {
		return nil
	}
	names := map[DropReason]string{}
	add := func(enum, prefix string, shift uint) {
		for _, v := range k.Types.Enum(enum) {
			name, _ := strings.CutPrefix(v.Name, prefix)
			if _, ok := names[DropReason(v.Value<<shift)]; !ok {
				names[DropReason(v.Value<<shift)] = name
			}
		}
	}
	add("skb_drop_reason", "SKB_DROP_REASON_", 0)
	add("qdisc_drop_reason", "", 0) // 7.2
	// Number 0 of a subsystem is no reason: it serves to name the others.
	add("skb_drop_reason_subsys", "SKB_DROP_REASON_SUBSYS_", dropSubsystem)
	return names
})

// Kind says that a DropReason is shown by name.
func (DropReason) Kind() row.Kind { return row.Text }

// Cell gives the name; absent when the kernel told none.
func (d *DropReason) Cell(c *row.Cell) {
	if *d == DropUntold {
		*c = row.Cell{}
		return
	}
	c.SetText(d.String())
}

func (d DropReason) String() string {
	names := dropNames()
	if name, ok := names[d]; ok {
		return name
	}
	// The names of subsystems that are modules are not in the kernel's BTF.
	of, n := d>>dropSubsystem, d&(1<<dropSubsystem-1)
	if name, ok := names[of<<dropSubsystem]; ok && of != 0 {
		return fmt.Sprintf("%s:%d", name, n)
	}
	return fmt.Sprintf("%d:%d", of, n)
}
