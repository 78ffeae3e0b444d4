// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"encoding/json"
	"time"
)

// A field of a JSON object, in the order given.
type field struct {
	name  string
	value any
}

// object writes one JSON object and a line break.
func (r *Run) object(fields []field) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.name)
		b.Write(name)
		b.WriteByte(':')
		if raw, ok := f.value.(json.RawMessage); ok {
			b.Write(raw)
			continue
		}
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if enc.Encode(f.value) != nil {
			b.WriteString("null")
			continue
		}
		b.Truncate(b.Len() - 1) // the encoder's line break
	}
	b.WriteString("}\n")
	r.out.Write(b.Bytes())
}

func (r *Run) head(t time.Time) []field {
	tool := r.p.opts.Tool
	if tool == "" {
		tool = "run"
	}
	return []field{{"time", t.UTC().Format(time.RFC3339Nano)}, {"tool", tool}}
}

// jsonMap writes a map, one object for each key, whose fields are named after
// the expressions of the keys.
func (r *Run) jsonMap(d *mapDef, top int64, now time.Time) error {
	list, err := r.entries(d)
	if err != nil {
		return err
	}
	if top > 0 && int64(len(list)) > top {
		list = list[int64(len(list))-top:]
	}
	for _, e := range list {
		r.jsonEntry(d, e, now)
	}
	return nil
}

func (r *Run) jsonEntry(d *mapDef, e *entry, now time.Time) {
	fields := append(r.head(now), field{"map", d.name})
	key := e.key
	for i, t := range d.keys {
		fields = append(fields, field{d.keyNames[i], r.json(t, key)})
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
	default:
		fields = append(fields, field{"value", r.json(t, e.value)})
	}
	r.object(fields)
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
		count, _ := json.Marshal(bk.count)
		b.WriteString(`"count":` + string(count) + "}")
	}
	b.WriteByte(']')
	return []field{{"count", n}, {"buckets", json.RawMessage(b.Bytes())}}
}
