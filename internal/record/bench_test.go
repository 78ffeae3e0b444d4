// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"seine/internal/journal"
	"seine/internal/row"
)

// session fills a row as those of tcplife are: hosts, ports, bytes and names as on a busy server.
func session(r *rand.Rand, out *row.Row, n int) {
	set := func(i int, c row.Cell) { out.Cells[i] = c }
	text := func(i int, s string) { out.Cells[i].SetText(s) }
	set(0, row.Cell{Kind: row.Time, N: uint64(base) + uint64(n)*20_000 + uint64(r.IntN(1e6))})
	out.Cells[1].SetUint(4026531840)
	text(2, "/system.slice/nginx.service")
	p := r.IntN(8)
	out.Cells[4].SetUint(uint64(1000 + p))
	out.Cells[5].SetUint(uint64(1000 + p))
	out.Cells[6].SetUint(33)
	text(7, comms[p])
	text(8, comms[p])
	set(9, row.Cell{Kind: row.Addr, S: addrs[0]})
	set(10, row.Cell{Kind: row.Addr, S: addrs[r.IntN(len(addrs))]})
	out.Cells[11].SetUint(443)
	out.Cells[12].SetUint(uint64(32768 + r.IntN(28000)))
	text(13, "inet")
	text(14, "4")
	text(15, "tcp")
	out.Cells[16].SetUint(uint64(1000000 + n))
	out.Cells[17].SetUint(uint64(r.ExpFloat64() * 5000))
	out.Cells[18].SetUint(uint64(r.ExpFloat64() * 80000))
	out.Cells[19].SetUint(uint64(r.ExpFloat64() * 3e7))
	if r.IntN(20) == 0 {
		text(20, "remote")
	} else {
		set(20, row.Cell{})
	}
}

var comms, addrs = func() (c, a []string) {
	for i := range 8 {
		c = append(c, fmt.Sprintf("worker-%d", i))
	}
	for i := range 2000 {
		a = append(a, string([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, byte(i >> 8), byte(i)}))
	}
	return c, a
}()

func sessionSchema() *row.Schema {
	s := &row.Schema{Tool: "tcplife"}
	for _, id := range []string{"time", "netns", "cgroup", "container", "pid", "tid", "uid", "comm", "thread", "laddr", "raddr", "lport", "rport", "family", "ip", "proto", "sock", "tx_bytes", "rx_bytes", "duration_ms", "reset"} {
		s.Columns = append(s.Columns, row.Column{ID: id, Div: 1})
	}
	return s
}

type nobody struct{ rows int }

func (l *nobody) Row(r *row.Row) error {
	if r.Cells[11].N == 443 && r.Cells[17].N > 20000 {
		l.rows++
	}
	return nil
}
func (l *nobody) Mark(*Schema, *Mark) error { return nil }
func (l *nobody) Idle() error               { return nil }

// fill writes n sessions and returns the bytes that they take.
func fill(b testing.TB, dir string, n int) int64 {
	s := sessionSchema()
	rec, err := Open(dir, Options{Options: journal.Options{Sync: -1}})
	if err != nil {
		b.Fatal(err)
	}
	st := rec.Stream(Source{Name: "tcplife", Tool: "tcplife"}, []*row.Schema{s}, nil)
	r, chance := s.New(), rand.New(rand.NewPCG(1, 1))
	for i := range n {
		session(chance, r, i)
		if err := st.Row(r); err != nil {
			b.Fatal(err)
		}
	}
	st.End(row.End{Last: true})
	if err := rec.Close(); err != nil {
		b.Fatal(err)
	}
	var bytes int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, _ error) error {
		if st, err := d.Info(); err == nil && !d.IsDir() {
			bytes += st.Size()
		}
		return nil
	})
	return bytes
}

// BenchmarkFill is what it takes to make up the rows, to be taken off.
func BenchmarkFill(b *testing.B) {
	r, chance := sessionSchema().New(), rand.New(rand.NewPCG(1, 1))
	for i := range b.N {
		session(chance, r, i)
	}
}

func BenchmarkWrite(b *testing.B) {
	b.ReportAllocs()
	bytes := fill(b, b.TempDir(), b.N)
	b.ReportMetric(float64(bytes)/float64(b.N), "B/row")
}

func BenchmarkRead(b *testing.B) {
	for _, use := range []map[string]bool{nil, {"lport": true, "tx_bytes": true}} {
		name := "all"
		if use != nil {
			name = "filter"
		}
		b.Run(name, func(b *testing.B) {
			dir, err := os.MkdirTemp("", "seine-bench")
			if err != nil {
				b.Fatal(err)
			}
			defer os.RemoveAll(dir)
			fill(b, dir, b.N)
			s := sessionSchema()
			b.ReportAllocs()
			b.ResetTimer()
			r, err := Read(dir)
			if err != nil {
				b.Fatal(err)
			}
			var l nobody
			if err := r.Play(context.Background(), &Query{Use: use, Into: func(*Schema) *row.Schema { return s }}, &l); err != nil {
				b.Fatal(err)
			}
		})
	}
}
