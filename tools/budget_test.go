// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/tool"
)

// TestBudget makes the maps of every tool and asks the kernel how much memory they
// take. Together they may take at most --memory, plus the ring, which takes a page
// in tools that never send anything.
func TestBudget(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to make maps takes root")
	}
	for _, tl := range All {
		for _, memory := range []uint64{100 << 10, 1 << 20, 32 << 20, 256 << 20} {
			for _, interval := range []time.Duration{0, time.Second} {
				p, err := tool.Prepare(tl, tl.NewConfig(), tool.Options{Memory: memory, Interval: interval})
				if errors.Is(err, tool.ErrUsage) && memory == 100<<10 {
					t.Logf("%v", err) // said, not exceeded
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				sum := uint64(0)
				for name, spec := range p.Maps() {
					n := memlock(t, spec)
					if spec.Type == ebpf.RingBuf {
						if most := uint64(tool.DefaultBuffer) + 64<<10; n > most {
							t.Errorf("%s: the ring takes %d bytes, want at most %d", tl.Name, n, most)
						}
						if want := uint32(os.Getpagesize()); tl.Name == "socketio" && spec.MaxEntries != want {
							t.Errorf("%s: a ring of %d bytes, want %d: it sends nothing", tl.Name, spec.MaxEntries, want)
						}
						continue
					}
					if testing.Verbose() && n > memory/2 {
						t.Logf("%s --memory %d: map %s of %d entries takes %d bytes", tl.Name, memory, name, spec.MaxEntries, n)
					}
					sum += n
				}
				if sum > memory {
					t.Errorf("%s --memory %d, interval %v: maps of %d bytes", tl.Name, memory, interval, sum)
				}
			}
		}
	}
}

// memlock is the memory of a map, as the kernel reports it.
func memlock(t *testing.T, spec *ebpf.MapSpec) uint64 {
	t.Helper()
	if spec.Type == ebpf.SkStorage { // the memory of its entries belongs to the sockets
		return 0
	}
	spec = spec.Copy()
	spec.Contents, spec.Key, spec.Value = nil, nil, nil
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.Memlock()
	if !ok && spec.Type != ebpf.LPMTrie { // which allocates memory for each entry when it is added
		t.Skip("this kernel does not tell the memory of maps")
	}
	return n
}
