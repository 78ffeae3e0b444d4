// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"seine/internal/lab"
	"seine/internal/object"
)

// Kinds of buffers, and numbers that struct life_value of skblife.bpf.c ends with.
const (
	lifeAlloc, lifeReceive, lifeUnknown = 0, 1, 5

	lifeBirths, lifeMerged, lifeUnseen, lifeOrphans = 0, 1, 2, 3
)

// TestBetween: two threads share a processor, and one of them takes it in the middle of
// what the other does to a buffer. A test cannot make the kernel switch at a given
// instruction, so it runs the programs of skblife directly, as if their functions had
// been called.
func TestBetween(t *testing.T) {
	const x, y, z = 0xffff888000001000, 0xffff888000002000, 0xffff888000003000
	for _, c := range []struct {
		name string
		do   func(a, b *lifeThread)
		want map[[2]int]uint64 // by kind and number; others are 0
	}{
		{"made by one after the other", func(a, b *lifeThread) {
			a.alloc(x)
			a.netdev(x)
			b.alloc(y)
			b.netdev(y)
		}, map[[2]int]uint64{{lifeReceive, lifeBirths}: 2}},
		{"made in between", func(a, b *lifeThread) {
			a.alloc(x)
			b.alloc(y)
			b.netdev(y)
			b.alloc(z)
			a.netdev(x)
		}, map[[2]int]uint64{{lifeReceive, lifeBirths}: 2, {lifeAlloc, lifeBirths}: 1}},
		{"both in the middle of it", func(a, b *lifeThread) {
			a.alloc(x)
			b.alloc(y)
			a.netdev(x)
			b.netdev(y)
		}, map[[2]int]uint64{{lifeReceive, lifeBirths}: 2}},
		{"an end that was not seen", func(a, b *lifeThread) {
			a.alloc(x)
			b.alloc(y)
			a.alloc(x)
		}, map[[2]int]uint64{{lifeAlloc, lifeBirths}: 3, {lifeAlloc, lifeUnseen}: 1}},
		{"an end that was not seen, and another thread's", func(a, b *lifeThread) {
			a.alloc(x)
			b.netdev(x)
		}, map[[2]int]uint64{{lifeAlloc, lifeBirths}: 1, {lifeAlloc, lifeUnseen}: 1, {lifeReceive, lifeBirths}: 1}},
		{"ended in between", func(a, b *lifeThread) {
			a.alloc(x)
			b.alloc(y)
			a.release(x)
			b.release(y)
			b.stateless(y)
			a.stateless(x)
		}, map[[2]int]uint64{{lifeAlloc, lifeBirths}: 2}},
		{"ended in between, begun unseen", func(a, b *lifeThread) {
			a.release(x)
			b.stateless(y)
			a.stateless(x)
			b.release(z)
		}, map[[2]int]uint64{{lifeUnknown, lifeOrphans}: 3}},
		{"begun unseen again", func(a, b *lifeThread) {
			a.alloc(x)
			a.release(x)
			b.stateless(x)
			a.release(x)
			a.release(x)
		}, map[[2]int]uint64{{lifeAlloc, lifeBirths}: 1, {lifeUnknown, lifeOrphans}: 3}},
	} {
		t.Run("skblife/"+c.name, func(t *testing.T) {
			progs := lifePrograms(t)
			a, b := newLifeThread(t, progs), newLifeThread(t, progs)
			c.do(a, b)
			for kind := range lifeUnknown + 1 {
				v := make([]byte, progs.Maps["spans"].ValueSize())
				if err := progs.Maps["spans"].Lookup(uint32(kind), &v); err != nil {
					t.Fatal(err)
				}
				for n := range lifeOrphans + 1 {
					got := binary.LittleEndian.Uint64(v[len(v)-8*(lifeOrphans+1-n):])
					if want := c.want[[2]int{kind, n}]; got != want {
						t.Errorf("kind %d, number %d: got %d, want %d", kind, n, got, want)
					}
				}
			}
		})
	}
}

// lifePrograms loads the programs for functions as raw tracepoint programs, which can be
// run with synthetic arguments.
func lifePrograms(t *testing.T) *ebpf.Collection {
	spec, err := object.Spec("skblife")
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{"life__fexit__alloc", "life__fexit__netdev", "life__fexit__release", "life__fexit__stateless"}
	maps.DeleteFunc(spec.Programs, func(name string, ps *ebpf.ProgramSpec) bool {
		ps.Type, ps.AttachType, ps.AttachTo = ebpf.RawTracepoint, ebpf.AttachNone, ""
		return !slices.Contains(wanted, name)
	})
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A lifeThread calls functions, as far as skblife sees.
type lifeThread struct {
	t     *testing.T
	progs *ebpf.Collection
	calls chan func()
	done  chan bool
}

// newLifeThread starts a thread. All are on the same processor.
func newLifeThread(t *testing.T, progs *ebpf.Collection) *lifeThread {
	th := &lifeThread{t, progs, make(chan func()), make(chan bool)}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		if _, err := lab.Pin(0); err != nil {
			t.Error(err)
		}
		for f := range th.calls {
			f()
			th.done <- true
		}
	}()
	t.Cleanup(func() { close(th.calls) })
	return th
}

func (th *lifeThread) run(part string, args ...uint64) {
	th.calls <- func() {
		if _, err := th.progs.Programs["life__fexit__"+part].Run(&ebpf.RunOptions{Context: args}); err != nil {
			th.t.Error(err)
		}
	}
	<-th.done
}

// alloc is the return of __alloc_skb(size, mask, flags, node).
func (th *lifeThread) alloc(skb uint64) { th.run("alloc", 100, 0, 0, 0, skb) }

// netdev is that of __netdev_alloc_skb(dev, length, mask).
func (th *lifeThread) netdev(skb uint64) { th.run("netdev", 0, 100, 0, skb) }

func (th *lifeThread) release(skb uint64) { th.run("release", skb) }

func (th *lifeThread) stateless(skb uint64) { th.run("stateless", skb) }
