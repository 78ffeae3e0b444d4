// SPDX-License-Identifier: Apache-2.0

package sofdsnoop

import (
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "sendmmsg", Run: pass("mmsg", 3)},
		{Name: "kinds", Run: pass("kinds", 7)},
		{Name: "most", Run: pass("most", 253)},
		{Name: "failed-sends", Run: pass("failed", 1)},
		{Name: "too-little-room", Run: cut},
		{Name: "filter", Run: filtered},
	}
}

// cut: three descriptors are sent, but the receiver has room for one.
func cut(x *trial.Trial) error {
	t, rows, err := seen(x, "three", unix.CmsgSpace(4)-4, 4)
	if err != nil {
		return err
	}
	if len(t.received.FDs) != 1 {
		return fmt.Errorf("%d received, want 1", len(t.received.FDs))
	}
	t.compare(x, rows)
	return nil
}

// filtered: only the sender is shown.
func filtered(x *trial.Trial) error {
	t, rows, err := seen(x, "three", roomFor(3), 3, "--pid=%d")
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "pid", t.from.PID)
		x.Want(r, "action", "SEND")
	}
	return nil
}
