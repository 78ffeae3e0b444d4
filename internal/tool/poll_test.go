// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"testing"

	"seine/internal/row"
)

// TestPollHidden: counters of a view that is not shown are not read.
func TestPollHidden(t *testing.T) {
	type counter struct{ N uint64 }
	reads := 0
	p := Poll[counter]{Open: func(*Session) (func(bool) ([]counter, error), error) {
		reads++
		return func(bool) ([]counter, error) { reads++; return nil, nil }, nil
	}}
	schema, err := p.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for shown, want := range map[string]int{"": 3, "counters": 3, "drops": 0} {
		reads = 0
		s := &Session{opts: Options{View: shown}, schemas: []*row.Schema{schema}}
		r, err := p.open(s, &View{Name: "counters"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, last := range []bool{false, true} {
			if err := r.output(last); err != nil {
				t.Fatal(err)
			}
		}
		if reads != want {
			t.Errorf("--view %q: read %d times, want %d", shown, reads, want)
		}
	}
}
