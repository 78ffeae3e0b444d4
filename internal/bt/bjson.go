// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// native says that the text is what bpftrace -f json writes.
func (r *Run) native() bool { return r.out != nil && r.p.opts.Native }

// typed writes {"type": …, "data": …} with data that is JSON already.
func (r *Run) typed(kind, data string) {
	fmt.Fprintf(r.out, "{\"type\": %s, \"data\": %s}\n", quoted(kind), data)
}

func quoted(s string) string {
	b, err := json.Marshal(strings.ToValidUTF8(s, "\ufffd"))
	if err != nil {
		return `""`
	}
	return string(b)
}

// nativeNames are bpftrace's names of what printed something.
var nativeNames = map[string]string{"system": "syscall"}

// nativeText writes what a function printed.
func (r *Run) nativeText(ev *Event, s string) {
	kind := ev.a.kind
	if n := nativeNames[kind]; n != "" {
		kind = n
	}
	if kind == "value" {
		r.typed(kind, r.nativeValue(ev.a.types[0], ev.data))
		return
	}
	r.typed(kind, quoted(s))
}

// nativeValue is a value: a number as it is, a tuple as a list, all else as text.
func (r *Run) nativeValue(t *Type, b []byte) string {
	switch t.Kind {
	case Number:
		if t.Enum == nil {
			return numberText(t, word(b))
		}
	case Combo:
		var parts []string
		for i, e := range t.Elems {
			part := r.nativeValue(e, b)
			if t.Names != nil {
				part = quoted(t.Names[i]) + ": " + part
			}
			parts = append(parts, part)
			b = b[e.store():]
		}
		if t.Names != nil {
			return "{" + strings.Join(parts, ", ") + "}"
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return quoted(strings.TrimSuffix(r.text(t, b), "\n"))
}

// nativeMap writes a map, or some of its entries.
func (r *Run) nativeMap(d *mapDef, list []*entry, div int64) {
	kind := "map"
	switch d.value.Kind {
	case HistOf, LhistOf:
		kind = "hist"
	case StatsOf:
		kind = "stats"
	case TseriesOf:
		kind = "tseries"
	}
	var parts []string
	for _, e := range list {
		v := r.nativeEntry(d, e, div)
		if !d.keyed {
			r.typed(kind, "{"+quoted(d.name)+": "+v+"}")
			return
		}
		key := strings.TrimSuffix(strings.TrimPrefix(r.keyText(d, e.key), "["), "]")
		parts = append(parts, quoted(strings.ReplaceAll(key, ", ", ","))+": "+v)
	}
	r.typed(kind, "{"+quoted(d.name)+": {"+strings.Join(parts, ", ")+"}}")
}

func (r *Run) nativeEntry(d *mapDef, e *entry, div int64) string {
	switch t := d.value; t.Kind {
	case HistOf:
		return nativeBuckets(logBuckets(t.bits, e.nums))
	case LhistOf:
		return nativeBuckets(linearBuckets(t, e.nums))
	case TseriesOf:
		return seriesJSON(t, e.nums, "interval_start")
	case StatsOf:
		return fmt.Sprintf(`{"count": %d, "average": %d, "total": %v}`, e.nums[1], average(t, e.nums), signedNumber(t, e.nums[0]))
	case CountOf, SumOf, MinOf, MaxOf, AvgOf:
		return r.valueText(t, e, div)
	default:
		return r.nativeValue(t, e.value)
	}
}

// nativeBuckets have both ends in them.
func nativeBuckets(list []bucket) string {
	var parts []string
	for _, b := range list {
		var f []string
		if b.lo != "" {
			f = append(f, `"min": `+b.lo)
		}
		if hi, err := strconv.ParseInt(b.hi, 10, 64); err == nil {
			f = append(f, `"max": `+strconv.FormatInt(hi-1, 10))
		}
		parts = append(parts, "{"+strings.Join(append(f, fmt.Sprintf(`"count": %d`, b.count)), ", ")+"}")
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
