// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"seine/internal/journal"
	"seine/internal/names"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/test/golden"
	"seine/tools"
)

// A command is a tool with flags, its output kept.
type command struct {
	run  *run
	fs   *pflag.FlagSet
	opts tool.Options
	out  bytes.Buffer
	err  bytes.Buffer
}

func newCommand(tl *tool.Tool, flags []string) (*command, error) {
	c := &command{fs: pflag.NewFlagSet(tl.Name, pflag.ContinueOnError)}
	cfg := tl.NewConfig()
	c.run = &run{tool: tl, cfg: cfg, flags: declare(c.fs, tl, cfg), out: &c.out, err: &c.err}
	if err := c.fs.Parse(flags); err != nil {
		return nil, err
	}
	c.run.args = c.fs.Args()
	return c, nil
}

// prepare is what a run does before it builds its pipe.
func (c *command) prepare() (err error) {
	r := c.run
	if c.opts, err = r.flags.options(r.tool, r.cfg, r.args); err != nil {
		return err
	}
	r.prepared, err = tool.Prepare(r.tool, r.cfg, c.opts)
	return err
}

func find1(t *testing.T, name string) *tool.Tool {
	t.Helper()
	tl, _ := find(name)
	if tl == nil {
		t.Fatalf("no tool %s", name)
	}
	return tl
}

// live runs the command over rows in place of the kernel's, teed into a recording.
func (c *command) live(dir string, rows func([]*row.Schema) ([]*row.Row, error), ends func(i, n int) *row.End) error {
	r := c.run
	if err := c.prepare(); err != nil {
		return err
	}
	if err := errors.Join(r.showNames(), r.showSubnets()); err != nil {
		return err
	}
	schemas, err := r.view()
	if err != nil {
		return err
	}
	rec, err := record.Open(dir, record.Options{Options: journal.Options{Sync: -1}, Netns: netnsNamer(), User: userName, Machine: machine()})
	if err != nil {
		return err
	}
	defer rec.Close()
	pipe, err := r.pipe(schemas)
	if err != nil {
		return err
	}
	above := func(t time.Time) string { return "load " + t.UTC().Format(time.TimeOnly) }
	if r.prepared.Views[0].Above == nil {
		above = nil
	}
	stream := rec.Stream(r.source(c.fs, c.opts), r.prepared.Schemas, above)
	stream.Start(r.start)
	r.above = stream.Above
	all, err := rows(r.prepared.Schemas)
	if err != nil {
		return err
	}
	for _, one := range all {
		if c := one.Get(names.Column); c != nil {
			c.SetText("www.example")
		}
	}
	to := row.Tee(stream, pipe.Head(r.made()))
	if err := to.End(row.End{}); err != nil {
		return err
	}
	for i, one := range all {
		if err := to.Row(one.Clone()); err != nil {
			return err
		}
		if e := ends(i, len(all)); e != nil {
			if err := to.End(*e); err != nil {
				return err
			}
		}
	}
	return to.End(row.End{Time: latest(all), Output: true, Last: true})
}

// replay runs the command over a recording.
func (c *command) replay(dir string) error {
	c.run.flags.from.path = dir
	return c.run.do(context.Background())
}

// latest is a moment after all rows.
func latest(rows []*row.Row) time.Time {
	var ns uint64
	for _, r := range rows {
		if c := r.Get("time"); c != nil && c.Kind == row.Time {
			ns = max(ns, c.N)
		}
	}
	return time.Unix(0, int64(ns)+1e9)
}

// lines are command lines whose output must be the same over a recording, of every tool:
// its views and formats, the forms of time, and the stages of the pipe.
func lines(tl *tool.Tool) (out [][]string) {
	cfg := tl.NewConfig()
	views := tl.Views(cfg)
	kind := tl.Kind(cfg)
	for _, format := range formats(tl) {
		if format == pcapngFormat {
			continue // a recording has no packets: it is refused
		}
		for _, v := range views {
			if len(views) > 1 {
				out = append(out, []string{"-o", format, "--view", v.Name})
			}
		}
		out = append(out, []string{"-o", format})
	}
	for _, form := range []string{"rel", "unix"} {
		out = append(out, []string{"--time", form})
	}
	out = append(out, []string{"-o", "json", "--where", "time != nil"})
	if slices.ContainsFunc(views, hasRemote) {
		out = append(out, []string{"--names"}, []string{"--names", "-o", "json"}, []string{"--by", "raddr/24", "-o", "json"})
	}
	if hasHist(tl) {
		out = append(out, []string{"--summary"}, []string{"--summary", "-o", "json"})
	}
	if kind == tool.Events {
		out = append(out, []string{"-n", "2"}, []string{"-n", "2", "-o", "json"}, []string{"--rate", "1000000", "-o", "json"}) // the golden rows are seconds apart
		for _, v := range views {
			if s, err := v.Output.Schema(); err == nil && s.Index("comm") >= 0 {
				by := []string{"--by", "comm", "-o", "json"}
				if len(views) > 1 {
					by = append(by, "--view", v.Name)
				}
				out = append(out, by, append(slices.Clone(by), "-i", "1"))
			}
		}
	} else {
		out = append(out, []string{"-i", "1"}, []string{"-i", "1", "-o", "json"}, []string{"-i", "1", "-n", "2"}, []string{"-i", "1", "--top", "1"})
	}
	return out
}

// TestReplay feeds the golden rows of every tool through its pipe and into a recording at
// once. The recording, read by the same command line, must print the same bytes: a new tool is part of
// it without being told. Some command lines are refused: then the recording refuses them too.
func TestReplay(t *testing.T) {
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			seen := 0
			for _, flags := range lines(tl) {
				if replayed(t, tl, flags) {
					seen++
				}
			}
			if seen < 5 {
				t.Errorf("%d command lines had an output to compare", seen)
			}
		})
	}
}

// replayed compares one command line; false: there was nothing to compare.
func replayed(t *testing.T, tl *tool.Tool, flags []string) bool {
	t.Helper()
	dir := t.TempDir()
	live, err := newCommand(tl, flags)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(s []*row.Schema) ([]*row.Row, error) { return golden.Rows("../../tools", tl.Name, s) }
	ends := func(i, n int) *row.End {
		at := time.Date(2026, 11, 14, 23, 40, i, 0, time.UTC)
		switch {
		case i == n/3:
			return &row.End{Time: at, Tool: tl.Name, Losses: []row.Loss{{Kind: "ring full", N: 7}}}
		case live.run.flags.interval > 0 && i%2 == 1:
			return &row.End{Time: at, Output: true}
		case i%2 == 0: // a batch of events
			return &row.End{Time: at}
		}
		return nil
	}
	// -o book changes the rows that it is handed.
	err = live.live(dir, rows, ends)
	again, perr := newCommand(tl, flags)
	if perr != nil {
		t.Fatal(perr)
	}
	if err != nil && err != row.Done {
		rerr := again.replay(dir)
		if rerr == nil {
			t.Errorf("%v: refused live (%v), and not over a recording", flags, err)
		}
		return false
	}
	if err := again.replay(dir); err != nil {
		t.Errorf("%v: %v", flags, err)
		return false
	}
	if !bytes.Equal(live.out.Bytes(), again.out.Bytes()) {
		t.Errorf("%v: live\n%s\nreplayed\n%s", flags, clip(live.out.Bytes()), clip(again.out.Bytes()))
	}
	return live.out.Len() > 0
}

func clip(b []byte) []byte { return b[:min(len(b), 3000)] }

// TestReplayRate holds rows back by their own clock, not by that of who reads.
func TestReplayRate(t *testing.T) {
	tl := find1(t, "tcplife")
	dir := t.TempDir()
	live, err := newCommand(tl, []string{"-o", "json"})
	if err != nil {
		t.Fatal(err)
	}
	rows := func(s []*row.Schema) (out []*row.Row, err error) {
		for i := range 50 { // five a second
			r := s[0].New()
			*r.Get("time") = row.Cell{Kind: row.Time, N: uint64(1_794_000_000_000_000_000 + i*200_000_000)}
			out = append(out, r)
		}
		return out, nil
	}
	if err := live.live(dir, rows, func(int, int) *row.End { return nil }); err != nil {
		t.Fatal(err)
	}
	again, _ := newCommand(tl, []string{"-o", "json", "--rate", "2"})
	if err := again.replay(dir); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(again.out.Bytes(), []byte("\n")); got != 20 {
		t.Errorf("%d rows of ten seconds, want 2 of each", got)
	}
}
