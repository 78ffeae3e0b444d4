// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/row"
	"seine/internal/watch"
)

// big is a model with so many connections that all said something in the last second.
func big(n int) *watch.Model {
	s := &row.Schema{Tool: "flows", View: "connections"}
	for _, id := range []string{"time", "comm", "netns", "pid", "laddr", "lport", "raddr", "rport", "role", "turns", "tx_bytes", "rx_bytes", "srtt_us", "min_rtt_us", "wall_ms", "app_ms", "idle_ms"} {
		c := row.Column{ID: id, Div: 1}
		if id[len(id)-2:] == "ms" {
			c.Div = 1e6
		}
		s.Columns = append(s.Columns, c)
	}
	m := watch.New(watch.Options{})
	m.Asked("flows", "")
	r := s.New()
	addr := func(id string, a netip.Addr) {
		b := a.As16()
		*r.Get(id) = row.Cell{Kind: row.Addr, S: string(b[:])}
	}
	for i := range n {
		*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(start.UnixNano())}
		r.Get("comm").SetText(fmt.Sprintf("server-%d", i%100))
		r.Get("netns").SetUint(4026531840)
		r.Get("pid").SetUint(uint64(1000 + i%100))
		addr("laddr", netip.MustParseAddr("10.0.0.1"))
		r.Get("lport").SetUint(443)
		addr("raddr", netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		r.Get("rport").SetUint(uint64(20000 + i%20000))
		r.Get("role").SetText("server")
		r.Get("turns").SetUint(uint64(i % 7))
		r.Get("tx_bytes").SetUint(uint64(i) * 7919 % 1_000_003)
		r.Get("rx_bytes").SetUint(uint64(i % 1000))
		r.Get("srtt_us").SetUint(uint64(50 + i%1000))
		r.Get("wall_ms").SetUint(1e9)
		r.Get("app_ms").SetUint(9e8)
		r.Get("idle_ms").SetUint(1e8)
		m.Row(r)
	}
	return m
}

func processorTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRefresh is what a second of a screen with 100,000 connections costs: the snapshot
// and the screen.
func BenchmarkRefresh(b *testing.B) {
	const n = 100_000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := big(n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, c := range []struct{ name, where, key string }{{"usual", "", ""}, {"end", "", "G"}, {"filter", "srtt_us > 900 && comm == \"server-7\"", ""}} {
		b.Run(c.name, func(b *testing.B) {
			s := NewState(Connections, c.where, "", false)
			began := processorTime()
			for b.Loop() {
				snap := Take(m, time.Time{}, false)
				Draw(s, snap, 200, 60, Look{Color: true})
				if c.key != "" && s.shown.at == 0 {
					s.Key(c.key, "", snap)
				}
			}
			b.ReportMetric(float64((processorTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "model-MB")
			if s.shown.total != n {
				b.Fatalf("%d connections, want %d", s.shown.total, n)
			}
		})
	}
}
