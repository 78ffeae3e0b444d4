// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"math"
	"slices"

	"seine/internal/draw"
)

// areas are the colours of shares.
var areas = []draw.Colour{
	0x8c564b, 0xbcbd22, 0xd9820a, 0xe6b800, 0x7b4ea3, 0x9ec9e2, 0x17a2a2, 0x2e8b57, 0xc81e1e, 0x1f5fbf, 0xe4e4e4, 0xbdbdbd, 0x777777,
}

// colour is that of a column.
func (p *Plot) colour(id string) draw.Colour {
	return areas[max(slices.Index(slices.Concat(p.Panels...), id), 0)%len(areas)]
}

// sum is what columns of row i add up to.
func (t *thing) sum(i int, columns []string) (n float64) {
	for _, id := range columns {
		if v := t.y[id][i]; !math.IsNaN(v) {
			n += v
		}
	}
	return n
}

// length is the seconds that row i covers.
func (t *thing) length(i int, columns []string) float64 {
	sum := t.sum(i, columns) / 1e3
	if v := t.y[longest][i]; v < sum {
		return v
	}
	return sum
}

// shares draws each row as a bar, as wide as its time. It returns the columns that take
// a hundredth of all bars, for the legend.
func (p *Plot) shares(pic *draw.Picture, t *thing, columns []string, x, y axis) (named []string) {
	all, of := 0.0, map[string]float64{}
	for i := range t.x {
		sum := t.sum(i, columns)
		if sum == 0 {
			continue
		}
		all += sum
		from, to := x.at(t.x[i]-t.length(i, columns)), x.at(t.x[i])
		low := 0.0
		for _, id := range columns {
			v := t.y[id][i]
			if math.IsNaN(v) || v == 0 {
				continue
			}
			of[id] += v
			share := v / sum * 100
			pic.Box(p.colour(id), draw.Point{X: from, Y: y.at(low)}, draw.Point{X: to, Y: y.at(low + share)})
			low += share
		}
	}
	for _, id := range columns {
		if of[id] >= all/100 {
			named = append(named, id)
		}
	}
	return named
}
