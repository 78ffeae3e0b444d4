// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
)

// Counted is what the kernel had counted before a tool was attached, after that,
// before it was detached, and after that.
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

// Between says whether n is what a tool may have counted on a line: no less than
// the kernel while the tool was attached, and no more than while it may have been.
func (at Counted) Between(n uint64, line string, cpu int) error {
	count := func(i int) uint64 { return at[i].Count[line][cpu] }
	if least, most := count(2)-count(1), count(3)-count(0); n < least || n > most {
		return fmt.Errorf("%s on processor %d: %d counted, and the kernel counts %d to %d", line, cpu, n, least, most)
	}
	return nil
}
