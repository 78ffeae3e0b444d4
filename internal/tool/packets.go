// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"

	"seine/internal/kern"
)

// packets are the perf buffers, one for each processor, that carry whole packets: bpf_skb_output
// writes to nothing else. A goroutine reads them, sorts the records by time and hands them to the
// tool's feed. It waits while the feed is full. Packets that then do not fit into the buffers are
// counted where they are lost.
type packets struct {
	reader *perf.Reader
	feed   *feed
	size   uint64
	done   chan struct{} // closed when the reader has ended

	mu    sync.Mutex
	asked []chan struct{}
}

// packetsMap is the name of the perf buffers in an object.
const packetsMap = "packets"

const (
	// packetsLeast is the smallest buffer of a processor: it holds some packets of 64 KB.
	packetsLeast = 512 << 10
	// packetsMost is how many bytes are put into order at once. Then they are handed over
	// though less than poll has passed.
	packetsMost = 4 << 20
	// packetsLate is how long a record may take from its time to the buffer. Younger records
	// wait for the next round.
	packetsLate = time.Millisecond
)

// takesPackets says whether the tool takes whole packets.
func takesPackets(spec *ebpf.CollectionSpec) bool {
	m := spec.Maps[packetsMap]
	return m != nil && m.Type == ebpf.PerfEventArray
}

// openPackets makes the buffers, if the tool has some, before programs write to them.
func (s *Session) openPackets(maps map[string]*ebpf.Map) error {
	m := maps[packetsMap]
	if m == nil || m.Type() != ebpf.PerfEventArray {
		return nil
	}
	asked := max(s.opts.Buffer/uint64(m.MaxEntries()), packetsLeast)
	each := asked
	r, err := perfReader(m, each)
	for ; err != nil && each > packetsLeast; r, err = perfReader(m, each) { // the error does not say whether size is the reason
		each = max(each/2, packetsLeast)
	}
	if err == nil && each < asked {
		s.Notes = append(s.Notes, fmt.Sprintf("the buffer has %d KiB for each processor in place of %d: the kernel lets this user lock no more (ulimit -l)", each>>10, asked>>10))
	}
	if err != nil {
		return fmt.Errorf("buffers of packets: %w", err)
	}
	s.packets = &packets{reader: r, feed: s.feed, size: each * uint64(m.MaxEntries()), done: make(chan struct{})}
	go func() {
		if guard := s.engine.guard; guard != nil {
			defer guard()
		}
		s.packets.run()
	}()
	return nil
}

// perfReader makes buffers of so many bytes for each processor. The kernel locks them.
func perfReader(m *ebpf.Map, each uint64) (*perf.Reader, error) {
	return perf.NewReaderWithOptions(m, int(each), perf.ReaderOptions{Watermark: int(each / 4)})
}

// bytes is how much memory the buffers take.
func (p *packets) bytes() uint64 {
	if p == nil {
		return 0
	}
	return p.size
}

// close ends the reader.
func (p *packets) close() {
	if p == nil {
		return
	}
	p.feed.close(nil) // else it might wait for room
	p.reader.Close()
	<-p.done
}

// sync returns when all that is in the buffers now has been handed to the feed.
func (p *packets) sync() {
	if p == nil {
		return
	}
	ack := make(chan struct{})
	p.mu.Lock()
	p.asked = append(p.asked, ack)
	p.mu.Unlock()
	p.reader.Flush()
	select {
	case <-ack:
	case <-p.done:
	}
}

// run reads until the reader is closed.
func (p *packets) run() {
	defer close(p.done)
	var rec perf.Record
	var o ordered
	for {
		end := kern.MonoNow() + kern.Mono(poll)
		p.reader.SetDeadline(time.Now().Add(poll))
		kern.SyncClock()
		err := error(nil)
		for err == nil {
			if err = p.reader.ReadInto(&rec); err != nil || rec.LostSamples > 0 { // those are counted in the kernel
				continue
			}
			o.add(rec.RawSample)
			if len(o.bytes) > packetsMost {
				p.reader.SetDeadline(time.Now())
				end = min(end, kern.MonoNow())
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, perf.ErrFlushed) {
			if errors.Is(err, os.ErrClosed) {
				err = nil
			}
			p.feed.close(err)
			return
		}
		var asked []chan struct{}
		if errors.Is(err, perf.ErrFlushed) {
			p.mu.Lock()
			asked, p.asked = p.asked, nil
			p.mu.Unlock()
			end = kern.Mono(kern.None)
		}
		o.hand(p.feed, end-kern.Mono(packetsLate))
		for _, ack := range asked {
			close(ack)
		}
	}
}

// ordered is records that wait to be handed over in the order of their times.
type ordered struct {
	bytes []byte
	at    []orderedRecord
}

type orderedRecord struct {
	ts       kern.Mono
	from, to int // in bytes
}

// add takes a record, which begins with kern.Head.
func (o *ordered) add(raw []byte) {
	if len(raw) < 8 {
		return
	}
	from := len(o.bytes)
	o.bytes = append(o.bytes, raw...)
	o.at = append(o.at, orderedRecord{kern.Mono(binary.NativeEndian.Uint64(raw)), from, len(o.bytes)})
}

// hand gives the feed the records that are older than a time, and keeps the rest.
func (o *ordered) hand(f *feed, until kern.Mono) {
	slices.SortStableFunc(o.at, func(a, b orderedRecord) int { return cmp.Compare(a.ts, b.ts) })
	n, waiting := 0, 0
	for n < len(o.at) && o.at[n].ts < until {
		r := &o.at[n]
		f.add(o.bytes[r.from:r.to])
		if waiting += r.to - r.from; waiting >= batchMost {
			f.hand()
			waiting = 0
		}
		n++
	}
	if waiting > 0 {
		f.hand()
	}
	kept := make([]byte, 0, 64)
	for i := n; i < len(o.at); i++ {
		from := len(kept)
		kept = append(kept, o.bytes[o.at[i].from:o.at[i].to]...)
		o.at[i].from, o.at[i].to = from, len(kept)
	}
	o.at = append(o.at[:0], o.at[n:]...)
	o.bytes = append(o.bytes[:0], kept...)
	if cap(o.bytes) > 2*packetsMost {
		o.bytes = append([]byte(nil), o.bytes...)
	}
}
