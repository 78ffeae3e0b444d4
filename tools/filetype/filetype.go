// SPDX-License-Identifier: Apache-2.0

// Package filetype counts reads and writes by the kind of file.
package filetype

import (
	_ "embed"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// key is struct file_key of filetype.bpf.c.
type key struct {
	Cgroup uint64        `col:"cgroup,as=cgroup,key;container,as=container,key" help:"control group of the process; container name where known"`
	PID    kern.ID32     `col:"pid,width=7,key" help:"process"`
	TID    kern.ID32     `col:"tid,width=7,key" help:"thread id"`
	UID    uint32        `col:"uid,width=5,key" help:"user"`
	Op     kern.Dir      `col:"op,width=5,key" help:"read or write"`
	Comm   kern.Comm     `col:"comm,width=16,key" help:"process name"`
	Thread kern.Comm     `col:"thread,width=16,key" help:"thread name"`
	Type   kern.FileType `col:"type,width=16,key" help:"regular, directory, pipe, char or block; socket:FAMILY; anon:NAME (eventfd, eventpoll)"`
}

// value is struct file_count of filetype.bpf.c. The map's values are struct file_counts: with the key.
type value struct {
	kern.Count
	Errors uint64 `col:"errors,width=6,sum" help:"of them, calls that failed; EAGAIN is not counted at all"`
}

// Merge adds the counts of another processor.
func (v *value) Merge(o *value) {
	v.Count.Count += o.Count.Count
	v.Bytes += o.Bytes
	v.Errors += o.Errors
}

// Tool is filetype.
var Tool = &tool.Tool{
	Name: "filetype", Layer: tool.Socket, Short: "reads and writes by kind of file",
	Banner:  "Counting reads and writes by kind of file.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns,
	Points:  []probe.Point{{Name: "thread"}, {Name: "move"}, probe.Uring("ring", "reads and writes through io_uring")},
	Views: tool.One(tool.View{
		Output: tool.Snapshot[key, value]{Map: "counts", Keyed: true, Fold: true},
		Show:   "comm op type count bytes errors",
		Says:   "[{op} ][{type}: ]{count} calls, {bytes} bytes, {errors} failed",
		By:     []string{"comm", "op", "type"},
		Sort:   "count",
	}),
}
