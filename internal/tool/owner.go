// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"math/bits"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"seine/internal/probe"
)

const before63 = "on kernels before 6.3 a process that only sends on a socket which another one opened"

const madeOnly = "the process of sockets that io_uring creates, until it sends or receives"

// ownerOption is what an object has otherwise than owner.h: enum owner_option there, same bits.
type ownerOption uint32

const (
	ownerListeners ownerOption = 1 << iota
	ownerListenersOnly
	ownerAll
	ownerTimes
	ownerGives
	ownerStateInTool
	ownerEndsAtClose
	ownerIOInTool
	ownerCookiesInTool
	ownerFinds
	ownerAccepts
	ownerOwn
	ownerTable
	ownerShared
)

const ownerOptions = "owner_options"

// ownerOptionsOf are the options of an object; false: it does not include owner.h.
func ownerOptionsOf(spec *ebpf.CollectionSpec) (o ownerOption, ok bool) {
	v := spec.Variables[ownerOptions]
	return o, v != nil && v.Get(&o) == nil
}

// has says whether an object with these options needs the programs of a point.
func (o ownerOption) has(point string) bool {
	switch point {
	case "owner_gone":
		return o&ownerEndsAtClose == 0
	case "owner_state":
		return o&ownerStateInTool == 0
	case "owner_made", ownersDone:
		return o&ownerAll != 0
	case "owner_accept", "owner_uring":
		return o&ownerListenersOnly == 0
	case "owner_send", "owner_recv", "owner_copied":
		return o&(ownerListenersOnly|ownerIOInTool) == 0
	}
	return true
}

// ownersFirst and ownersLast are the points at which owner.h notes the owner of a socket. A tool
// has those that its options leave, and need not name them. ownersFirst are the
// programs that delete entries, and those that must be attached before all others.
var ownersFirst = []probe.Point{
	{Name: "owner_gone"},
	{Name: "owner_state"},
}

// ownersLast are attached after the tool's own programs, which may delete entries too, or ask for
// the owner of a socket that is being released. The walk over existing sockets comes last of
// all, so that no socket is missed between the two.
var ownersLast = []probe.Point{
	{Name: "owner_release", Optional: true, Misses: "the end of sockets other than TCP: their owners take up room until a new socket replaces them"},
	{Name: "owner_accept", Ways: []probe.Way{
		{Name: "tp", Programs: []string{"owner_accept__tp__*"}},
		{Name: "sys", Programs: []string{"owner_accept__btf__*"}, Misses: "nothing, but every system call of the machine pays for it"},
	}},
	probe.Uring("owner_uring", "the process of sockets accepted by io_uring, until it sends or receives"),
	{Name: "owner_made", Ways: []probe.Way{
		{Name: "cgroup", Programs: []string{"owner_made__cgroup"}},
		{Name: "tp", Programs: []string{"owner_made__tp__*"}, Misses: madeOnly},
		{Name: "sys", Programs: []string{"owner_made__btf__*"}, Misses: madeOnly + "; every system call of the machine pays for it"},
	}},
	{Name: "owner_send", Optional: true, Misses: before63},
	{Name: "owner_recv", Optional: true, Misses: before63},
	// Stands in for owner_recv where there is no such tracepoint.
	{Name: "owner_copied", Needed: func(k *probe.Kernel) bool { return k.Args("sock_recv_length") == nil }},
	{Name: ownerSeed, Optional: true, Misses: "the process of sockets that were open before"},
}

const ownerSeed = "owner_seed"

// held are those of the points of owners for which an object has programs that it needs.
func held(spec *ebpf.CollectionSpec, points []probe.Point) (out []probe.Point) {
	o, _ := ownerOptionsOf(spec)
	for _, p := range points {
		if o.has(p.Name) && slices.ContainsFunc(p.WaysIn(spec), func(w probe.Way) bool { return len(w.Programs) > 0 }) {
			out = append(out, p)
		}
	}
	return out
}

// ownersLeast is how many sockets the map of owners has room for at least, with the default of
// --memory.
const ownersLeast = 1 << 14

// ownerEntries is how many sockets the map of owners has room for: four times
// as many as there are here, at least twice as many as there can be in all
// network namespaces, and some more.
func ownerEntries() uint32 {
	n := max(4*firstNumber("/proc/net/sockstat", "sockets: used %d"), 2*firstNumber("/proc/sys/fs/file-nr", "%d")) + ownersLeast
	return 1 << bits.Len32(n-1)
}

// firstNumber is the number in the first line of a file; 0 if it has none.
func firstNumber(file, format string) (n uint32) {
	b, err := os.ReadFile(file) // a sysctl is read whole or not at all
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(b), format, &n); err != nil {
		return 0
	}
	return n
}
