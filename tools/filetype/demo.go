// SPDX-License-Identifier: Apache-2.0

package filetype

import (
	"strings"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		f, err := lab.StartFiles(w, "")
		if err != nil {
			return err
		}
		_, err = f.Run()
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "kinds", Run: kinds},
}

// kinds: reads and writes of every kind of file, each counted, and no other.
func kinds(x *trial.Trial) error {
	f, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	rows, made, err := trial.RowsOf(x, 0, f.Run, "--by=thread,op,type")
	if err != nil {
		return err
	}
	want, got := map[string]lab.FileCount{}, map[string]lab.FileCount{}
	for _, c := range made {
		want[c.Op+" "+c.Type] = c
	}
	for _, r := range rows {
		thread := trial.Value(r.Get("thread"))
		if thread != lab.FilesComm && !strings.HasPrefix(thread, "iou-wrk-") {
			continue // made by the threads that talk to the parent
		}
		c := lab.FileCount{Op: trial.Value(r.Get("op")), Type: trial.Value(r.Get("type"))}
		sum := got[c.Op+" "+c.Type] // an io_uring worker may have made some of the calls
		c.Count = sum.Count + int(r.Get("count").N)
		c.Errors = sum.Errors + int(r.Get("errors").N)
		c.Bytes = sum.Bytes + int64(r.Get("bytes").N)
		got[c.Op+" "+c.Type] = c
	}
	for key := range got {
		if _, made := want[key]; !made {
			x.Errorf("counted %v, which was not made", got[key])
		}
	}
	for key, w := range want {
		g := got[key]
		if g.Errors > w.Errors || g.Bytes > w.Bytes || g.Count == w.Count && (g.Errors != w.Errors || g.Bytes != w.Bytes) {
			x.Errorf("%s: counted %v, want %v", key, g, w)
		}
		x.Fail(trial.Fewer(g.Count, w.Count, "%s: counted %v, want %v", key, g, w))
	}
	return nil
}
