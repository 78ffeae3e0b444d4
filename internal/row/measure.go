// SPDX-License-Identifier: Apache-2.0

package row

// Measures are the numbers that every histogram has beside the columns of its
// row. They can be named in --where and --sort.
var Measures = []string{"count", "sum", "avg", "min", "max", "p50", "p90", "p99"}

// A Measurer is an object that has the numbers of Measures. False: the number has no value, such
// as the minimum of an empty histogram.
type Measurer interface {
	Measure(id string) (float64, bool)
}

// IsHist says whether the column holds histograms: objects that have a unit.
// Objects without one are stacks, and inner histograms are values beside others.
func (c *Column) IsHist() bool { return c.Kind == Object && c.Unit != "" && !c.Inner }

// hist returns the position of the histogram column, -1 if there is none.
func (s *Schema) hist() int {
	for i := range s.Columns {
		if s.Columns[i].IsHist() {
			return i
		}
	}
	return -1
}

// measure gives a number of an object.
func measure(c *Cell, id string) (float64, bool) {
	if m, ok := c.Ref.(Measurer); ok {
		return m.Measure(id)
	}
	return 0, false
}
