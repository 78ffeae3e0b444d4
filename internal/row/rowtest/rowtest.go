// SPDX-License-Identifier: Apache-2.0

// Package rowtest makes rows for the tests of packages that read rows.
package rowtest

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/row"
)

// Schema makes one of ids alone; ends in _ms are nanoseconds, as tools have them.
func Schema(tool, view string, ids ...string) *row.Schema {
	s := &row.Schema{Tool: tool, View: view}
	for _, id := range ids {
		c := row.Column{ID: id, Div: 1}
		if strings.HasSuffix(id, "_ms") {
			c.Div = 1_000_000
		}
		s.Columns = append(s.Columns, c)
	}
	return s
}

// Row is a row with these values.
func Row(s *row.Schema, values map[string]any) *row.Row {
	r := s.New()
	for id, v := range values {
		c := r.Get(id)
		switch v := v.(type) {
		case int:
			c.SetUint(uint64(v) * s.Columns[s.Index(id)].Div)
		case string:
			c.SetText(v)
		case netip.Addr:
			a := v.As16()
			*c = row.Cell{Kind: row.Addr, S: string(a[:])}
		case *kern.Hist:
			*c = row.Cell{Kind: row.Object, Ref: v}
		default:
			panic(fmt.Sprintf("%s: %T", id, v))
		}
	}
	return r
}

// At is a row with these values and a time.
func At(s *row.Schema, at time.Time, values map[string]any) *row.Row {
	r := Row(s, values)
	*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(at.UnixNano())}
	return r
}
