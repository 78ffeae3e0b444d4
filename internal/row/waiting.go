// SPDX-License-Identifier: Apache-2.0

package row

import (
	"container/heap"
	"time"
)

// waitingRows are rows in the order of their time. Rows of the same time are in the order in
// which they came.
type waitingRows struct {
	heap rowHeap
	free []*waitingRow // their room is used again
	seq  uint64
}

// freeMost is how many rows that wait no more are kept for the next ones.
const freeMost = 1000

func (w *waitingRows) len() int { return len(w.heap) }

// oldest is the time of the next row.
func (w *waitingRows) oldest() time.Time { return w.heap[0].at }

// put keeps a clone of r.
func (w *waitingRows) put(r *Row, at time.Time) {
	n := &waitingRow{}
	if last := len(w.free) - 1; last >= 0 {
		n = w.free[last]
		w.free = w.free[:last]
	}
	w.seq++
	n.at, n.seq = at, w.seq
	r.cloneTo(&n.row)
	heap.Push(&w.heap, n)
}

// take returns the oldest row. The caller gives it to done when it has been used.
func (w *waitingRows) take() *waitingRow { return heap.Pop(&w.heap).(*waitingRow) }

// done makes the room of r free for another row.
func (w *waitingRows) done(r *waitingRow) {
	if len(w.free) < freeMost {
		w.free = append(w.free, r)
	}
}

// waitingRow is a row with its time, and its number for rows of the same time.
type waitingRow struct {
	row Row
	at  time.Time
	seq uint64
}

type rowHeap []*waitingRow

func (h rowHeap) Len() int      { return len(h) }
func (h rowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h rowHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}
func (h *rowHeap) Push(x any) { *h = append(*h, x.(*waitingRow)) }
func (h *rowHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
