// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// A field is one named value of a row.
type field struct {
	name  string
	value any // bool, uint64, int64, string, *kern.Stack or row.JSON
}

// rows says whether what the script prints is wanted as rows.
func (r *Run) rows() bool { return r.p.opts.Rows != nil }

// emit hands a row to the sink. Rows of one source, which is a map or a call of the
// script, have the same fields. The first of them makes the schema.
func (r *Run) emit(source any, at time.Time, fields ...field) {
	s := r.schemas[source]
	if s == nil {
		s = r.schemaOf(fields)
		if r.schemas == nil {
			r.schemas = map[any]*row.Schema{}
		}
		r.schemas[source] = s
	}
	out := s.New()
	out.Cells[0] = row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
	for i, f := range fields[:min(len(fields), len(out.Cells)-1)] {
		c := &out.Cells[1+i]
		switch v := f.value.(type) {
		case bool:
			if c.Kind = row.Bool; v {
				c.N = 1
			}
		case uint64:
			c.SetUint(v)
		case int64:
			c.SetInt(v)
		case string:
			c.SetText(v)
		case nil:
		default:
			*c = row.Cell{Kind: row.Object, Ref: v}
		}
	}
	if err := r.p.opts.Rows.Row(out); err != nil && r.rowErr == nil {
		r.rowErr = err
	}
}

// schemaOf makes the schema of rows with these fields, after their time.
func (r *Run) schemaOf(fields []field) *row.Schema {
	tool := r.p.opts.Tool
	if tool == "" {
		tool = "run"
	}
	s := &row.Schema{Tool: tool, Columns: []row.Column{{ID: "time", Head: "TIME", Help: "when", Kind: row.Time, Div: 1, Scale: 1, Width: 8, Left: true}}, Show: []int{0}}
	for _, f := range fields {
		c := row.Column{ID: f.name, Help: "of the script", Div: 1, Scale: 1}
		for n := 2; s.Index(c.ID) >= 0; n++ { // two expressions may end in the same word
			c.ID = fmt.Sprintf("%s_%d", f.name, n)
		}
		c.Head = strings.ToUpper(c.ID)
		switch f.value.(type) {
		case bool:
			c.Kind = row.Bool
		case uint64:
			c.Kind = row.Uint
		case int64:
			c.Kind = row.Int
		case string, nil:
			c.Kind, c.Left = row.Text, true
		default:
			c.Kind, c.Left = row.Object, true
		}
		s.Show = append(s.Show, len(s.Columns))
		s.Columns = append(s.Columns, c)
	}
	return s
}

// endRows closes a batch of rows. Losses are told with the last one.
func (r *Run) endRows(e row.End) error {
	if !r.rows() {
		return nil
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if err := r.p.opts.Rows.End(e); r.rowErr == nil {
		r.rowErr = err
	}
	return r.rowErr
}

// Losses are the losses of a run, as those of tools are called.
func (l Lost) Losses() (out []row.Loss) {
	for _, k := range []row.Loss{
		{Kind: "ring_full", N: l.Events}, {Kind: "map_full", N: l.Updates}, {Kind: "interrupted", N: l.Runs}, {Kind: "stack_full", N: l.Stacks},
		{Kind: "skipped", N: l.Skipped}, {Kind: "reading_cut", N: l.Cut}, {Kind: "commands", N: l.Commands}, {Kind: "loops", N: l.Loops},
		{Kind: "undecodable", N: l.Broken},
	} {
		if k.N > 0 {
			out = append(out, k)
		}
	}
	return out
}

// emitEvent hands on the values of a call by their names, and its text.
func (r *Run) emitEvent(ev *Event, text string) {
	var fields []field
	b := ev.data
	for i, t := range ev.a.types {
		if i < len(ev.a.names) {
			fields = append(fields, field{ev.a.names[i], r.cell(t, b)})
		}
		b = b[t.store():]
	}
	r.emit(ev.a, ev.Time, append(fields, field{"text", strings.ToValidUTF8(strings.TrimSuffix(text, "\n"), "\ufffd")})...)
}

// emitEntries hands on the keys of a map, whose fields are named after the
// expressions of the keys.
func (r *Run) emitEntries(d *mapDef, list []*entry, top int64, now time.Time) {
	if top > 0 && int64(len(list)) > top {
		list = list[int64(len(list))-top:]
	}
	for _, e := range list {
		r.emitEntry(d, d.name, d.keyNames, e, now)
	}
}

func (r *Run) emitEntry(d *mapDef, name string, keyNames []string, e *entry, now time.Time) {
	fields := []field{{"map", name}}
	key := e.key
	for i, t := range d.keys {
		fields = append(fields, field{keyNames[i], r.cell(t, key)})
		key = key[t.store():]
	}
	switch t := d.value; t.Kind {
	case CountOf:
		fields = append(fields, field{"count", e.nums[0]})
	case SumOf, MinOf, MaxOf:
		fields = append(fields, field{t.String(), signedNumber(t, e.nums[0])})
	case AvgOf:
		fields = append(fields, field{"avg", average(t, e.nums)}, field{"count", e.nums[1]})
	case StatsOf:
		fields = append(fields, field{"count", e.nums[1]}, field{"avg", average(t, e.nums)}, field{"total", signedNumber(t, e.nums[0])})
	case HistOf:
		fields = append(fields, buckets(logBuckets(t.bits, e.nums))...)
	case LhistOf:
		fields = append(fields, buckets(linearBuckets(t, e.nums))...)
	case TseriesOf:
		fields = append(fields, field{"values", row.JSON(seriesJSON(t, e.nums, "time"))})
	default:
		fields = append(fields, field{"value", r.cell(t, e.value)})
	}
	r.emit(d, now, fields...)
}

// cell is a value of a row.
func (r *Run) cell(t *Type, b []byte) any {
	switch t.Kind {
	case KStack, UStack:
		st := &kern.Stack{}
		for _, f := range r.frames(t, b) {
			off := f.Off
			if f.Sym == "" {
				off = f.Addr
			}
			st.Frames = append(st.Frames, kern.Frame{Sym: f.Sym, Off: off, Module: f.Module})
		}
		return st
	}
	switch v := r.json(t, b).(type) {
	case bool, uint64, int64, string:
		return v
	default:
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if enc.Encode(v) != nil {
			return nil
		}
		return row.JSON(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	}
}

func signedNumber(t *Type, v uint64) any {
	if t.Signed {
		return int64(v)
	}
	return v
}

// buckets are [lo, hi); one without a beginning or an end lacks that field.
func buckets(list []bucket) []field {
	var n uint64
	var b bytes.Buffer
	b.WriteByte('[')
	for i, bk := range list {
		n += bk.count
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		if bk.lo != "" {
			b.WriteString(`"lo":` + bk.lo + ",")
		}
		if bk.hi != "" {
			b.WriteString(`"hi":` + bk.hi + ",")
		}
		fmt.Fprintf(&b, `"count":%d}`, bk.count)
	}
	b.WriteByte(']')
	return []field{{"count", n}, {"buckets", row.JSON(b.String())}}
}
