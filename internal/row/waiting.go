// SPDX-License-Identifier: Apache-2.0

package row

import (
	"slices"
	"time"
	"unsafe"
)

// waitingRows are rows in the order of their time. Rows of the same time are in the order in
// which they came. Rows come almost in order, so a new one is put at the end or close to it.
type waitingRows struct {
	rows []*waitingRow // the oldest first
	from int           // where the oldest is
	free []*waitingRow // their room is used again
}

// freeMost is how many rows that wait no more are kept for the next ones.
const freeMost = 1000

func (w *waitingRows) len() int { return len(w.rows) - w.from }

// oldest is the time of the next row.
func (w *waitingRows) oldest() time.Time { return w.rows[w.from].at }

// put keeps a clone of r.
func (w *waitingRows) put(r *Row, at time.Time) {
	n := &waitingRow{}
	if last := len(w.free) - 1; last >= 0 {
		n = w.free[last]
		w.free = w.free[:last]
	}
	n.at = at
	n.clone(r)
	if w.from > 0 && len(w.rows) == cap(w.rows) { // use the room in front again
		w.rows = slices.Delete(w.rows, 0, w.from)
		w.from = 0
	}
	if last := len(w.rows) - 1; last < w.from || !at.Before(w.rows[last].at) {
		w.rows = append(w.rows, n)
		return
	}
	i, _ := slices.BinarySearchFunc(w.rows[w.from:], at, func(old *waitingRow, at time.Time) int {
		if old.at.After(at) {
			return 1
		}
		return -1 // behind those of the same time
	})
	w.rows = slices.Insert(w.rows, w.from+i, n)
}

// take returns the oldest row. The caller gives it to done when it has been used.
func (w *waitingRows) take() *waitingRow {
	r := w.rows[w.from]
	w.rows[w.from] = nil
	if w.from++; w.from == len(w.rows) {
		w.rows, w.from = w.rows[:0], 0
	}
	return r
}

// done makes the room of r free for another row.
func (w *waitingRows) done(r *waitingRow) {
	if len(w.free) < freeMost {
		w.free = append(w.free, r)
	}
}

// waitingRow is a row with its time.
type waitingRow struct {
	row  Row
	at   time.Time
	text []byte // of all cells of the row
}

// clone makes the row one like r, in the room that it has.
func (w *waitingRow) clone(r *Row) {
	w.text = w.text[:0]
	w.row.Schema, w.row.Bytes = r.Schema, append(w.row.Bytes[:0], r.Bytes...)
	w.row.Cells = append(w.row.Cells[:0], r.Cells...)
	for i := range w.row.Cells {
		if c := &w.row.Cells[i]; c.S != "" {
			from := len(w.text)
			w.text = append(w.text, c.S...)
			c.S = unsafe.String(&w.text[from], len(c.S))
		}
	}
}
