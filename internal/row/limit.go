// SPDX-License-Identifier: Apache-2.0

package row

import "time"

// Limit lets n rows or n outputs through. Then it ends the next sink with End{Last}
// and answers Done to everything. 0 means no limit.
func Limit(next Sink, n uint64, outputs bool) Sink {
	if n == 0 {
		return next
	}
	return &limit{next: next, left: n, outputs: outputs}
}

type limit struct {
	next    Sink
	left    uint64
	outputs bool
}

func (l *limit) Row(r *Row) error {
	if l.left == 0 {
		return Done
	}
	if err := l.next.Row(r); err != nil || l.outputs {
		return err
	}
	if l.left--; l.left > 0 {
		return nil
	}
	return l.finish(End{Time: time.Now(), Last: true})
}

func (l *limit) End(e End) error {
	if l.left == 0 {
		return Done // it has been told of the end already
	}
	if l.outputs && e.Output {
		if l.left--; l.left == 0 {
			e.Last = true
			return l.finish(e)
		}
	}
	if e.Last {
		l.left = 0
	}
	return l.next.End(e)
}

func (l *limit) finish(e End) error {
	if err := l.next.End(e); err != nil {
		return err
	}
	return Done
}
