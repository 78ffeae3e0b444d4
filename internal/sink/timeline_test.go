// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"seine/internal/row"
)

// TestTimeline: rows of several kinds stand in the same columns, and each says its own.
func TestTimeline(t *testing.T) {
	addr := func(last byte) row.Cell {
		return row.Cell{Kind: row.Addr, S: string([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last})}
	}
	col := func(id string, kind row.Kind) row.Column { return row.Column{ID: id, Kind: kind, Div: 1, Scale: 1} }
	connects := &row.Schema{Tool: "soconnect", Columns: []row.Column{
		col("time", row.Time), col("pid", row.Uint), col("comm", row.Text), col("raddr", row.Addr), col("rport", row.Uint),
		{ID: "latency_us", Kind: row.Uint, Div: 1000, Scale: 1, Age: true}, col("result", row.Text), col("pending", row.Bool),
	}}
	packets := &row.Schema{Tool: "ipecn", Columns: []row.Column{
		col("time", row.Time), col("saddr", row.Addr), col("daddr", row.Addr), {ID: "bytes", Kind: row.Uint, Div: 1, Scale: 1024},
	}}
	counts := &row.Schema{Tool: "socketio", Columns: []row.Column{col("time", row.Time), col("dir", row.Text), col("count", row.Uint)}}
	var b bytes.Buffer
	tl := NewTimeline(nil)
	for s, says := range map[*row.Schema]string{
		connects: "connect[: {result}] after {latency_us} us", packets: "marked, {bytes} bytes", counts: "",
	} {
		if _, err := tl.Add(s, says, nil); err != nil {
			t.Fatal(err)
		}
	}
	out, err := New("table", &b, Options{Schemas: []*row.Schema{tl.Schema()}, Time: "micro", Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	tl.Into(out)
	at := row.Cell{Kind: row.Time, N: uint64(time.Date(2026, 11, 16, 8, 0, 0, 1000, time.UTC).UnixNano())}
	num := func(n uint64) row.Cell { return row.Cell{Kind: row.Uint, N: n} }
	text := func(s string) row.Cell { return row.Cell{Kind: row.Text, S: s} }
	yes := row.Cell{Kind: row.Bool, N: 1}
	for _, r := range []*row.Row{
		{Schema: connects, Cells: []row.Cell{at, num(17), text("curl"), addr(1), num(80), num(5000), text("refused"), {}}},
		{Schema: connects, Cells: []row.Cell{at, num(17), text("a\nb"), addr(1), num(80), num(5000), {}, yes}},
		{Schema: packets, Cells: []row.Cell{at, addr(1), addr(2), num(1500)}},
		{Schema: counts, Cells: []row.Cell{at, text("read"), num(3)}},
	} {
		if err := tl.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := tl.End(row.End{Last: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"TIME TOOL PID COMM LADDR:LPORT RADDR:RPORT WHAT",
		"08:00:00.000001 soconnect 17 curl - 192.0.2.1:80 connect: refused after 5 us",
		`08:00:00.000001 soconnect 17 a\nb - 192.0.2.1:80 connect after 5+ us`,
		"08:00:00.000001 ipecn - - 192.0.2.1:- 192.0.2.2:- marked, 1500 bytes",
		"08:00:00.000001 socketio - - - - dir read count 3",
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTimelineRefuses: a sentence that cannot be said is found before there are rows.
func TestTimelineRefuses(t *testing.T) {
	s := &row.Schema{Tool: "x", Columns: []row.Column{{ID: "a", Kind: row.Uint}, {ID: "h", Kind: row.Object}}}
	for _, says := range []string{"{b}", "{a", "[{a}", "{h}", "[{b}]"} {
		if _, err := NewTimeline(nil).Add(s, says, nil); err == nil {
			t.Errorf("%q was taken", says)
		}
	}
}
