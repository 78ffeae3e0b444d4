// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"seine/internal/kern"
	"seine/internal/row"
)

// Ended is when a trial ended the tool, by the monotonic clock: not before From
// and not after To.
type Ended struct{ From, To int64 }

// DetachTimed is Detach, with the time at which the tool told what was pending.
func (x *Trial) DetachTimed() (rows []*row.Row, at Ended, err error) {
	at.From = int64(kern.MonoNow())
	rows, err = x.Detach()
	at.To = int64(kern.MonoNow())
	return rows, at, err
}

// WantPending records an error unless r is pending and its column id holds the age
// of what began between before and after, by the monotonic clock.
func (x *Trial) WantPending(r *row.Row, id string, before, after int64, at Ended) {
	x.Want(r, "pending", 1)
	c := r.Get(id)
	if c == nil || c.Kind == row.Null {
		x.Errorf("no age in %s of %s", id, Dump(r))
		return
	}
	if age, least, most := int64(c.N), at.From-after, at.To-before; age < least || age > most {
		x.Errorf("it is %d ns old, want from %d to %d by the stopwatch, in %s", age, least, most, Dump(r))
	}
}
