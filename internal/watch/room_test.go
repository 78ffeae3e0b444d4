// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// TestSeriesRoom: what a cell takes does not depend on how large its key is. Ports that were
// used once make most of the keys of a busy machine, and each of them is in many seconds.
func TestSeriesRoom(t *testing.T) {
	o := (Options{}).filled()
	s := newSeries[TallyKey, tallyCell](&o, o.Tallies)
	heap := func() uint64 {
		var mem runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&mem)
		return mem.HeapAlloc
	}
	before := heap()
	const seconds, keys = 40, 2500
	for at := range int64(seconds) {
		for i := range keys {
			k := TallyKey{Kind: Closed, Who: Who{Comm: fmt.Sprint("worker", i), Netns: 1}, Lport: 443, Raddr: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Rport: uint16(i)}
			if c := s.cell(1000+at, k); c == nil {
				t.Fatal("no room")
			}
		}
	}
	each := (heap() - before) / (seconds * keys)
	runtime.KeepAlive(s)
	t.Logf("%d bytes for each cell", each)
	if each > 240 { // the cell itself has 144
		t.Errorf("%d bytes for each cell", each)
	}
}
