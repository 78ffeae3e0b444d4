// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A kernel writes records as the kernel does.
type kernel struct {
	memory
	at, seen uint64
}

func newKernel(size int) *kernel {
	k := &kernel{memory: memory{data: make([]byte, size)}}
	k.consumer, k.producer = &k.seen, &k.at
	return k
}

// write adds a record with these flags. ok is false if there is no room.
func (k *kernel) write(sample []byte, flags uint32) (header uint64, ok bool) {
	total := headerBytes + (len(sample)+7)&^7
	if k.available()+total > len(k.data) {
		return 0, false
	}
	record := make([]byte, total)
	binary.NativeEndian.PutUint32(record, uint32(len(sample))|flags)
	copy(record[headerBytes:], sample)
	header = k.at & uint64(len(k.data)-1)
	n := copy(k.data[header:], record)
	copy(k.data, record[n:])
	k.at += uint64(total)
	return header, true
}

// TestMemory: records of all sizes are read as they were written, also those that wrap around; discarded ones are left
// out, and one that is being written holds up those behind it.
func TestMemory(t *testing.T) {
	k := newKernel(4096)
	rnd := rand.New(rand.NewPCG(1, 2))
	var rec Record
	var want [][]byte
	wrapped := 0
	for range 20_000 {
		sample := make([]byte, rnd.IntN(300))
		for i := range sample {
			sample[i] = byte(rnd.Uint32())
		}
		discard := uint32(0)
		if rnd.IntN(10) == 0 {
			discard = unix.BPF_RINGBUF_DISCARD_BIT
		}
		if header, ok := k.write(sample, discard); ok {
			if discard == 0 {
				want = append(want, sample)
			}
			if int(header)+headerBytes+len(sample) > len(k.data) {
				wrapped++
			}
			if rnd.IntN(3) > 0 {
				continue
			}
		}
		for i, w := range want {
			if got := k.read(&rec); got != whole || !bytes.Equal(rec.RawSample, w) {
				t.Fatalf("record %d: %v, %x, want %x", i, got, rec.RawSample, w)
			}
		}
		if got := k.read(&rec); got != none || k.available() != 0 {
			t.Fatalf("%v, and %d bytes are left, want none", got, k.available())
		}
		want = want[:0]
	}
	if wrapped < 100 {
		t.Errorf("%d records wrapped around, want 100 at least", wrapped)
	}

	k = newKernel(4096)
	header, _ := k.write([]byte("first"), unix.BPF_RINGBUF_BUSY_BIT)
	k.write([]byte("second"), 0)
	if got := k.read(&rec); got != busy {
		t.Errorf("%v, want busy", got)
	}
	binary.NativeEndian.PutUint32(k.data[header:], 5)
	if got := k.read(&rec); got != whole || string(rec.RawSample) != "first" || rec.Remaining != headerBytes+8 {
		t.Errorf("%v %+v, want the first record, and the second one behind it", got, rec)
	}
}

// TestReader: the deadline, Flush and Close end ReadInto.
func TestReader(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := host.Memlock(); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: size})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if mapped := len(r.ring) + len(r.shared); mapped != size+2*os.Getpagesize() {
		t.Errorf("%d bytes are mapped, want the ring and two pages", mapped)
	}
	var rec Record
	begun := time.Now()
	r.SetDeadline(begun.Add(30 * time.Millisecond))
	if err := r.ReadInto(&rec); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) < 29*time.Millisecond {
		t.Errorf("%v after %v, want that the deadline is over after 30 ms", err, time.Since(begun))
	}
	r.SetDeadline(time.Time{})
	for _, c := range []struct {
		end  func() error
		want error
	}{{r.Flush, ErrFlushed}, {r.Close, os.ErrClosed}} {
		ended := make(chan error)
		go func() { ended <- r.ReadInto(&rec) }()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	for _, again := range []func() error{r.Close, r.Flush, func() error { return r.ReadInto(&rec) }} {
		if err := again(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%v after Close, want %v", err, os.ErrClosed)
		}
	}
}
