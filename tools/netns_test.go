// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/test/golden"
)

// TestNetnsNames: a table of any tool shows a network namespace by its name, in rows and above histograms. JSON has its
// inode.
func TestNetnsNames(t *testing.T) {
	const inode, name = 4026532001, "blue"
	each(t, func(t *testing.T, tl *tool.Tool, _ *ebpf.CollectionSpec) {
		views := tl.Views(tl.NewConfig())
		schemas, err := tl.Schemas(views)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := golden.Rows(".", tl.Name, schemas)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range schemas {
			at := s.Index("netns")
			if at < 0 {
				continue
			}
			s.Show, s.Line = []int{at}, ""
			for format, want := range map[string]string{"table": name, "json": `"netns":4026532001`} {
				var out bytes.Buffer
				to, err := sink.New(format, &out, sink.Options{Schemas: []*row.Schema{s}, Zone: time.UTC, Netns: func(n uint64) string {
					return map[uint64]string{inode: name}[n]
				}})
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, r := range rows {
					if r.Schema == s {
						r = r.Clone()
						r.Cells[at].SetUint(inode)
						n++
						if err := to.Row(r); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := to.End(row.End{Output: true, Last: true}); err != nil {
					t.Fatal(err)
				}
				if got := strings.Count(out.String(), want); n == 0 || got != n {
					t.Errorf("%s %s: %d of %d rows have %s:\n%s", format, s.View, got, n, want, out.String())
				}
			}
		}
	})
}
