// SPDX-License-Identifier: Apache-2.0

package filetype

import (
	"seine/internal/lab"
	"seine/internal/tool"
)

var demo = tool.Workload{
	Run: func(w *lab.World) error {
		f, err := lab.StartFiles(w, "")
		if err != nil {
			return err
		}
		_, err = f.Run()
		return err
	},
}

var live = []tool.Case{{Name: "kinds", Run: kinds}, {Name: "pid", Run: byPID}}

// kinds: reads and writes of every kind of file, each counted, and no other.
func kinds(x *tool.Trial) error {
	f, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	rows, made, err := tool.RowsOf(x, 0, f.Run)
	if err != nil {
		return err
	}
	want := map[string]lab.FileCount{}
	for _, c := range made {
		want[c.Op+" "+c.Type] = c
	}
	for _, r := range rows {
		if tool.Value(r.Get("comm")) != lab.FilesComm {
			continue // of the threads that talk to the parent
		}
		k := tool.Value(r.Get("op")) + " " + tool.Value(r.Get("type"))
		x.Want(r, "count", want[k].Count)
		x.Want(r, "errors", want[k].Errors)
		x.Want(r, "bytes", want[k].Bytes)
		delete(want, k)
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v", want)
	}
	return nil
}

// byPID: of two processes only the one that was asked for.
func byPID(x *tool.Trial) error {
	a, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	b, err := lab.StartFiles(x.World, "")
	if err != nil {
		return err
	}
	if err := x.Attach("--by=pid,type", "--comm=lab-f*"); err != nil {
		return err
	}
	for _, f := range []*lab.Files{a, b} {
		if _, err := f.Run(); err != nil {
			return err
		}
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for _, r := range rows {
		if tool.Value(r.Get("type")) == "socket:inet" {
			x.Want(r, "count", 44)
			seen[tool.Value(r.Get("pid"))]++
		}
	}
	if len(seen) != 2 {
		x.Errorf("IPv4 sockets of %d processes, want 2", len(seen))
	}
	return nil
}
