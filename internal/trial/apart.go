// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"seine/internal/host"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

// A trial runs its tool in a process apart: this program again, which attaches,
// gives up its privileges as a run does, and hands its rows back. If a tool needs a privilege
// that it gave up, its live cases fail too.
//
// To start a process takes 60 ms of CPU time, and more than a second where the
// machine is emulated. There only the first trial of each tool has its own, or none with
// Together; the others run here, and keep their privileges.

// apartEnv marks such a process.
const apartEnv = "SEINE_TRIAL_TOOL"

// Kit is the part of the command line that a trial needs.
type Kit struct {
	Find   func(name string) *tool.Tool
	Parse  func(t *tool.Tool, flags []string) (cfg any, o tool.Options, err error) // what Prepare wants
	Namers func(*tool.Session) map[string]row.Namer
}

// kit is what Main was given. Without it a process apart would not know what
// it is, and run the whole program again.
var kit *Kit

// Main makes trials possible. It returns at once, except in the process apart
// of a trial: there it runs the tool and exits. Call it early in main and in TestMain.
func Main(k Kit) {
	kit = &k
	if os.Getenv(apartEnv) == "" || host.Elevated() {
		return
	}
	os.Unsetenv(apartEnv)
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// An apartOrder tells the process what to run. The end of its standard input tells it
// to end the tool.
type apartOrder struct {
	Tool    string
	Flags   []string
	Stalled bool
	Beside  []string
}

// attachment is the first message of the process.
type attachment struct {
	Began   time.Time
	Choices []Choice
	Notes   []string
	Err     *crossing
}

// conclusion is the last message.
type conclusion struct {
	Report *tool.Report
	Err    *crossing
}

func serve(in io.Reader, out io.Writer) error {
	var o apartOrder
	orders := json.NewDecoder(in)
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("trial: order: %w", err)
	}
	to, wait := &sender{out: bufio.NewWriterSize(out, 64<<10)}, make(chan struct{})
	if !o.Stalled {
		close(wait)
	}
	s, others, err := attachApart(o)
	if err != nil {
		return to.send(msgAttached, attachment{Err: cross(err)})
	}
	to.schemas = s.Schemas()
	a := attachmentOf(s)
	sink := row.Name(stalled{to, wait}, nil, kit.Namers(s))
	if _, err := s.Engine().GiveUp((*tool.Session).All); err != nil {
		return to.send(msgAttached, attachment{Err: cross(err)})
	}
	if err := to.send(msgAttached, a); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, in)
		if o.Stalled {
			close(wait)
		}
		stop()
	}()
	others.start(ctx)
	report, err := s.Run(ctx, sink)
	return to.send(msgEnded, conclusion{report, cross(errors.Join(err, others.end(stop)))})
}

// attachApart attaches the tool, and before it those that are to run beside it.
func attachApart(o apartOrder) (*tool.Session, *bystanders, error) {
	p, err := prepare(o.Tool, o.Flags)
	if err != nil {
		return nil, nil, err
	}
	if o.Beside == nil {
		s, err := p.Attach()
		return s, nil, err
	}
	e, err := tool.NewEngine(tool.EngineOptions{})
	if err != nil {
		return nil, nil, err
	}
	b, err := attachBeside(e, o.Beside)
	if err != nil {
		e.Close()
		return nil, nil, err
	}
	s, err := e.Attach(p)
	if err != nil {
		e.Close()
	}
	return s, b, err
}

func prepare(name string, flags []string) (*tool.Prepared, error) {
	t := kit.Find(name)
	if t == nil {
		return nil, fmt.Errorf("trial: there is no tool %s", name)
	}
	cfg, opts, err := kit.Parse(t, flags)
	if err != nil {
		return nil, err
	}
	return tool.Prepare(t, cfg, opts)
}

func attachmentOf(s *tool.Session) *attachment {
	a := &attachment{Began: time.Now(), Notes: s.Notes}
	for _, c := range s.Choices {
		a.Choices = append(a.Choices, Choice{c.Point, c.Way})
	}
	return a
}

// A place is the process in which a trial's tool runs.
type place interface {
	collect(to row.Sink) (*tool.Report, error) // takes rows until the tool has ended
	stop()
}

// apartOnce are the tools that have run apart, by name.
var apartOnce sync.Map

// Together lets the first trial of each tool run in this process too, where the machine is
// emulated. Another machine must run them apart.
var Together bool

// startTrial runs a tool, in a process apart unless that costs too much.
func startTrial(ctx context.Context, schemas []*row.Schema, o apartOrder, apart bool) (place, *attachment, error) {
	if _, once := apartOnce.Load(o.Tool); (once || Together) && !apart && lab.Emulated() {
		return startHere(ctx, o)
	}
	p, a, err := startApart(ctx, schemas, o)
	if err != nil {
		return nil, nil, err
	}
	apartOnce.Store(o.Tool, true)
	return p, a, nil
}

// here is a tool in this process.
type here struct {
	ses    *tool.Session
	others *bystanders
	namers map[string]row.Namer
	ctx    context.Context
	cancel context.CancelFunc
	wait   chan struct{} // no row is taken until it is closed
}

func startHere(ctx context.Context, o apartOrder) (place, *attachment, error) {
	s, others, err := attachApart(o)
	if err != nil {
		return nil, nil, err
	}
	h := &here{ses: s, others: others, namers: kit.Namers(s), wait: make(chan struct{})}
	if !o.Stalled {
		close(h.wait)
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	if o.Stalled {
		context.AfterFunc(h.ctx, func() { close(h.wait) })
	}
	return h, attachmentOf(s), nil
}

func (h *here) stop() { h.cancel() }

func (h *here) collect(to row.Sink) (*tool.Report, error) {
	h.others.start(h.ctx)
	report, err := h.ses.Run(h.ctx, row.Name(stalled{to, h.wait}, nil, h.namers))
	return report, errors.Join(err, h.others.end(h.cancel))
}

// stalled is a sink that takes no row for a while.
type stalled struct {
	row.Sink
	wait chan struct{}
}

func (s stalled) Row(r *row.Row) error {
	<-s.wait
	return s.Sink.Row(r)
}

// apart is the process, from the trial's side.
type apart struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	said    bytes.Buffer // on standard error
	schemas []*row.Schema
}

// startApart starts the process and returns when the tool is attached there.
func startApart(ctx context.Context, schemas []*row.Schema, o apartOrder) (*apart, *attachment, error) {
	p := &apart{cmd: exec.CommandContext(ctx, "/proc/self/exe"), schemas: schemas}
	p.cmd.Args = []string{o.Tool}
	p.cmd.Env = append(os.Environ(), apartEnv+"=1")
	p.cmd.Stderr = &p.said
	p.cmd.Cancel = func() error { return p.in.Close() }
	p.cmd.WaitDelay = time.Minute
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("trial: %w", err)
	}
	p.out = bufio.NewReaderSize(out, 64<<10)
	a := &attachment{}
	err = json.NewEncoder(p.in).Encode(o)
	if err == nil {
		err = p.expect(msgAttached, a)
	}
	if err == nil {
		err = a.Err.err()
	}
	if err != nil {
		p.in.Close()
		return nil, nil, errors.Join(err, p.wait())
	}
	return p, a, nil
}

func (p *apart) stop() { p.in.Close() }

func (p *apart) collect(to row.Sink) (*tool.Report, error) {
	for {
		kind, body, err := receive(p.out)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trial: the tool's process: %w", err), p.wait())
		}
		switch kind {
		case msgRow:
			r, err := decodeRow(body, p.schemas)
			if err != nil {
				return nil, err
			}
			to.Row(r)
		case msgBatch:
			var e row.End
			if err := json.Unmarshal(body, &e); err != nil {
				return nil, err
			}
			to.End(e)
		case msgEnded:
			var c conclusion
			if err := json.Unmarshal(body, &c); err != nil {
				return nil, err
			}
			return c.Report, errors.Join(c.Err.err(), p.wait())
		}
	}
}

func (p *apart) expect(want byte, v any) error {
	kind, body, err := receive(p.out)
	if err != nil {
		return fmt.Errorf("trial: the tool's process: %w", err)
	}
	if kind != want {
		return fmt.Errorf("trial: message %d, want %d", kind, want)
	}
	return json.Unmarshal(body, v)
}

// wait waits for the end of the process. What it says on standard error is an error.
func (p *apart) wait() error {
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("trial: the tool's process: %w: %s", err, p.said.String())
	}
	return nil
}

// crossing is an error on its way to another process: its text, and which of the
// sentinels it is.
type crossing struct {
	Text string
	Is   []int
}

var sentinels = []error{tool.ErrUsage, probe.ErrNotSupported, os.ErrPermission, os.ErrNotExist}

func cross(err error) *crossing {
	if err == nil {
		return nil
	}
	c := &crossing{Text: err.Error()}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			c.Is = append(c.Is, i)
		}
	}
	return c
}

func (c *crossing) err() error {
	if c == nil {
		return nil
	}
	return crossed{c}
}

type crossed struct{ *crossing }

func (c crossed) Error() string { return c.Text }
func (c crossed) Is(target error) bool {
	return slices.Contains(c.crossing.Is, slices.Index(sentinels, target))
}
