// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// Sample is for Point.Attach: it runs a program hz times a second on each processor. The clock is
// the kernel's own, since virtual machines seldom have cycle counters. It does not tick while
// interrupts are off; such a sample is taken when they are on again.
func Sample(hz uint64) func(*ebpf.Program, *ebpf.ProgramSpec) (io.Closer, error) {
	return func(prog *ebpf.Program, _ *ebpf.ProgramSpec) (_ io.Closer, err error) {
		cpus, err := host.OnlineCPUs()
		if err != nil {
			return nil, err
		}
		var events perfEvents
		defer func() {
			if err != nil {
				events.Close()
			}
		}()
		attr := unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: hz, Bits: unix.PerfBitFreq | unix.PerfBitDisabled,
		}
		attr.Size = uint32(unsafe.Sizeof(attr))
		for _, cpu := range cpus {
			fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.EINVAL) {
				return nil, fmt.Errorf("%d samples a second are more than the sysctl kernel.perf_event_max_sample_rate allows: %w", hz, err)
			}
			if err != nil {
				return nil, fmt.Errorf("clock of processor %d: %w", cpu, err)
			}
			events = append(events, perfEvent(fd))
			if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
				return nil, fmt.Errorf("program on the clock of processor %d: %w", cpu, err)
			}
		}
		for _, e := range events {
			if err := unix.IoctlSetInt(int(e), unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
				return nil, fmt.Errorf("starting the clocks: %w", err)
			}
		}
		return events, nil
	}
}

// perfEvents is a program on a perf event of each processor.
type perfEvents []perfEvent

// Close detaches it.
func (p perfEvents) Close() error {
	var errs []error
	for _, e := range slices.Backward(p) {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
