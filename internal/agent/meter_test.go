// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/row/rowtest"
	"seine/test/programs"
)

func newMeter(t *testing.T, l Limits) *Meter {
	t.Helper()
	m, err := NewMeter(l, Table...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// text is a scrape in the text format.
func text(t *testing.T, m *Meter) string {
	t.Helper()
	var b bytes.Buffer
	for _, f := range m.Gather() {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// lines is the number of series in a text.
func lines(text string) (n int) {
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "#") {
			n++
		}
	}
	return n
}

// total is the sum of a metric over all label sets; for a histogram, of the counts.
func total(m *Meter, name string) (sum float64) {
	for _, f := range m.Gather() {
		if f.GetName() != name {
			continue
		}
		for _, one := range f.Metric {
			sum += one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// TestAttack: with a client of 100,000 source addresses and a process with 100,000 names, the limit
// holds, every value is counted, and an earlier service keeps its series.
func TestAttack(t *testing.T) {
	m := newMeter(t, Limits{})
	c := &Counts{Meter: m}
	now := time.Unix(1_700_000_000, 0)
	m.now = func() time.Time { return now }
	life := rowtest.Schema("tcplife", "", "time", "comm", "container", "netns", "lport", "raddr", "rport", "established_ms", "end", "reset_by")
	session := func(comm string, lport, rport int, raddr string) {
		r := rowtest.Row(life, map[string]any{"comm": comm, "netns": 1, "lport": lport, "rport": rport, "raddr": netip.MustParseAddr(raddr), "established_ms": 5})
		if err := c.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	c.heard(reader{rowtest.Row(life, map[string]any{"comm": "nginx", "netns": 1, "lport": 60000})}.in())
	session("nginx", 60000, 40000, "192.0.2.1")
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const attackers = 100_000
	for i := range attackers {
		// The service's port is larger than the client's. The meter knows the service from earlier rows.
		session("nginx", 60000, 1024+i%50_000, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		session(fmt.Sprintf("evil-%d", i), 40000, 80, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		if i%1000 == 0 {
			now = now.Add(time.Second)
			c.End(row.End{})
		}
		if n := m.Count(); n.Series > n.Limit {
			t.Fatalf("%d series after %d names, the limit is %d", n.Series, i, n.Limit)
		}
	}
	now = now.Add(decideAfter)
	c.Settle()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 30<<20 {
		t.Errorf("the meter grew by %d bytes", grown)
	}
	if got := total(m, sessions); got != 2*attackers+1 {
		t.Errorf("%.0f sessions counted, want %d", got, 2*attackers+1)
	}
	if got := total(m, sessionSeconds); got != 2*attackers+1 {
		t.Errorf("%.0f sessions in the histogram, want %d", got, 2*attackers+1)
	}
	out := text(t, m)
	if want := fmt.Sprintf(`seine_tcp_sessions_total{end="orderly",service="nginx :60000",side="in"} %d`, attackers+1); !strings.Contains(out, want) {
		t.Errorf("%s is missing", want)
	}
	if strings.Contains(out, "192.0.2.1") {
		t.Error("the address of an inbound client is a label")
	}
	n := m.Count()
	if got := lines(out); got != n.Series || got > n.Limit {
		t.Errorf("%d lines of text, counted as %d series, limit %d", got, n.Series, n.Limit)
	}
	// The metrics about the agent itself still have room.
	m.Set(agentShed, 1, "dns")
	c.Tool("soaccept")
	c.End(row.End{Tool: "soaccept", Losses: []row.Loss{{Kind: "owner_full", N: 7}, {Kind: "owner_unknown", N: 3}}})
	for _, want := range []string{
		`seine_agent_shed{tool="dns"} 1`, `seine_agent_lost_events_total{kind="ring_full",tool="soaccept"} 0`,
		`seine_agent_lost_events_total{kind="owner_full",tool="soaccept"} 7`, `seine_agent_lost_events_total{kind="owner_unknown",tool="soaccept"} 3`,
	} {
		if !strings.Contains(text(t, m), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if n.Refused < attackers/2 || n.Overflow < attackers/2 {
		t.Errorf("%d label sets refused, %d values as other: want most of %d", n.Refused, n.Overflow, attackers)
	}
}

// TestSides: the row of a session comes before the row that shows which port is served, and the
// client's port is the smaller one. The session still counts for the service.
func TestSides(t *testing.T) {
	m := newMeter(t, Limits{})
	c := &Counts{Meter: m}
	now := time.Unix(1_700_000_000, 0)
	m.now = func() time.Time { return now }
	ids := []string{"time", "comm", "container", "netns", "lport", "raddr", "rport", "result", "errno", "end", "reset_by", "cause", "segments"}
	feed := func(tool string, values map[string]any) {
		t.Helper()
		if err := c.Row(rowtest.Row(rowtest.Schema(tool, "", ids...), values)); err != nil {
			t.Fatal(err)
		}
	}
	client := netip.MustParseAddr("10.0.0.9")
	feed("tcplife", map[string]any{"comm": "web", "lport": 50000, "raddr": client, "rport": 40000})
	feed("tcpretrans", map[string]any{"comm": "web", "lport": 50000, "raddr": client, "rport": 40000, "cause": "rto", "segments": 3})
	feed("soaccept", map[string]any{"comm": "web", "lport": 50000, "raddr": client, "rport": 40000, "result": "success"})
	// Without such a row, the side is a guess after the wait.
	feed("tcplife", map[string]any{"comm": "old", "lport": 40001, "raddr": client, "rport": 443})
	c.Settle()
	if got := total(m, sessions); got != 1 {
		t.Errorf("%v sessions are counted, want 1 and one that waits", got)
	}
	now = now.Add(decideAfter)
	c.Settle()
	out := text(t, m)
	for _, want := range []string{
		`seine_tcp_sessions_total{end="orderly",service="web :50000",side="in"} 1`, `seine_tcp_retransmits_total{cause="rto",service="web :50000",side="in"} 3`,
		`seine_tcp_sessions_total{end="orderly",service="old → 10.0.0.9:443",side="out"} 1`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(out, ":40000") {
		t.Error("the port of a client is a label")
	}
}

// TestPromote: the busy label set gets the free series, not those that came once.
func TestPromote(t *testing.T) {
	m := newMeter(t, Limits{Series: 1000})
	now := time.Unix(1_700_000_000, 0)
	m.now = func() time.Time { return now }
	for i := range 5000 {
		m.Add(sentBytes, 1, fmt.Sprintf("once %d", i), "", "", "", "out")
	}
	for range 50 {
		m.Add(sentBytes, 1, "busy :80", "", "", "", "in")
	}
	now = now.Add(promoteEvery)
	for range 7 {
		m.Add(sentBytes, 1, "busy :80", "", "", "", "in")
	}
	out := text(t, m)
	if want := `seine_tcp_sent_bytes_total{service="busy :80",side="in"} 7`; !strings.Contains(out, want) {
		t.Errorf("%s is missing", want)
	}
	if want := `seine_tcp_sent_bytes_total{container="other",pod="other",pod_namespace="other",service="other",side="in"} 50`; !strings.Contains(out, want) {
		t.Errorf("%s is missing: what was counted as other stays there", want)
	}
	if got := total(m, sentBytes); got != 5057 {
		t.Errorf("%.0f in all, want 5057", got)
	}

	// Idle label sets are removed, and others get their series.
	now = now.Add(10 * time.Minute)
	m.Add(sentBytes, 1, "new :81", "", "", "", "in")
	now = now.Add(promoteEvery)
	m.Add(sentBytes, 1, "new :81", "", "", "", "in")
	if n := m.Count(); n.Sets > 3 || n.Evicted < 500 {
		t.Errorf("%d label sets, %d evicted", n.Sets, n.Evicted)
	}
}

func TestReplace(t *testing.T) {
	m := newMeter(t, Limits{})
	tell := func(objects ...string) {
		m.Replace(finding, func(set func(float64, ...string)) {
			for _, o := range objects {
				set(1, o, "app-slow", "warn")
			}
		})
	}
	tell("a", "b")
	tell("b")
	if out := text(t, m); strings.Contains(out, `object="a"`) || !strings.Contains(out, `seine_finding{class="app-slow",object="b",severity="warn"} 1`) {
		t.Error(out)
	}
}

// TestHist compares classic and native buckets with the values themselves.
func TestHist(t *testing.T) {
	values := []uint64{0, 1, 7, 8, 63, 64, 65, 100, 255, 256, 1000, 4096, 9999, 65536, 1_000_000, 1_048_576, 16_777_215, 16_777_216, 90_000_000}
	single, merged := newHist(), newHist()
	var k kern.Hist
	var sum float64
	for _, us := range values {
		single.observe(example{seconds: float64(us) / 1e6})
		k.Add(us)
		sum += float64(us) / 1e6
	}
	merged.merge(&k)
	for kind, h := range map[string]*hist{"single": single, "merged": merged} {
		if h.count != uint64(len(values)) || math.Abs(h.sum-sum) > 1e-9 {
			t.Errorf("%s: count %d, sum %v; want %d, %v", kind, h.count, h.sum, len(values), sum)
		}
		p := h.proto()
		for _, b := range p.Bucket {
			var want uint64
			for _, us := range values {
				// A value on a bound counts above it if it comes from a slot [lo, hi).
				if v := float64(us) / 1e6; v < b.GetUpperBound() || kind == "single" && v == b.GetUpperBound() {
					want++
				}
			}
			if b.GetCumulativeCount() != want {
				t.Errorf("%s: %d up to %v, want %d", kind, b.GetCumulativeCount(), b.GetUpperBound(), want)
			}
		}
		n := p.GetZeroCount()
		for _, c := range nativeCounts(p) {
			n += c
		}
		if n != uint64(len(values)) {
			t.Errorf("%s: native buckets have %d, want %d", kind, n, len(values))
		}
	}
	for number, n := range nativeCounts(single.proto()) {
		lo, hi := math.Exp2(float64(number-1)/8), math.Exp2(float64(number)/8)
		var want uint64
		for _, us := range values {
			if v := float64(us) / 1e6; v > lo && v <= hi {
				want++
			}
		}
		if n != want {
			t.Errorf("native bucket (%v, %v] has %d, want %d", lo, hi, n, want)
		}
	}
}

// nativeCounts decodes spans and deltas.
func nativeCounts(h *dto.Histogram) map[int]uint64 {
	out := map[int]uint64{}
	at, n, i := 0, int64(0), 0
	for s, span := range h.PositiveSpan {
		if at += int(span.GetOffset()); s == 0 {
			at = int(span.GetOffset())
		}
		for range span.GetLength() {
			n += h.PositiveDelta[i]
			out[at] = uint64(n)
			at++
			i++
		}
	}
	return out
}

// TestExemplars: a scrape has the latest value of each classic bucket whose process or socket is known.
func TestExemplars(t *testing.T) {
	h := newHist()
	at := time.Unix(1_700_000_000, 0)
	for _, e := range []example{
		{0.001, at.Add(2 * time.Second), 1, 11}, // the latest of its bucket
		{0.0009, at.Add(time.Second), 2, 12}, {0.0012, at.Add(time.Second), 2, 12},
		{0.3, at, 3, 0}, {0.31, at, 4, 0}, // of two at one time, the second
		{2, at, 0, 0}, {2.1, time.Time{}, 5, 0}, // no process, no time
		{100, at, 0, 16}, // above all bounds
	} {
		h.observe(e)
	}
	var got []string
	for _, b := range h.proto().Bucket {
		if e := b.Exemplar; e != nil {
			one := fmt.Sprintf("%g: %g at %d", b.GetUpperBound(), e.GetValue(), e.Timestamp.Seconds-at.Unix())
			for _, l := range e.Label {
				one += " " + l.GetName() + "=" + l.GetValue()
			}
			got = append(got, one)
		}
	}
	want := []string{"0.001024: 0.001 at 2 pid=1 sock=11", "0.004096: 0.0012 at 1 pid=2 sock=12", "1.048576: 0.31 at 0 pid=4", "+Inf: 100 at 0 sock=16"}
	if !slices.Equal(got, want) {
		t.Errorf("exemplars %q, want %q", got, want)
	}
	if n := h.proto().Bucket[len(h.proto().Bucket)-1].GetCumulativeCount(); n != 8 {
		t.Errorf("%d values up to +Inf, want 8", n)
	}
}

// TestHostile: names with special characters do not break the format.
func TestHostile(t *testing.T) {
	m := newMeter(t, Limits{})
	for _, name := range []string{"a\"} 1\nevil_total 5", "back\\slash", "\xff\xfe", "<script>", "\x00\x1b[2J", strings.Repeat("ü", 100)} {
		m.Add(sentBytes, 1, name, "", "", "", "in")
	}
	out := text(t, m)
	parser := expfmt.NewTextParser(1)
	got, err := parser.TextToMetricFamilies(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[sentBytes].Metric) != 6 {
		t.Errorf("%d metrics, want one with 6 label sets:\n%s", len(got), out)
	}
}

// TestPromtool: promtool's linter accepts every metric.
func TestPromtool(t *testing.T) {
	tool, err := programs.Prometheus("promtool")
	if err != nil {
		t.Fatal(err)
	}
	m := newMeter(t, Limits{Series: 10_000})
	for _, d := range Table {
		values := make([]string, len(d.Labels))
		for i := range values {
			values[i] = "x"
		}
		switch d.Type {
		case Histogram:
			m.observe(d.Name, example{seconds: 0.001}, values...)
		case Gauge:
			m.Set(d.Name, 1, values...)
		default:
			m.Add(d.Name, 1, values...)
		}
	}
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text(t, m))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

func TestTable(t *testing.T) {
	for _, d := range Table {
		if (d.Type == Counter) != strings.HasSuffix(d.Name, "_total") {
			t.Errorf("%s is a %s", d.Name, d.Type)
		}
		// The OpenTelemetry Collector appends _ratio to the name of a gauge of this unit.
		if d.Type == Gauge && d.Unit == "1" {
			t.Errorf("%s: the unit of a gauge that is not a ratio is 1", d.Name)
		}
		if !strings.HasSuffix(d.Help, ".") || d.From == "" || d.Unit == "" || d.Wide > len(d.Labels) {
			t.Errorf("%s: help %q, from %q, unit %q, wide %d", d.Name, d.Help, d.From, d.Unit, d.Wide)
		}
	}
	want := Markdown()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("../../docs/METRICS.md", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("../../docs/METRICS.md"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/METRICS.md is not what Table says: UPDATE=1 writes it (%v)", err)
	}
}
