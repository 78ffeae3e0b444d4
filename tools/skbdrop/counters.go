// SPDX-License-Identifier: Apache-2.0

package skbdrop

import (
	"slices"
	"strings"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/tool"
)

// counter is a protocol counter of the kernel that moved.
type counter struct {
	Netns kern.ID32 `col:"netns,width=10" help:"network namespace, by inode"`
	Name  name      `col:"counter,width=28" help:"its name, as nstat writes it"`
	Count uint64    `col:"count,width=8,sum" help:"by how much it grew"`
}

// telling are parts of the names of counters that tell of packets thrown away.
var telling = []string{
	"Drop", "Discard", "Error", "Errs", "NoPorts", "NoRoutes", "UnknownProtos", "Overflow", "Prune", "Reject",
	"Fails", "Failed", "Truncated", "TooBigErrors", "IPReversePathFilter", "ACKSkipped", "ChallengeACK",
	"PAWS", "OutOfWindowIcmps", "TCPMD5", "TCPAOBad", "TCPAOKeyNotFound", "TCPAORequired",
}

// tells says whether a counter is about drops.
func tells(name string) bool {
	return slices.ContainsFunc(telling, func(part string) bool { return strings.Contains(name, part) })
}

// counters reads those of the network namespaces that are looked at: the ones
// that --netns names, else all that can be found.
func counters(w *tool.Wanted) (func() ([]counter, error), error) {
	read := func() map[uint32]host.Counters {
		all := map[uint32]host.Counters{}
		if w.On&^tool.FilterNetns != 0 {
			return all // they count everybody's packets
		}
		for _, n := range host.AllNetns() {
			if w.On&tool.FilterNetns != 0 && !slices.Contains(w.Netns, n.Inode) {
				continue
			}
			if c, err := n.Counters(); err == nil { // else it has just ended
				all[n.Inode] = c
			}
		}
		return all
	}
	before := read()
	return func() ([]counter, error) {
		var moved []counter
		now := read()
		for inode, c := range now {
			for id, n := range c.Since(before[inode]) {
				if tells(id) && n > 0 {
					moved = append(moved, counter{kern.ID32(inode), name(id), uint64(n)})
				}
			}
		}
		before = now
		slices.SortFunc(moved, func(a, b counter) int { return strings.Compare(string(a.Name), string(b.Name)) })
		return moved, nil
	}, nil
}
