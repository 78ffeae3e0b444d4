// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"embed"
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

//go:embed testdata/samples
var samples embed.FS

var sampleLine = regexp.MustCompile(`(?s)@\[(.*?)\]: (\d+)\n`)

// TestSamples prints what the book's examples of one-liners show: all functions
// of a driver, tracepoints by their full names, stacks with offsets. The counts go
// in backwards, and must come out in order.
func TestSamples(t *testing.T) {
	for _, name := range []string{"driver", "tracepoints", "stacks"} {
		t.Run(name, func(t *testing.T) {
			golden := string(must(samples.ReadFile("testdata/samples/" + name + ".txt")))
			key := builtins["func"]
			r := &Run{p: &Program{u: &unit{}}, l: &loaded{maps: map[string]*ebpf.Map{}}}
			var stacks *ebpf.Map
			if name == "stacks" {
				needRoot(t)
				key = builtins["kstack"]
				stacks = must(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8 * stackDepth, MaxEntries: 8}))
				defer stacks.Close()
				r.l.maps[stackMap(&Type{Kind: KStack, Depth: stackDepth})] = stacks
			}
			d := &mapDef{name: "@", keyed: true, keys: []*Type{key}, value: &Type{Kind: CountOf}}
			var list []*entry
			for i, m := range slices.Backward(sampleLine.FindAllStringSubmatch(golden, -1)) {
				id := uint64(i + 1) // 0 is no stack
				if stacks != nil {
					check(stacks.Put(id|1<<63, frames(t, m[1])))
				}
				for uint64(len(r.p.u.names)) <= id {
					r.p.u.names = append(r.p.u.names, nil)
				}
				r.p.u.names[id] = &Target{Func: m[1], Probe: m[1]}
				if stacks != nil {
					id |= 1 << 63
				}
				list = append(list, &entry{key: binary.NativeEndian.AppendUint64(nil, id), nums: []uint64{must(strconv.ParseUint(m[2], 10, 64))}})
			}
			var b strings.Builder
			r.sort(d, list)
			r.printEntries(&b, d, list, 0, 0)
			if got := b.String(); got != golden {
				t.Errorf("got\n%s\nwant\n%s", got, golden)
			}
		})
	}
}

// frames are the addresses of function+offset, one a line.
func frames(t *testing.T, text string) []uint64 {
	out := make([]uint64, stackDepth)
	for i, f := range strings.Fields(text) {
		name, off, _ := strings.Cut(f, "+")
		addr := running().address(name)
		if addr == 0 {
			t.Skipf("no address of %s", name)
		}
		out[i] = addr + must(strconv.ParseUint(off, 10, 64))
	}
	return out
}
