// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"seine/internal/enrich"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/words"
)

// An on is another tool in the run's engine. Its rows decide which of the run's rows are shown:
//
//	          ┌► Session ─► row.Pipe ─► Hold.Show
//	kernel ─► ┤                            ▼
//	          └► records ────────► Hold ─► Session ─► row.Pipe ─► sink
//
// It is nil if the run has one tool only.
type on struct {
	*member
	main     *run          // the tool that shows
	duration time.Duration // of both
	hold     *tool.Hold
}

// onOf returns the --on flags of a tool, nil if it has none or they are not set.
func onOf(cfg any) *tool.On {
	w, ok := cfg.(interface{ Waits() *tool.On })
	if !ok || w.Waits().On == "" {
		return nil
	}
	return w.Waits()
}

// cutOn splits TOOL [FLAGS]: EXPRESSION. The expression is optional.
func cutOn(s string) (line, where string) {
	if line, where, ok := strings.Cut(s+" ", ": "); ok {
		return strings.TrimSpace(line), strings.TrimSpace(where)
	}
	if line, where, ok := strings.Cut(s, ":"); ok && !strings.ContainsAny(line, " \t") { // flags may have colons
		return line, where
	}
	return strings.TrimSpace(s), ""
}

// waitsFor prepares the tool that --on names. The run ends after that tool.
func (r *run) waitsFor(o *tool.Options) (*on, error) {
	flags := onOf(r.cfg)
	if flags == nil {
		return nil, nil
	}
	if r.flags.from.path != "" {
		return nil, tool.Usagef("--from: --on works on live events only")
	}
	line, where := cutOn(flags.On)
	w := &with{flags: declare(pflag.NewFlagSet("", pflag.ContinueOnError), withTool, withTool.NewConfig()), out: io.Discard, err: r.err}
	m, err := w.member(nil, line)
	if err != nil {
		return nil, err
	}
	if m.tool == r.tool {
		return nil, tool.Usagef("--on: name another tool than %s", r.tool.Name)
	}
	if m.flags.interval == 0 && (m.flags.by != "" || m.tool.Kind(m.cfg) != tool.Events) {
		return nil, tool.Usagef("--on: %s shows its rows at the end: give it an interval: '%s -i 1'", m.tool.Name, line)
	}
	x := &on{member: m, main: r, duration: o.Duration}
	o.Duration = 0
	if x.hold, err = flags.NewHold(); err != nil {
		return nil, err
	}
	q := m.query()
	if where != "" {
		q.Where = append(q.Where, where)
	}
	if m.plan, err = q.Plan(m.prepared.Schemas); err != nil {
		return nil, tool.Usagef("--on: %v", err)
	}
	if m.pipe, err = m.plan.Build(shows{x.hold}); err != nil {
		return nil, tool.Usagef("--on: %v", err)
	}
	return x, m.prepared.Use(m.pipe.Uses)
}

// shows makes a hold show the events around each row.
type shows struct{ *tool.Hold }

func (s shows) Row(r *row.Row) error {
	at := time.Now()
	if c := r.Get("time"); c != nil && c.Kind == row.Time {
		at = time.Unix(0, int64(c.N))
	}
	s.Show(at)
	return nil
}

func (shows) End(row.End) error { return nil }

// attach attaches the tool of the run and the one that it waits for.
func (x *on) attach(p *tool.Prepared) (*tool.Session, error) {
	if x == nil {
		return p.Attach()
	}
	e, err := tool.NewEngine(tool.EngineOptions{})
	if err != nil {
		return nil, err
	}
	s, err := e.Attach(p)
	if err == nil {
		x.session, err = e.Attach(x.prepared)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	for _, n := range x.session.Notes {
		x.main.say("%s: %s", x.tool.Name, n)
	}
	x.names = enrich.NewNames(x.session)
	s.Hold(x.hold)
	return s, nil
}

// uses returns the columns of its rows that are read.
func (x *on) uses() map[string]bool { return x.pipe.Uses }

// follow runs the session until ctx ends. The other tool ends first, so that its last rows count too.
func (x *on) follow(ctx context.Context, s *tool.Session, head row.Sink) (*tool.Report, error) {
	if x == nil {
		return s.Run(ctx, head)
	}
	defer s.Engine().Close()
	defer x.names.Close()
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if x.duration > 0 {
		ctx, stop = context.WithTimeout(ctx, x.duration)
		defer stop()
	}
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer end()
		x.report, failed = x.session.Run(ctx, x.pipe.Head(x.live(x.names)))
	}()
	report, err := s.Run(own, head)
	stop()
	<-done
	if !x.main.quiet {
		x.main.say("%s of %s", words.Count(uint64(x.hold.Moments()), "row", "rows"), x.tool.Name)
		if x.report != nil {
			for _, w := range x.report.Warnings() {
				x.main.say("%s: %s", x.tool.Name, w)
			}
		}
	}
	return report, errors.Join(err, failed)
}
