// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"seine/internal/row/rowtest"
)

// TestPlaces: the name of a container becomes labels, and a label without a value is left out.
func TestPlaces(t *testing.T) {
	m := newMeter(t, Limits{})
	c := &Counts{Meter: m}
	s := rowtest.Schema("soaccept", "", "time", "comm", "container", "netns", "lport", "errno")
	for container, want := range map[string]string{
		"shop/web-7d9f/nginx": `seine_tcp_accepts_total{container="nginx",pod="web-7d9f",pod_namespace="shop",result="ok",service="a :80",side="in"} 1`,
		"shop/web-7d9f":       `seine_tcp_accepts_total{pod="web-7d9f",pod_namespace="shop",result="ok",service="a :80",side="in"} 1`,
		"redis":               `seine_tcp_accepts_total{container="redis",result="ok",service="a :80",side="in"} 1`,
		"":                    `seine_tcp_accepts_total{result="ok",service="a :80",side="in"} 1`,
	} {
		if err := c.Row(rowtest.Row(s, map[string]any{"comm": "a", "container": container, "netns": 1, "lport": 80})); err != nil {
			t.Fatal(err)
		}
		if got := text(t, m); !strings.Contains(got, want+"\n") {
			t.Errorf("%q: no %s", container, want)
		}
	}
}
