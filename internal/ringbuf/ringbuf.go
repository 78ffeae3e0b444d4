// SPDX-License-Identifier: Apache-2.0

// Package ringbuf reads BPF ring buffers (BPF_MAP_TYPE_RINGBUF).
//
// Package ringbuf of cilium/ebpf maps the data twice, one copy behind the other, so that each record is in one piece.
// The kernel maps all pages at once, and counts both copies as memory of the process: 8 MB for a ring of 4 MB. This
// package maps only the part of the data that it reads, and puts a record that crosses the end of a part together.
package ringbuf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrFlushed is returned by ReadInto when Flush was called and all records were read.
var ErrFlushed = errors.New("the ring was flushed")

// A Record is what a program wrote.
type Record struct {
	RawSample []byte
	Remaining int // bytes that are left in the ring, at least
}

// A Reader reads a ring.
type Reader struct {
	memory
	ring         *ebpf.Map // its own descriptor: parts are mapped while it is read
	pages        [2][]byte // the mappings of the consumer's page and of the producer's page
	epoll        int
	flush, close event

	mu       sync.Mutex // held by ReadInto
	closed   bool
	unread   bool  // there may be records: do not wait
	pending  error // to return when there are none
	deadline time.Time
}

// NewReader maps a ring. The map may be closed afterwards.
func NewReader(m *ebpf.Map) (_ *Reader, err error) {
	if m.Type() != ebpf.RingBuf {
		return nil, fmt.Errorf("a map of type %s is no ring", m.Type())
	}
	r := &Reader{epoll: -1}
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	if r.ring, err = m.Clone(); err != nil {
		return nil, fmt.Errorf("keeping the ring open: %w", err)
	}
	page := os.Getpagesize()
	if r.pages[0], err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the consumer's page: %w", err)
	}
	if r.pages[1], err = unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the producer's page: %w", err)
	}
	size := uint64(m.MaxEntries())
	r.memory = memory{
		consumer: position(r.pages[0]), producer: position(r.pages[1]), size: size, partSize: min(size, partBytes), remap: r.remap,
	}
	if _, err := r.from(atomic.LoadUint64(r.consumer)); err != nil { // to hear now if it does not work
		return nil, err
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	for _, e := range []*event{&r.flush, &r.close} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("eventfd: %w", err)
		}
		*e = event{os.NewFile(uintptr(fd), "eventfd"), fd}
		if err := r.watch(fd); err != nil {
			return nil, err
		}
	}
	return r, r.watch(m.FD())
}

func position(page []byte) *uint64 { return (*uint64)(unsafe.Pointer(&page[0])) }

// remap maps the part of the data that begins at start in place of old. Mapping both for a moment would count twice.
func (r *Reader) remap(old []byte, start uint64) ([]byte, error) {
	if old != nil {
		unix.Munmap(old)
	}
	before := 2 * os.Getpagesize() // the pages of the positions
	part, err := unix.Mmap(r.ring.FD(), int64(before)+int64(start), int(r.partSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a part of the ring: %w", err)
	}
	return part, nil
}

func (r *Reader) watch(fd int) error {
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Close ends the call of ReadInto that runs, if there is one, and frees all.
func (r *Reader) Close() error {
	if err := r.close.signal(); err != nil {
		return err // it is closed already
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.release()
	return nil
}

func (r *Reader) release() {
	for _, m := range [][]byte{r.pages[0], r.pages[1], r.part} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	r.ring.Close()
	for _, e := range []event{r.flush, r.close} {
		if e.file != nil {
			e.file.Close()
		}
	}
	if r.epoll >= 0 {
		unix.Close(r.epoll)
	}
}

// SetDeadline is when ReadInto gives up. The zero time is never.
func (r *Reader) SetDeadline(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
}

// Flush wakes ReadInto: it reads what is in the ring, then returns ErrFlushed.
func (r *Reader) Flush() error { return r.flush.signal() }

// AvailableBytes is how many bytes are in the ring. The Reader must not be closed meanwhile.
func (r *Reader) AvailableBytes() int { return r.available() }

// ReadInto reads the next record. It waits for one until the deadline. Before it returns os.ErrDeadlineExceeded or
// ErrFlushed, it reads all records: programs need not wake the reader.
func (r *Reader) ReadInto(rec *Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("ring: %w", os.ErrClosed)
	}
	for {
		if !r.unread {
			if err := r.pending; err != nil {
				r.pending = nil
				return err
			}
			err := r.wait()
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrFlushed) {
				return err
			}
			r.pending, r.unread = err, true
		}
		got, err := r.read(rec)
		if err != nil {
			return err
		}
		switch got {
		case whole:
			return nil
		case none:
			r.unread = false
		case busy: // soon it is whole
			runtime.Gosched()
		}
	}
}

// wait returns nil if a program woke the reader.
func (r *Reader) wait() error {
	var events [3]unix.EpollEvent
	for {
		timeout := -1
		if !r.deadline.IsZero() {
			timeout = int(max(0, time.Until(r.deadline).Milliseconds()))
		}
		n, err := unix.EpollWait(r.epoll, events[:], timeout)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("epoll: %w", err)
		} else if n == 0 {
			return os.ErrDeadlineExceeded
		}
		for _, e := range events[:n] {
			switch int(e.Fd) {
			case r.close.fd:
				return fmt.Errorf("ring: %w", os.ErrClosed)
			case r.flush.fd:
				var count [8]byte
				r.flush.file.Read(count[:]) // else it wakes again
				err = ErrFlushed
			}
		}
		return err
	}
}

// An event is an eventfd. The file may be closed while others use it, the number may not.
type event struct {
	file *os.File
	fd   int
}

func (e event) signal() error {
	_, err := e.file.Write(binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// partBytes is how much of the data is mapped at once, and so counts as resident memory of a process that waits. A
// smaller part is mapped anew more often.
const partBytes = 512 << 10

// memory is what the kernel and the reader share. The positions count bytes, and never go back.
type memory struct {
	consumer, producer *uint64
	size, partSize     uint64 // powers of two
	part               []byte // of the data; nil: none is mapped
	start              uint64 // where in the data the part begins
	remap              func(old []byte, start uint64) ([]byte, error)
}

func (m *memory) available() int {
	return int(atomic.LoadUint64(m.producer) - atomic.LoadUint64(m.consumer))
}

// from returns the data from a position to the end of the position's part. It is valid until the next call.
func (m *memory) from(at uint64) (_ []byte, err error) {
	at &= m.size - 1
	if start := at &^ (m.partSize - 1); m.part == nil || m.start != start {
		if m.part, err = m.remap(m.part, start); err != nil {
			return nil, err
		}
		m.start = start
	}
	return m.part[at-m.start:], nil
}

// add appends the n bytes at a position to b.
func (m *memory) add(b []byte, at uint64, n int) ([]byte, error) {
	for n > 0 {
		piece, err := m.from(at)
		if err != nil {
			return b, err
		}
		piece = piece[:min(n, len(piece))]
		b = append(b, piece...)
		at += uint64(len(piece))
		n -= len(piece)
	}
	return b, nil
}

type outcome int

const (
	whole outcome = iota // a record was read
	busy                 // a program is writing the next record
	none                 // the ring is empty
)

// headerBytes is the size of a record's header: its length with two flags, and the kernel's own word. A header never
// crosses the end of a part, because records begin at multiples of 8.
const headerBytes = unix.BPF_RINGBUF_HDR_SZ

func (m *memory) read(rec *Record) (outcome, error) {
	at, end := atomic.LoadUint64(m.consumer), atomic.LoadUint64(m.producer)
	for at < end {
		header, err := m.from(at)
		if err != nil {
			return none, err
		}
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&header[0])))
		if head&unix.BPF_RINGBUF_BUSY_BIT != 0 {
			return busy, nil
		}
		n := int(head &^ unix.BPF_RINGBUF_DISCARD_BIT)
		sample := at + headerBytes
		at = sample + uint64(n+7)&^7
		if head&unix.BPF_RINGBUF_DISCARD_BIT != 0 {
			atomic.StoreUint64(m.consumer, at)
			continue
		}
		if rec.RawSample, err = m.add(rec.RawSample[:0], sample, n); err != nil {
			return none, err
		}
		rec.Remaining = int(end - at)
		atomic.StoreUint64(m.consumer, at)
		return whole, nil
	}
	return none, nil
}
