// SPDX-License-Identifier: Apache-2.0

package ringbuf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// A kernel writes records as the kernel does.
type kernel struct {
	memory
	data     []byte
	at, seen uint64
}

func newKernel(size, part int) *kernel {
	k := &kernel{data: make([]byte, size)}
	k.memory = memory{consumer: &k.seen, producer: &k.at, size: uint64(size), partSize: uint64(part)}
	k.remap = func(_ []byte, start uint64) ([]byte, error) { return k.data[start:][:part:part], nil }
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

// TestMemory: records of all sizes are read as they were written, also those that wrap around and those that cross the
// ends of parts; discarded ones are left out, and one that is being written holds up those behind it.
func TestMemory(t *testing.T) {
	for _, part := range []int{4096, 1024, 64, 8} {
		t.Run(fmt.Sprint(part), func(t *testing.T) { testMemory(t, part) })
	}

	k := newKernel(4096, 4096)
	var rec Record
	header, _ := k.write([]byte("first"), unix.BPF_RINGBUF_BUSY_BIT)
	k.write([]byte("second"), 0)
	if got, err := k.read(&rec); got != busy || err != nil {
		t.Errorf("%v, %v, want busy", got, err)
	}
	binary.NativeEndian.PutUint32(k.data[header:], 5)
	if got, err := k.read(&rec); got != whole || err != nil || string(rec.RawSample) != "first" || rec.Remaining != headerBytes+8 {
		t.Errorf("%v, %v, %+v, want the first record, and the second one behind it", got, err, rec)
	}
}

// testMemory writes and reads 20,000 records, of a ring that is mapped in parts of this size.
func testMemory(t *testing.T, part int) {
	k := newKernel(4096, part)
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
			if got, err := k.read(&rec); got != whole || err != nil || !bytes.Equal(rec.RawSample, w) {
				t.Fatalf("record %d: %v, %v, %x, want %x", i, got, err, rec.RawSample, w)
			}
		}
		if got, err := k.read(&rec); got != none || err != nil || k.available() != 0 {
			t.Fatalf("%v, %v, and %d bytes are left, want none", got, err, k.available())
		}
		want = want[:0]
	}
	if wrapped < 100 {
		t.Errorf("%d records wrapped around, want 100 at least", wrapped)
	}
}

// TestNoPart: a part that cannot be mapped is an error, and the record is read when it can.
func TestNoPart(t *testing.T) {
	k := newKernel(4096, 64)
	sample := bytes.Repeat([]byte("seine"), 20)
	k.write(sample, 0)
	remap, full := k.remap, errors.New("no memory")
	var rec Record
	for fails := range 2 { // the header's part, and the one behind it
		maps := 0
		k.remap = func(old []byte, start uint64) ([]byte, error) {
			if maps++; maps > fails {
				return nil, full
			}
			return remap(old, start)
		}
		if _, err := k.read(&rec); !errors.Is(err, full) {
			t.Errorf("%v, want %v", err, full)
		}
	}
	k.remap = remap
	if got, err := k.read(&rec); got != whole || err != nil || !bytes.Equal(rec.RawSample, sample) {
		t.Errorf("%v, %v, %q, want %q", got, err, rec.RawSample, sample)
	}
}

// A writer has a program that writes a record of random size and content into a ring of the kernel.
type writer struct {
	ring, sample *ebpf.Map
	prog         *ebpf.Program
	rnd          *rand.Rand
}

// sampleBytes is how large a record may be, and 1.
const sampleBytes = 16 << 10

func newWriter(t *testing.T, size uint32) *writer {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := host.Memlock(); err != nil {
		t.Fatal(err)
	}
	w := &writer{rnd: rand.New(rand.NewPCG(3, 4))}
	var err error
	if w.ring, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: size}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ring.Close() })
	// A sample is its size in 8 bytes, then its content.
	if w.sample, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8 + sampleBytes, MaxEntries: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.sample.Close() })
	w.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R1, w.ring.FD()),
		asm.LoadMapValue(asm.R2, w.sample.FD(), 0),
		asm.LoadMem(asm.R3, asm.R2, 0, asm.DWord),
		asm.And.Imm(asm.R3, sampleBytes-1),
		asm.Add.Imm(asm.R2, 8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.prog.Close() })
	return w
}

// write returns the sample that it has written. It is nil if the ring has no room.
func (w *writer) write(t *testing.T) []byte {
	value := make([]byte, 8+sampleBytes)
	for i := 8; i < len(value); i += 8 {
		binary.NativeEndian.PutUint64(value[i:], w.rnd.Uint64())
	}
	n := w.rnd.IntN(sampleBytes)
	binary.NativeEndian.PutUint64(value, uint64(n))
	if err := w.sample.Put(uint32(0), value); err != nil {
		t.Fatal(err)
	}
	result, err := w.prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	if err != nil {
		t.Fatal(err)
	}
	if result != 0 {
		return nil
	}
	return value[8:][:n]
}

// mapped is how many bytes of BPF maps this process has mapped.
func mapped(t *testing.T) (sum int) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(maps) {
		if !bytes.HasSuffix(line, []byte("bpf-map\n")) {
			continue
		}
		var from, to int
		if _, err := fmt.Sscanf(string(line), "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		sum += to - from
	}
	return sum
}

// TestLaps: records that a program writes are read as they were written while the ring goes round several times, and
// never more than one part of it is mapped.
func TestLaps(t *testing.T) {
	const size, laps = 4 * partBytes, 3
	w := newWriter(t, size)
	r, err := NewReader(w.ring)
	if err != nil {
		t.Fatal(err)
	}
	w.ring.Close() // the program has it, and the reader
	var rec Record
	var want [][]byte
	crossed := 0 // the ends of parts
	for at := uint64(0); at < laps*size; {
		if s := w.write(t); s != nil {
			want = append(want, s)
			next := at + headerBytes + uint64(len(s)+7)&^7
			if at/partBytes != (next-1)/partBytes {
				crossed++
			}
			at = next
			if w.rnd.IntN(200) > 0 {
				continue
			}
		}
		if used := mapped(t); used != partBytes+2*os.Getpagesize() {
			t.Fatalf("%d bytes are mapped, want a part and two pages", used)
		}
		for i, s := range want {
			if err := r.ReadInto(&rec); err != nil || !bytes.Equal(rec.RawSample, s) {
				t.Fatalf("at %d: record %d of %d: %v, %d bytes, want these %d", at, i, len(want), err, len(rec.RawSample), len(s))
			}
		}
		if rec.Remaining != 0 || r.AvailableBytes() != 0 {
			t.Fatalf("%d bytes are left, want none", r.AvailableBytes())
		}
		want = want[:0]
	}
	if crossed < 2*laps {
		t.Errorf("%d records crossed the end of a part, want %d at least", crossed, 2*laps)
	}
	r.Close()
	if used := mapped(t); used != 0 {
		t.Errorf("%d bytes are mapped after Close, want none", used)
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
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
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
