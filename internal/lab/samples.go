// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	seinehost "seine/internal/host"
)

// Samples is samples of the current process on every processor, taken by the kernel's
// perf without BPF. A virtual processor that the host has stopped takes no samples
// meanwhile.
type Samples struct{ rings []sampleRing }

// sampleRing is the samples of one processor. They are not removed, so the room is
// limited.
type sampleRing struct {
	cpu, fd int
	memory  []byte
}

// samplePages is the number of pages of a ring. With pages of 4 KB it holds
// 16,000 samples.
const samplePages = 64

// StartSamples starts to take hz samples a second.
func StartSamples(hz int) (*Samples, error) {
	cpus, err := seinehost.OnlineCPUs()
	if err != nil {
		return nil, fmt.Errorf("lab: samples: %w", err)
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(hz), Sample_type: unix.PERF_SAMPLE_TID, Bits: unix.PerfBitFreq,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	s := &Samples{}
	for _, cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lab: samples of processor %d: %w", cpu, err), s.Close())
		}
		memory, err := unix.Mmap(fd, 0, (1+samplePages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		s.rings = append(s.rings, sampleRing{cpu, fd, memory})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lab: samples of processor %d: %w", cpu, err), s.Close())
		}
	}
	return s, nil
}

// Close ends it.
func (s *Samples) Close() error {
	var errs []error
	for _, r := range s.rings {
		if r.memory != nil {
			errs = append(errs, unix.Munmap(r.memory))
		}
		errs = append(errs, unix.Close(r.fd))
	}
	return errors.Join(errs...)
}

// Count is how many samples there are so far of a process, 0 for idle processors, on
// a processor, or on all of them: -1.
func (s *Samples) Count(pid, cpu int) (n uint64, err error) {
	for _, r := range s.rings {
		if cpu >= 0 && r.cpu != cpu {
			continue
		}
		of, err := r.count(uint32(pid))
		if err != nil {
			return 0, fmt.Errorf("lab: samples of processor %d: %w", r.cpu, err)
		}
		n += of
	}
	return n, nil
}

// count reads what is in the ring: struct perf_event_mmap_page, then records.
func (r sampleRing) count(pid uint32) (n uint64, err error) {
	const dataHead, header = 1024, 8
	head := atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.memory[dataHead])))
	data := r.memory[os.Getpagesize():]
	if head+64 > uint64(len(data)) {
		return 0, errors.New("there is no room for more")
	}
	for data = data[:head]; len(data) > header; {
		size := int(binary.NativeEndian.Uint16(data[6:]))
		if size < header || size > len(data) {
			return 0, fmt.Errorf("a record of %d bytes", size)
		}
		if binary.NativeEndian.Uint32(data) == unix.PERF_RECORD_SAMPLE && binary.NativeEndian.Uint32(data[header:]) == pid {
			n++
		}
		data = data[size:]
	}
	return n, nil
}
