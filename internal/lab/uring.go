// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ring is an io_uring, in the plain form that 5.10 has: no polling threads, no
// registered files. One goroutine at a time may use it.
type Ring struct {
	fd    int
	known [256]bool // operations that the kernel has

	// Alike gives all requests the same user_data, which is allowed. Results
	// are then in the order of completion.
	Alike bool

	sq, cq, sqes      []byte // the three mappings
	sqTail            *uint32
	sqMask, sqEntries uint32
	sqArray           []uint32
	entries           []sqe
	cqHead, cqTail    *uint32
	cqMask            uint32
	completions       []cqe
}

// RingOp is one operation for [Ring.Do]; the fields are those of struct
// io_uring_sqe. Addr is memory that the kernel reads or fills.
type RingOp struct {
	Code  RingCode
	FD    int
	Addr  []byte
	Len   uint32 // default: of Addr
	Off   uint64
	Flags uint32 // msg_flags, accept_flags
	noLen bool   // Len is 0, though there is an Addr
}

// RingCode is the number of an operation.
type RingCode uint8

// Operations, and the kernel that brought them.
const (
	RingReadv   RingCode = 1  // 5.1
	RingWritev  RingCode = 2  // 5.1
	RingAccept  RingCode = 13 // 5.5
	RingConnect RingCode = 16 // 5.5
	RingRead    RingCode = 22 // 5.6
	RingWrite   RingCode = 23 // 5.6
	RingSend    RingCode = 26 // 5.6
	RingRecv    RingCode = 27 // 5.6
	RingSocket  RingCode = 45 // 5.19
	RingBind    RingCode = 56 // 6.11
	RingListen  RingCode = 57 // 6.11
)

var ringNames = map[RingCode]string{
	RingReadv: "readv", RingWritev: "writev", RingAccept: "accept", RingConnect: "connect", RingRead: "read", RingWrite: "write",
	RingSend: "send", RingRecv: "recv", RingSocket: "socket", RingBind: "bind", RingListen: "listen",
}

func (c RingCode) String() string {
	if s, ok := ringNames[c]; ok {
		return s
	}
	return fmt.Sprintf("operation %d", uint8(c))
}

// UringSupported returns nil if this process can use io_uring, else
// ErrNotSupported with the reason (too old, not built in, or switched off by
// kernel.io_uring_disabled).
func UringSupported() error {
	r, err := NewRing(1)
	if err != nil {
		return err
	}
	return r.Close()
}

// Kernel structures of io_uring.
type (
	ringParams struct {
		sqEntries, cqEntries, flags, cpu, idle, features, wq uint32
		_                                                    [3]uint32
		sq                                                   struct {
			head, tail, mask, entries, flags, dropped, array, _ uint32
			_                                                   uint64
		}
		cq struct {
			head, tail, mask, entries, overflow, cqes, flags, _ uint32
			_                                                   uint64
		}
	}
	sqe struct {
		code uint8
		_    [3]uint8
		fd   int32
		off  uint64
		addr uint64
		len  uint32
		op   uint32
		user uint64
		_    [3]uint64
	}
	cqe struct {
		user uint64
		res  int32
		_    uint32
	}
	ringProbe struct {
		last, n uint8
		_       [14]byte
		ops     [256]struct {
			op    uint8
			_     uint8
			flags uint16
			_     uint32
		}
	}
)

const (
	ringOffSQ   = 0
	ringOffCQ   = 0x8000000
	ringOffSQEs = 0x10000000

	ringGetEvents     = 1 // IORING_ENTER_GETEVENTS
	ringRegisterProbe = 8
	ringOpSupported   = 1
)

// NewRing makes a ring with room for n operations at once.
func NewRing(n int) (*Ring, error) {
	var p ringParams
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(&p)), 0)
	if e == unix.EPERM {
		return nil, fmt.Errorf("io_uring: %w (%w)", ErrNotSupported, e)
	}
	if e != 0 {
		return nil, unsupported("io_uring", e)
	}
	r := &Ring{fd: int(fd), sqMask: p.sqEntries - 1, sqEntries: p.sqEntries, cqMask: p.cqEntries - 1}
	unix.CloseOnExec(r.fd)
	if err := errors.Join(r.mmap(&p), r.probe()); err != nil {
		r.Close()
		return nil, fmt.Errorf("io_uring: %w", err)
	}
	return r, nil
}

// mmap maps the two queues and the array of entries.
func (r *Ring) mmap(p *ringParams) error {
	m := func(off int64, size uint32) ([]byte, error) {
		return unix.Mmap(r.fd, off, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	var err error
	if r.sq, err = m(ringOffSQ, p.sq.array+4*p.sqEntries); err != nil {
		return err
	}
	if r.cq, err = m(ringOffCQ, p.cq.cqes+uint32(unsafe.Sizeof(cqe{}))*p.cqEntries); err != nil {
		return err
	}
	if r.sqes, err = m(ringOffSQEs, uint32(unsafe.Sizeof(sqe{}))*p.sqEntries); err != nil {
		return err
	}
	r.sqTail = at[uint32](r.sq, p.sq.tail)
	r.sqArray = unsafe.Slice(at[uint32](r.sq, p.sq.array), p.sqEntries)
	r.entries = unsafe.Slice(at[sqe](r.sqes, 0), p.sqEntries)
	r.cqHead, r.cqTail = at[uint32](r.cq, p.cq.head), at[uint32](r.cq, p.cq.tail)
	r.completions = unsafe.Slice(at[cqe](r.cq, p.cq.cqes), p.cqEntries)
	return nil
}

// at gives the T at an offset of a mapping.
func at[T any](b []byte, off uint32) *T { return (*T)(unsafe.Pointer(&b[off])) }

// probe asks the kernel which operations it has (5.6).
func (r *Ring) probe() error {
	var p ringProbe
	_, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), ringRegisterProbe,
		uintptr(unsafe.Pointer(&p)), uintptr(len(p.ops)), 0, 0)
	if e != 0 {
		return unsupported("probe", e)
	}
	for _, op := range p.ops[:p.n] {
		r.known[op.op] = op.flags&ringOpSupported != 0
	}
	return nil
}

// Close ends the ring.
func (r *Ring) Close() error {
	var errs []error
	for _, m := range [][]byte{r.sq, r.cq, r.sqes} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}

// Do submits the operations together, waits until all are complete and gives
// their results in the order of the operations: a count, a descriptor, or an
// error number below zero. An operation that the kernel lacks is
// ErrNotSupported, and then nothing is submitted.
func (r *Ring) Do(ops ...RingOp) ([]int32, error) {
	if len(ops) > int(r.sqEntries) {
		return nil, fmt.Errorf("io_uring: %d operations, room for %d", len(ops), r.sqEntries)
	}
	var pin runtime.Pinner // the kernel has the addresses until all is complete
	defer pin.Unpin()
	tail := *r.sqTail // only we write it
	for i, op := range ops {
		if !r.known[op.Code] {
			return nil, fmt.Errorf("io_uring %s: %w", op.Code, ErrNotSupported)
		}
		slot := (tail + uint32(i)) & r.sqMask
		e := sqe{code: uint8(op.Code), fd: int32(op.FD), off: op.Off, len: op.Len, op: op.Flags, user: uint64(i)}
		if r.Alike {
			e.user = 0
		}
		if len(op.Addr) > 0 {
			pin.Pin(&op.Addr[0])
			e.addr = uint64(uintptr(unsafe.Pointer(&op.Addr[0])))
			if op.Len == 0 && !op.noLen {
				e.len = uint32(len(op.Addr))
			}
		}
		r.entries[slot], r.sqArray[slot] = e, slot
	}
	atomic.StoreUint32(r.sqTail, tail+uint32(len(ops)))
	return r.wait(ops)
}

// wait submits what is in the queue and collects as many completions.
func (r *Ring) wait(ops []RingOp) ([]int32, error) {
	res := make([]int32, len(ops))
	submit := len(ops)
	for left := len(ops); left > 0; {
		n, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(submit), uintptr(left), ringGetEvents, 0, 0)
		if e != 0 && e != unix.EINTR {
			return nil, fmt.Errorf("io_uring_enter: %w", e)
		}
		if e == 0 {
			submit -= int(n)
		}
		head := *r.cqHead // only we write it
		for ; head != atomic.LoadUint32(r.cqTail); head++ {
			c := r.completions[head&r.cqMask]
			i := int(c.user)
			if r.Alike {
				i = len(ops) - left
			}
			res[i] = c.res
			left--
			var err error
			if c.res < 0 {
				err = unix.Errno(-c.res)
			}
			op := ops[i]
			bytes := 0
			switch op.Code {
			case RingRead, RingWrite, RingReadv, RingWritev, RingSend, RingRecv:
				bytes = int(c.res)
			}
			note("uring:"+op.Code.String(), bytes, 1, err)
		}
		atomic.StoreUint32(r.cqHead, head)
	}
	return res, nil
}

// one does one operation and returns its result or its error.
func (r *Ring) one(op RingOp) (int, error) {
	res, err := r.Do(op)
	if err != nil {
		return -1, err
	}
	if res[0] < 0 {
		return -1, unix.Errno(-res[0])
	}
	return int(res[0]), nil
}
