// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"seine/internal/watch"
	"seine/internal/words"
)

// letters stand for the parts in a graph, because not everybody can tell colours apart.
const letters = "ckauprwbLn.x?"

// oneConn shows a connection: its current state, and where the time of each second went.
func (snap *Snapshot) oneConn(k watch.ConnKey, cells, lines int, l Look) []string {
	var c *conn
	snap.connections(nil, func(x *conn) {
		if x.ConnKey == k {
			found := *x
			c = &found
		}
	})
	ends := watch.Endpoint(k.Laddr, k.Lport) + " → " + watch.Endpoint(k.Raddr, k.Rport)
	if c == nil {
		return []string{"", "  " + ends, "", "  This connection is gone. Esc goes back."}
	}
	who := words.Clean(c.Who.Comm)
	if c.PID != 0 {
		who += fmt.Sprintf(", PID %d", c.PID)
	}
	if c.Who.Container != "" {
		who += ", " + words.Clean(c.Who.Container)
	}
	out := []string{
		"",
		"  " + l.paint(strong, ends),
		fmt.Sprintf("  %s, %s, %s", who, c.Role, c.doing()),
		fmt.Sprintf("  out %s · in %s · RTT %s, least %s · resent %d · %s", rate(c.moved(c.TX)), rate(c.moved(c.RX)),
			absent(c.SRTT != 0, took(float64(c.SRTT))), absent(c.MinRTT != 0, took(float64(c.MinRTT))), c.retrans(), words.Count(c.Turns, "turn", "turns")),
		"",
	}
	var past []watch.Moment
	if snap.History != nil {
		past = snap.History(k)
	}
	return append(out, graph(past, snap.View.To.Unix()-1, cells-2, lines-len(out), l)...)
}

// graph draws each second as a column. The letters of a column are the parts that the second
// went to.
func graph(past []watch.Moment, now int64, cells, lines int, l Look) []string {
	const margin = 6
	columns := max(min(cells-margin, int(Long.Seconds())), 1)
	rows := min(lines-6, 10)
	if rows < 2 {
		return nil
	}
	by := map[int64]*watch.Moment{}
	for i := range past {
		by[past[i].At] = &past[i]
	}
	seconds := make([]*watch.Moment, columns)
	for i := range seconds {
		seconds[i] = by[now-int64(columns-1-i)]
	}
	grid := make([][]byte, rows)
	for i := range grid {
		grid[i] = []byte(spaces(columns))
	}
	used := map[watch.Part]bool{}
	for i, m := range seconds {
		if m == nil {
			continue
		}
		for row, part := range stack(&m.Parts, rows) {
			grid[rows-1-row][i] = letters[part]
			used[part] = true
		}
	}
	var legend []string
	for i := range letters {
		if used[watch.Part(i)] {
			legend = append(legend, fmt.Sprintf("%c %s", letters[i], watch.Part(i)))
		}
	}
	if len(legend) == 0 {
		legend = []string{"nothing yet"}
	}
	text := "Where each second went: " + strings.Join(legend, ", ")
	out := []string{"  " + fit(text, min(width(text), cells), true)}
	for i, line := range grid {
		label := ""
		switch i {
		case 0:
			label = "100 %"
		case rows - 1:
			label = "0 %"
		}
		out = append(out, "  "+fit(label, 5, false)+" "+string(line))
	}
	from, to := time.Unix(now-int64(columns-1), 0).Format("15:04:05"), time.Unix(now, 0).Format("15:04:05")
	out = append(out, "  "+spaces(margin)+l.paint(dim, sides(from, to, columns)))
	sent, peak := spark(seconds, func(m *watch.Moment) uint64 { return m.TX })
	out = append(out, "  "+fit("out", 5, false)+" "+sent, "")
	got, most := spark(seconds, func(m *watch.Moment) uint64 { return m.RX })
	out[len(out)-1] = "  " + fit("in", 5, false) + " " + got
	return append(out, "  "+spaces(margin)+l.paint(dim, fmt.Sprintf("the highest bars: out %s, in %s", rate(float64(peak)), rate(float64(most)))))
}

// stack divides the places among the parts of a second by the largest remainder, so that all
// places are used.
func stack(parts *watch.Parts, places int) (out []watch.Part) {
	var all float64
	for _, ms := range parts {
		all += ms
	}
	if all <= 0 {
		return nil
	}
	var whole [len(parts)]int
	left := places
	for i, ms := range parts {
		whole[i] = int(ms / all * float64(places))
		left -= whole[i]
	}
	for ; left > 0; left-- {
		most, at := -1.0, 0
		for i, ms := range parts {
			if rest := ms/all*float64(places) - float64(whole[i]); rest > most {
				most, at = rest, i
			}
		}
		whole[at]++
	}
	for i, n := range whole {
		for range n {
			out = append(out, watch.Part(i))
		}
	}
	return out
}

var bars = []rune(" ▁▂▃▄▅▆▇█")

// spark returns a line of bars and the value of the highest one.
func spark(seconds []*watch.Moment, value func(*watch.Moment) uint64) (string, uint64) {
	var most uint64
	for _, m := range seconds {
		if m != nil {
			most = max(most, value(m))
		}
	}
	var b strings.Builder
	for _, m := range seconds {
		n := 0
		if m != nil && most > 0 && value(m) > 0 {
			n = max(1, int(float64(value(m))/float64(most)*float64(len(bars)-1)+0.5))
		}
		b.WriteRune(bars[n])
	}
	return b.String(), most
}
