// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
)

// Ended is when a trial ended the tool, by the monotonic clock: between From
// and To.
type Ended struct{ From, To int64 }

// DetachTimed is Detach, with the time at which the tool reported what was
// pending.
func (x *Trial) DetachTimed() (rows []*row.Row, at Ended, err error) {
	at.From = int64(kern.MonoNow())
	rows, err = x.Detach()
	at.To = int64(kern.MonoNow())
	return rows, at, err
}

// WantPending records an error unless r is pending and its column id has the age
// of an operation that began between before and after, by the monotonic clock.
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

// Unanswered attaches the tool and makes p ask server, a lab.DNS, n times for a name
// that it does not answer. It returns the pending rows, each with its age in column
// id.
func (x *Trial) Unanswered(p, server *lab.Proc, n int, id string, flags ...string) ([]*row.Row, error) {
	if err := x.Attach(flags...); err != nil {
		return nil, err
	}
	before := int64(kern.MonoNow())
	if err := p.Tell("go"); err != nil {
		return nil, err
	}
	for range n {
		var name string
		if err := server.Expect(&name); err != nil {
			return nil, err
		}
	}
	after := int64(kern.MonoNow())
	rows, at, err := x.DetachTimed()
	p.Kill()
	for _, r := range rows {
		x.WantPending(r, id, before, after, at)
	}
	return rows, err
}
