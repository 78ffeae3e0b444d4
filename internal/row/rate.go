// SPDX-License-Identifier: Apache-2.0

package row

import "time"

// A Rate hands on at most PerSecond rows in each second of the clock and counts
// the rest, for --rate. It stands before Limit: rows that are held back do not
// count there.
type Rate struct {
	Next      Sink
	PerSecond uint64
	Held      uint64 // rows that were not handed on
	// Notice is told while rows are held back, at most once every Every, how many
	// were since it was last told. It may be nil.
	Notice func(held uint64)
	Every  time.Duration
	Now    func() time.Time // nil: time.Now

	second int64
	passed uint64 // in that second
	told   uint64
	last   time.Time // when Notice was called
}

// Row hands on the row if there is room in this second.
func (r *Rate) Row(row *Row) error {
	if s := r.now().Unix(); s != r.second {
		r.second, r.passed = s, 0
	}
	if r.passed >= r.PerSecond {
		r.Held++
		return nil
	}
	r.passed++
	return r.Next.Row(row)
}

// End says how many rows are being held back.
func (r *Rate) End(e End) error {
	if now := r.now(); r.Held > r.told && r.Notice != nil && !e.Last && now.Sub(r.last) >= r.Every {
		r.Notice(r.Held - r.told)
		r.told, r.last = r.Held, now
	}
	return r.Next.End(e)
}

func (r *Rate) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}
