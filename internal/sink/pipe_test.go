// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"testing"
	"time"

	"seine/internal/row"
)

// All stages in their order, as the command line would put them together:
// seine tcplife --where … --by comm -i 1 --sort count --top 2 -n 2
func TestPipe(t *testing.T) {
	s := life()
	groups, err := row.By(nil, []string{"comm"}, s)
	if err != nil {
		t.Fatal(err)
	}
	grouped := groups.Schema()
	var b bytes.Buffer
	table, err := New("table", &b, Options{Schemas: []*row.Schema{grouped}, Interval: true, Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	count := &row.Count{Next: table}
	sorted, err := row.Sort(row.Limit(count, 2, true), "count", false, 2, grouped)
	if err != nil {
		t.Fatal(err)
	}
	groups.Into(sorted)
	where, err := row.Where(groups, `rport == 443`, []*row.Schema{s})
	if err != nil {
		t.Fatal(err)
	}
	r := s.New()
	for tick := range 3 {
		for i := range 23 {
			r.Get("rport").SetUint(443 + uint64(i%2))
			r.Get("comm").SetText([]string{"a", "b", "c", "c", "c"}[i%5])
			r.Get("tx_bytes").SetUint(1024)
			if err = where.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		if err = where.End(row.End{Time: moment.Add(time.Duration(tick) * time.Second), Output: true}); err != nil {
			break
		}
	}
	if err != row.Done || count.Rows != 4 || count.Outputs != 2 {
		t.Errorf("error %v, %d rows, %d outputs; want Done, 4, 2", err, count.Rows, count.Outputs)
	}
	want := "23:36:01\n" +
		"COMM                COUNT TX_KB RX_KB\n" +
		"c                       7   7.0     -\n" +
		"a                       3   3.0     -\n"
	want += "\n" + string(bytes.Replace([]byte(want), []byte("01"), []byte("02"), 1))
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Histograms in outputs: time above, bars below, a distance between.
func TestTableHistogramOutputs(t *testing.T) {
	z := sizes()
	var b bytes.Buffer
	out, err := New("table", &b, Options{Schemas: []*row.Schema{z}, Interval: true, Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, r := range sizeRows(z)[:2] {
			if err := out.Row(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.End(row.End{Time: moment, Output: true}); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "sizes.ticks", b.Bytes())
}
