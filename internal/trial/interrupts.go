// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
)

// Counted has the kernel's counts at four times: before and after a tool was
// attached, and before and after it was detached.
type Counted [4]lab.Interrupts

// Counted runs load under the tool. It returns the rows and the kernel's counts in
// file, which are /proc/interrupts or /proc/softirqs.
func (x *Trial) Counted(file string, load func() error, flags ...string) (rows []*row.Row, at Counted, err error) {
	for i, step := range []func() error{
		func() error { return nil },
		func() error { return x.Attach(flags...) },
		load,
		// Interrupts that the kernel has counted by then may still be handled.
		func() error {
			if err := lab.OnEachCPU(); err != nil {
				return err
			}
			rows, err = x.Detach()
			return err
		},
	} {
		if err := step(); err != nil {
			return nil, at, err
		}
		if at[i], err = lab.ReadInterrupts(file); err != nil {
			return nil, at, err
		}
	}
	return rows, at, nil
}

// Between reports whether n is a possible count of the tool on a line: at least
// the kernel's count while the tool was attached, and at most that while it may
// have been.
func (at Counted) Between(n uint64, line string, cpu int) error {
	count := func(i int) uint64 { return at[i].Count[line][cpu] }
	if least, most := count(2)-count(1), count(3)-count(0); n < least || n > most {
		return fmt.Errorf("%s on processor %d: %d counted, and the kernel counts %d to %d", line, cpu, n, least, most)
	}
	return nil
}
