// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"fmt"
	"strconv"
	"strings"

	"seine/internal/kern"
	"seine/internal/row"
)

// barWidth is that of the book's histograms.
const barWidth = 52

// histogram writes a row that has a histogram: the keys, the stacks, the bars
// as the book has them, and the numbers that bars cannot show.
//
//	comm=java dir=read (bytes):
//	[0]                  431 |@@@@@                                               |
//	[1]                    4 |                                                    |
//	count 435, avg 0, min 0, max 1, p50 0, p90 0, p99 0
func (t *tableSink) histogram(p *tablePlan, r *row.Row) {
	if t.gap || t.view != nil {
		t.buf = append(t.buf, '\n')
	}
	t.view, t.gap = nil, true
	t.keys(p, r)
	for _, i := range p.stacks {
		if s, ok := r.Cells[i].Ref.(*kern.Stack); ok {
			t.frames(s)
		}
	}
	h, ok := r.Cells[p.ref].Ref.(*kern.Hist)
	if !ok || h.Count == 0 {
		t.endLine(append(t.buf, "(no values)"...))
		return
	}
	var most uint64
	buckets := h.Buckets()
	for _, k := range buckets {
		most = max(most, k.Count)
	}
	for _, k := range buckets {
		from := len(t.buf)
		b := appendRange(t.buf, k.Lo, k.Hi)
		for len(b)-from < 16 {
			b = append(b, ' ')
		}
		b = fmt.Appendf(b, " %8d |", k.Count)
		full := int(float64(k.Count) / float64(most) * barWidth)
		for i := range barWidth {
			if i < full {
				b = append(b, '@')
			} else {
				b = append(b, ' ')
			}
		}
		t.endLine(append(b, '|'))
	}
	b := fmt.Appendf(t.buf, "count %d, avg %.0f, min %d, max %d", h.Count, h.Average(), h.Min, h.Max)
	b = fmt.Appendf(b, ", p50 %.0f, p90 %.0f, p99 %.0f", h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99))
	t.endLine(b)
}

// keys writes the keys of a histogram: comm=java dir=read (bytes):
func (t *tableSink) keys(p *tablePlan, r *row.Row) {
	line := len(t.buf)
	b := t.buf
	for i := range p.cols {
		k := &p.cols[i]
		c := &r.Cells[k.cell]
		if c.Kind == row.Null {
			continue
		}
		if len(b) > line {
			b = append(b, ' ')
		}
		b = append(append(b, k.col.ID...), '=')
		if c.Kind == row.Text && (c.S == "" || strings.ContainsAny(c.S, " =\"")) {
			b = strconv.AppendQuote(b, c.S)
		} else {
			b = t.value(b, k, c)
		}
	}
	if len(b) > line {
		b = append(b, " ("...)
		b = append(b, p.hist.Unit...)
		b = append(b, "):"...)
	} else {
		b = append(append(b, p.hist.Unit...), ':')
	}
	t.endLine(b)
}

// appendRange labels a bucket: [0], [1], [512, 1K).
func appendRange(b []byte, lo, hi uint64) []byte {
	b = append(b, '[')
	if hi == lo+1 {
		b = strconv.AppendUint(b, lo, 10)
		return append(b, ']')
	}
	b = append(appendPower(b, lo), ", "...)
	return append(appendPower(b, hi), ')')
}

// appendPower writes a power of two with the suffix of its thousands.
func appendPower(b []byte, n uint64) []byte {
	unit := 0
	for n >= 1024 && n%1024 == 0 {
		n /= 1024
		unit++
	}
	b = strconv.AppendUint(b, n, 10)
	if unit > 0 {
		b = append(b, "KMGTPE"[unit-1])
	}
	return b
}
