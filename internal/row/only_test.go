// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"testing"

	"seine/internal/row"
)

func TestOnly(t *testing.T) {
	s, h := sample(), histSchema()
	var got row.Collect
	feed(t, row.Only(&got, h), s.New(), h.New(), s.New())
	if len(got.Rows) != 1 || got.Rows[0].Schema != h {
		t.Errorf("kept %d rows, want the one of the view", len(got.Rows))
	}
}
