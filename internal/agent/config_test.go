// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"seine/internal/row"
	"seine/internal/row/rowtest"
)

var keys = []string{"listen", "dir", "budget", "otlp", "host"}

func TestConfig(t *testing.T) {
	f, err := Parse([]byte(`
listen: 127.0.0.1:7346
host: [a.example, b.example]
tools:
  - tcpnagle
metrics:
  - name: my_connects_total
    help: Connects by user.
    type: counter
    tool: soconnect
    labels: {user: uid, service: service}
`), keys)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Settings) != 3 || f.Settings[2] != (Setting{"host", "b.example", 3}) || len(f.Tools) != 1 || f.Metrics[0].Labels["user"] != "uid" {
		t.Errorf("%+v", f)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		if f, err := Parse([]byte(empty), keys); err != nil || len(f.Settings) != 0 {
			t.Errorf("%q: %v, %v", empty, f, err)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	metric := "metrics:\n  - {name: a_total, help: h, type: counter, tool: tcplife}\n"
	for _, c := range []struct{ file, want string }{
		{"lisen: x\n", "did you mean listen?"},
		{"quux: x\n", "the keys are listen"},
		{"dir: a\ndir: b\n", "there already, in line 1"},
		{"dir: {a: b}\n", "line 1: dir: want a value"},
		{"- a\n", "want keys with values"},
		{"a: [\n", "not YAML"},
		{"dir: a\n---\ndir: b\n", "more than one document"},
		{strings.Replace(metric, "help: h", "hlep: h", 1), "hlep"},
		{strings.Replace(metric, "help: h, ", "", 1), "help is missing"},
		{strings.Replace(metric, "a_total", "a", 1), "end in _total"},
		{strings.Replace(metric, "a_total", sessions, 1), "the agent has a metric of this name already"},
		{strings.Replace(metric, "counter", "summary", 1), "one of counter, gauge, histogram"},
		{strings.Replace(metric, "a_total", "a-b_total", 1), "is not a valid name"},
		{strings.Replace(metric, "tool: tcplife", "tool: tcplife, labels: {le: comm}", 1), "not le"},
	} {
		if _, err := Parse([]byte(c.file), keys); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.file, err, c.want)
		}
	}
}

// TestCustom: a config file defines metrics, and rows are counted in them.
func TestCustom(t *testing.T) {
	s := rowtest.Schema("tcplife", "", "comm", "netns", "lport", "raddr", "rport", "tx_bytes", "established_ms")
	for i, kind := range []row.Kind{row.Text, row.Uint, row.Uint, row.Addr, row.Uint, row.Uint, row.Uint} {
		s.Columns[i].Kind = kind
	}
	customs := []*Custom{
		{Name: "my_bytes_total", Help: "h", Type: Counter, Tool: "tcplife", Labels: map[string]string{"process": "comm", "port": "rport"}, Value: "tx_bytes"},
		{Name: "my_rows_total", Help: "h", Type: Counter, Tool: "tcplife", Labels: map[string]string{"svc": "service"}},
		{Name: "my_life_seconds", Help: "h", Type: Histogram, Tool: "tcplife", Value: "established_ms", Scale: 0.001},
	}
	var descs []Desc
	for _, c := range customs {
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		if err := c.Bind([]*row.Schema{s}); err != nil {
			t.Fatal(err)
		}
		descs = append(descs, c.Desc())
	}
	m, err := NewMeter(Limits{}, descs...)
	if err != nil {
		t.Fatal(err)
	}
	counts := &Counts{Meter: m}
	for range 3 {
		r := rowtest.Row(s, map[string]any{"comm": "curl", "lport": 40000, "rport": 443, "tx_bytes": 11, "established_ms": 2})
		for _, c := range customs {
			if err := c.Into(counts).Row(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := text(t, m)
	for _, want := range []string{`my_bytes_total{port="443",process="curl"} 33`, `my_rows_total{svc="curl → :443"} 3`, "my_life_seconds_sum 0.006", `my_life_seconds_bucket{le="0.004096"} 3`, `my_life_seconds_bucket{le="0.001024"} 0`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in\n%s", want, out)
		}
	}
	wrong := *customs[0]
	wrong.Value = "comm"
	if err := wrong.Bind([]*row.Schema{s}); err == nil || !strings.Contains(err.Error(), "not a number") {
		t.Error(err)
	}
	wrong = *customs[0]
	wrong.Labels = map[string]string{"a": "nosuch"}
	if err := wrong.Bind([]*row.Schema{s}); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Error(err)
	}
}
