// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"fmt"
	"strings"
)

// Markdown is docs/METRICS.md.
func Markdown() []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics of seine agent

This page is generated from the table in internal/agent/table.go.

Histograms have classic and native buckets in one exposition. A scraper that asks for protobuf gets both; the text format has the classic ones. The
bounds of classic buckets are every second power of two of microseconds. A histogram that the kernel keeps
(` + "`seine_turn_seconds`, `seine_first_byte_seconds`" + `) has exact classic buckets and an exact sum. Its native buckets can be off by one, which is 9 %.

The other histograms have exemplars: the latest value of each classic bucket, with the process (` + "`pid`" + `) and the socket (` + "`sock`" + `) that it comes
from. Rows of the recording have the same ` + "`sock`" + `. Exemplars are in OpenMetrics, protobuf and OTLP; the older text format has none.

Any tool's rows can become metrics by the config file. The time of packets in queueing disciplines is one that deploy/agent.yaml shows: the hooks of
` + "`qdisclat`" + ` run for every packet, so it is not among the agent's tools without a config.

An empty label is left out. The label ` + "`service`" + ` is a process with the port that it serves, or with the address that it connects to; ` + "`side`" + `
is in or out. Addresses of clients of a service here are never labels.

The number of series is limited (` + "`--series`" + `, 5,000; each bucket counts). Up to three quarters of the limit, each label set has series of its own. Above
that a new label set is counted with ` + "`other`" + ` in place of its service. Every ten seconds the busiest of these get series of their own. Counts never
move from one series to another. A label set in which nothing is counted for ten minutes is removed.

| name | type | labels | from | meaning |
|---|---|---|---|---|
`)
	for _, d := range Table {
		labels := strings.Join(d.Labels, ", ")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, labels, d.From, d.Help)
	}
	return b.Bytes()
}
