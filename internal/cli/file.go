// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"

	"seine/internal/tool"
)

// pcapngFormat is the output format that -w writes.
const pcapngFormat = "pcapng"

// fileOf returns the files that a tool's flags name, nil if it has no such flags or they are not set.
func fileOf(cfg any) *tool.File {
	w, ok := cfg.(interface{ Writes() *tool.File })
	if !ok || w.Writes().Path == "" {
		return nil
	}
	return w.Writes()
}

// noFile refuses flags that write files where a tool does not run alone.
func noFile(t *tool.Tool, cfg any) error {
	if fileOf(cfg) != nil {
		return tool.Usagef("%s: -w works only if %s runs alone", t.Name, t.Name)
	}
	if onOf(cfg) != nil {
		return tool.Usagef("%s: --on works only if %s runs alone", t.Name, t.Name)
	}
	return nil
}

// openFile makes the run write to the file that -w names. It opens all files of a ring before
// privileges are dropped, because no file can be created afterwards.
func (r *run) openFile() (closeFile func() error, err error) {
	nothing := func() error { return nil }
	f := fileOf(r.cfg)
	if r.past != nil && (f != nil || r.flags.output == pcapngFormat) {
		return nil, tool.Usagef("--from: a recording has no packets")
	}
	if f == nil {
		return nothing, nil
	}
	if r.flags.output != pcapngFormat {
		return nil, tool.Usagef("-w writes %s: leave out -o %s", pcapngFormat, r.flags.output)
	}
	if f.Path == "-" {
		return nothing, nil
	}
	names, size, err := f.Files()
	if err != nil {
		return nil, err
	}
	if err := checkPermission(); err != nil { // before existing files are truncated
		return nil, err
	}
	files := &fileRing{size: size}
	for _, name := range names {
		one, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			files.close()
			return nil, fmt.Errorf("-w: %w", err)
		}
		files.all = append(files.all, one)
	}
	if size == 0 {
		r.out = files.all[0]
	} else {
		r.out = files
	}
	return files.close, nil
}

// fileRing is a ring of files that are written in turn. It is a [sink.Files].
type fileRing struct {
	all  []*os.File
	size int64
	at   int
}

// Write writes to the current file.
func (f *fileRing) Write(b []byte) (int, error) { return f.all[f.at].Write(b) }

// Limit is how many bytes each file may have.
func (f *fileRing) Limit() int64 { return f.size }

// Next truncates the oldest file and continues there.
func (f *fileRing) Next() error {
	f.at = (f.at + 1) % len(f.all)
	if err := f.all[f.at].Truncate(0); err != nil {
		return err
	}
	_, err := f.all[f.at].Seek(0, 0)
	return err
}

func (f *fileRing) close() (err error) {
	for _, one := range f.all {
		if e := one.Close(); err == nil {
			err = e
		}
	}
	return err
}
