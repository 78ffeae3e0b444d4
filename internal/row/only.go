// SPDX-License-Identifier: Apache-2.0

package row

import "slices"

// Only hands on rows of these schemas, for --view.
func Only(next Sink, schemas ...*Schema) Sink { return &only{next, schemas} }

type only struct {
	next    Sink
	schemas []*Schema
}

func (o *only) Row(r *Row) error {
	if !slices.Contains(o.schemas, r.Schema) {
		return nil
	}
	return o.next.Row(r)
}

func (o *only) End(e End) error { return o.next.End(e) }
