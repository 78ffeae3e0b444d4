// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"log/slog"
	"time"
)

// unrecorded logs that rows could not be recorded, at most once a minute.
type unrecorded struct {
	told uint64
	at   time.Time
}

func (u *unrecorded) tell(log *slog.Logger, lost uint64, now time.Time) {
	if lost == u.told || now.Sub(u.at) < time.Minute {
		return
	}
	log.Warn("rows were not recorded: the disk is full, or the budget is too small", "rows", lost-u.told)
	u.told, u.at = lost, now
}
