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

This page is made of the table in internal/agent/table.go.

Histograms have classic and native buckets in one exposition: a scraper that asks for protobuf gets both, text has the classic ones. Bounds of
classic buckets are every second power of two of microseconds. A histogram that the kernel keeps (` + "`seine_turn_seconds`, `seine_first_byte_seconds`" + `)
has exact classic buckets and an exact sum; its native buckets can be off by one, which is 9 %.

A label that is empty is left out. The label ` + "`service`" + ` is a process with the port that it serves, or with the address that it asks; ` + "`side`" + `
is in or out. Addresses of clients that ask a service here are never labels.

There is a limit of series (` + "`--series`" + `, 5,000; each bucket counts). While three quarters of it are not reached, each label set has series of its own. Then
a new one is counted with ` + "`other`" + ` in place of its service, and the busiest get series of their own every ten seconds. Counts never move from one series to
another. A label set that nothing was heard of for ten minutes goes.

| name | type | labels | from | meaning |
|---|---|---|---|---|
`)
	for _, d := range Table {
		labels := strings.Join(d.Labels, ", ")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Type, labels, d.From, d.Help)
	}
	return b.Bytes()
}
