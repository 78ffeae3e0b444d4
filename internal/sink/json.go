// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"strconv"
	"unicode/utf8"

	"seine/internal/kern"
	"seine/internal/row"
)

// jsonSink writes one object per line. time, tool and view lead every object,
// whatever columns were chosen: they say what it is. What is absent is absent.
type jsonSink struct {
	*writer
	plans plans[jsonPlan]
	stamp stamp
}

type jsonPlan struct {
	time   int    // the column, -1 if there is none
	head   []byte // "tool":"tcplife","view":"drops"
	fields []jsonField
}

type jsonField struct {
	cell   int
	key    []byte // ,"pid":
	div    uint64
	unit   []byte // ,"unit":"bytes"; of histograms
	inner  bool   // a histogram that is an object under its id
	object bool   // a stack that has not been found is absent, not its id
	text   bool   // a number that has not been named is text all the same
}

func newJSON(w *writer, o Options) (row.Sink, error) {
	j := &jsonSink{writer: w}
	j.plans.make = func(s *row.Schema) (*jsonPlan, error) { return jsonPlanOf(s, o.Columns[s]), nil }
	return j, nil
}

func jsonPlanOf(s *row.Schema, columns []int) *jsonPlan {
	if columns == nil {
		columns = every(s)
	}
	p := &jsonPlan{time: timeColumn(s)}
	p.head = appendJSON(append(p.head, `"tool":`...), s.Tool)
	if s.View != "" {
		p.head = appendJSON(append(p.head, `,"view":`...), s.View)
	}
	for _, i := range columns {
		if i == p.time {
			continue
		}
		c := &s.Columns[i]
		f := jsonField{cell: i, div: c.Div, inner: c.Inner, object: c.Kind == row.Object, text: c.Kind == row.Text}
		f.key = append(appendJSON([]byte{','}, c.ID), ':')
		if c.Unit != "" {
			f.unit = appendJSON([]byte(`,"unit":`), c.Unit)
		}
		p.fields = append(p.fields, f)
	}
	return p
}

func (j *jsonSink) Row(r *row.Row) error {
	p, err := j.plans.of(r.Schema)
	if err != nil {
		return err
	}
	b := append(j.buf, '{')
	if p.time >= 0 && r.Cells[p.time].Kind == row.Time {
		b = append(b, `"time":"`...)
		b = j.stamp.append(b, &r.Cells[p.time])
		b = append(b, '"', ',')
	}
	b = append(b, p.head...)
	for i := range p.fields {
		f := &p.fields[i]
		c := &r.Cells[f.cell]
		if f.object && c.Kind != row.Object {
			continue
		}
		switch c.Kind {
		case row.Uint, row.Int:
			b = append(b, f.key...)
			if f.text {
				b = append(b, '"')
			}
			b = appendNumber(b, c, f.div)
			if f.text {
				b = append(b, '"')
			}
		case row.Text:
			b = append(b, f.key...)
			b = appendJSON(b, c.S)
		case row.Addr:
			b = append(b, f.key...)
			b = append(b, '"')
			b = appendAddr(b, c)
			b = append(b, '"')
		case row.Bool:
			b = append(b, f.key...)
			b = appendBool(b, c)
		case row.Time:
			b = append(b, f.key...)
			b = append(b, '"')
			b = j.stamp.append(b, c)
			b = append(b, '"')
		case row.Object:
			b = appendObject(b, f, c)
		}
	}
	j.buf = append(b, '}', '\n')
	return j.room()
}

// End writes an object of its own for what was lost.
func (j *jsonSink) End(e row.End) error {
	if e.Losses != nil {
		b := append(j.buf, `{"time":"`...)
		b = j.stamp.append(b, &row.Cell{Kind: row.Time, N: uint64(e.Time.UnixNano())})
		b = appendJSON(append(b, `","tool":`...), e.Tool)
		b = append(b, `,"losses":{`...)
		for i, l := range e.Losses {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendMember(append(appendJSON(b, l.Kind), ':'), "", l.N)
		}
		j.buf = append(b, '}', '}', '\n')
	}
	return j.flush()
}

func appendObject(b []byte, f *jsonField, c *row.Cell) []byte {
	switch o := c.Ref.(type) {
	case *kern.Hist:
		if f.inner {
			b = append(append(b, f.key...), '{')
			b = append(b, f.unit[1:]...)
			return append(appendHist(b, o), '}')
		}
		b = append(b, f.unit...)
		b = appendHist(b, o)
	case row.JSON:
		b = append(append(b, f.key...), o...)
	case *kern.Stack:
		b = append(b, f.key...)
		b = appendStack(b, o)
		if o.Broken { // said beside the frames, as the table says it below them
			b = append(b, f.key[:len(f.key)-2]...)
			b = append(b, `_broken":true`...)
		}
	}
	return b
}

func appendHist(b []byte, h *kern.Hist) []byte {
	b = appendMember(b, `,"count":`, h.Count)
	b = appendMember(b, `,"sum":`, h.Sum)
	if h.Count > 0 {
		b = appendMember(b, `,"min":`, h.Min)
		b = appendMember(b, `,"max":`, h.Max)
		b = append(b, `,"p50":`...)
		b = appendQuantile(b, h, 0.5)
		b = append(b, `,"p90":`...)
		b = appendQuantile(b, h, 0.9)
		b = append(b, `,"p99":`...)
		b = appendQuantile(b, h, 0.99)
	}
	b = append(b, `,"buckets":[`...)
	for i, k := range h.Buckets() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMember(b, `{"lo":`, k.Lo)
		b = appendMember(b, `,"hi":`, k.Hi)
		b = appendMember(b, `,"count":`, k.Count)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendMember(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(append(b, name...), n, 10)
}

// appendQuantile writes an estimate with one decimal at the most.
func appendQuantile(b []byte, h *kern.Hist, q float64) []byte {
	b = strconv.AppendFloat(b, h.Quantile(q), 'f', 1, 64)
	if n := len(b) - 2; b[n] == '.' && b[n+1] == '0' {
		b = b[:n]
	}
	return b
}

func appendStack(b []byte, s *kern.Stack) []byte {
	b = append(b, '[')
	for i := range s.Frames {
		f := &s.Frames[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if f.Sym != "" {
			b = appendJSON(append(b, `"sym":`...), f.Sym)
			b = append(b, ',')
		}
		b = appendMember(b, `"off":`, f.Off)
		if f.Module != "" {
			b = appendJSON(append(b, `,"mod":`...), f.Module)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// plain holds the bytes that a JSON string may have as they are.
var plain = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendJSON writes a JSON string. A byte that is not UTF-8 becomes U+FFFD.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0 // what has not been written yet
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
