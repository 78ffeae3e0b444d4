// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/enrich"
	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/why"
	"seine/internal/words"
)

// whyTools are the command lines that 'seine why' runs. It leaves out a tool that this kernel
// cannot run, and names the rules that need it.
var whyTools = []string{
	"flows -i 1 --view all", // why joins both ends of a connection by its addresses
	"tcpretrans -l", "soconnect --errors", "tcpsynbl -i 1", "soaccept --errors", "tcplife", "dns",
	"skbdrop -i 1 --view drops --by reason,proto,lport,dev,netns", // a Sampler reads the counters
}

// exitFinding is the exit code if there is a finding as bad as --fail-on says.
const exitFinding = 5

// whyFlags are those of the command why.
type whyFlags struct {
	duration time.Duration
	from     fromFlags
	output   string
	failOn   string
	rules    bool
	slow     time.Duration
	verbose  int
	out, err io.Writer
	onReady  func(stop context.CancelFunc)
	aim      target
}

func whyCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd, _ := newWhy(stdout, stderr)
	return cmd
}

// newWhy returns the command and the flags that it fills.
func newWhy(stdout, stderr io.Writer) (*cobra.Command, *whyFlags) {
	f := &whyFlags{duration: 10 * time.Second, slow: 100 * time.Millisecond, output: "table", out: stdout, err: stderr}
	cmd := &cobra.Command{
		Use:   "why [TARGET]",
		Short: "what is wrong with this machine's network, and what to do about it",
		Long: `Looks at the whole machine for ten seconds, or at a recording, and reports what is wrong, worst first. Each
finding has its evidence, a confidence, advice and the next command. The cause of another finding comes before
it.

TARGET narrows the report: a PID, a process name, a container, :443 (a local service), 10.0.0.5:5432 (a remote
one) or an address. --rules prints the rules. Calls over UNIX sockets are not seen.

With --from and --since a service is compared with the hour before: it is a finding too if it has become three
times as slow.`,
		Example: `  seine why
  seine why nginx
  seine why :443 -d 30s
  seine why 10.0.0.5:5432 -o json
  seine why --fail-on warn
  seine why --from /var/lib/seine --since 14:00 --until 14:10`,
		Args: cobra.MaximumNArgs(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(&durationFlag{&f.duration, true}, "duration", "d", "look for this long (default 10s)")
	fs.StringVarP(&f.output, "output", "o", "table", "format: table, json, md")
	fs.StringVar(&f.failOn, "fail-on", "", "exit with 5 if there is a finding as bad as this: info, warn, bad")
	fs.Var(&durationFlag{&f.slow, true}, "slow", "a turn that takes this long is slow (default 100ms)")
	fs.BoolVar(&f.rules, "rules", false, "print the rules: what each looks at, and when it reports a finding")
	fs.CountVarP(&f.verbose, "verbose", "v", "print how many rows each tool gave; twice: all services too")
	new(btfFlag).of(cmd)
	f.from.declare(fs)
	fs.Lookup("from").Usage = "look at this recording instead of the machine: a directory or a file"
	for _, name := range []string{"duration", "slow"} {
		fs.Lookup(name).DefValue = "" // the text has it
	}
	fs.MarkHidden("follow")
	cmd.SetFlagErrorFunc(flagError)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), fs, args) }
	return cmd, f
}

func (f *whyFlags) say(format string, args ...any) {
	fmt.Fprintf(f.err, "seine: %s\n", words.Clean(fmt.Sprintf(format, args...)))
}

func (f *whyFlags) run(ctx context.Context, fs *pflag.FlagSet, args []string) error {
	if !slices.Contains([]string{"table", "json", "md"}, f.output) {
		return tool.Usagef("-o %s: why writes table, json, md", f.output)
	}
	limit := why.Severity(-1)
	if f.failOn != "" {
		var err error
		if limit, err = why.ParseSeverity(f.failOn); err != nil {
			return tool.Usagef("--fail-on: %v", err)
		}
	}
	if f.from.follow || f.from.tee != "" {
		return tool.Usagef("why looks once: leave out --follow and --tee")
	}
	if err := f.from.check(fs); err != nil {
		return err
	}
	if f.rules {
		return WriteRules(f.out, f.output)
	}
	if f.duration < time.Second {
		return tool.Usagef("--duration: at least 1s")
	}
	aim := f.aim
	if len(args) > 0 {
		var err error
		if aim, err = parseTarget(args[0], f.from.path == ""); err != nil {
			return err
		}
	}
	var view, before *watch.View
	var err error
	if f.from.path != "" {
		view, before, err = f.past(ctx)
	} else {
		view, err = f.look(ctx)
	}
	if err != nil {
		return err
	}
	o := f.options()
	o.Patient, o.Past = aim.text != "", before
	answer := why.Judge(view, o)
	if err := aim.narrow(answer, view); err != nil {
		return err
	}
	if err := writeAnswer(f.out, f.output, answer); err != nil {
		return err
	}
	f.tell(view, answer, &aim)
	if f.verbose > 1 && before != nil {
		f.services("before, ", before)
	}
	if limit >= 0 && slices.ContainsFunc(answer.Findings, func(n *why.Finding) bool { return n.Severity >= limit }) {
		return exitCode(exitFinding)
	}
	return nil
}

// services prints where the time of each service's turns went.
func (f *whyFlags) services(when string, v *watch.View) {
	for _, s := range v.Services {
		f.say("%s%s: %s, p99 %.1f ms, %s", when, s, words.Count(s.Turn.Count, "turn", "turns"), s.Turn.Quantile(0.99)/1000, shares(s))
	}
}

// options are the options of the rules.
func (f *whyFlags) options() why.Options {
	return why.Options{Slow: float64(f.slow) / float64(time.Millisecond)}
}

// look runs the tools on this machine.
func (f *whyFlags) look(ctx context.Context) (*watch.View, error) {
	attached := startMany()
	defer attached()
	if err := checkPermission(); err != nil {
		return nil, err
	}
	if err := host.Memlock(); err != nil {
		f.say("warning: %v", err)
	}
	engine, err := tool.NewEngine(tool.EngineOptions{})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	model := watch.New(watch.Options{Keep: f.duration + time.Minute})
	asked, err := f.attach(engine, model, whyTools)
	if err != nil {
		return nil, err
	}
	sampler := watch.NewSampler()
	defer sampler.Close()
	model.Asked(watch.Counters, "")
	attached()
	sampler.Sample(model, time.Now())
	f.say("looking for %s", f.duration)
	f.say("ready")
	ctx, stop := context.WithTimeout(ctx, f.duration)
	defer stop()
	stopWhenClosed(ctx, f.out, stop)
	if f.onReady != nil {
		f.onReady(stop)
	}
	deep := &closer{model: watch.New(watch.Options{Keep: f.duration + time.Minute})}
	err = f.watch(ctx, engine, asked, sampler, model, deep)
	view := model.Window(f.duration + time.Minute)
	why.Adopt(view, deep.model.Window(f.duration+time.Minute))
	return view, err
}

// giveUp drops the privileges that are no longer needed. No tool can be attached after it.
func (f *whyFlags) giveUp(engine *tool.Engine) {
	if f.onReady != nil { // a demo's traffic needs them
		return
	}
	if _, err := engine.GiveUp((*tool.Session).All); err != nil {
		f.say("warning: %v", err)
	}
}

// attach attaches the tools.
func (f *whyFlags) attach(engine *tool.Engine, model *watch.Model, lines []string) (asked []*taped, err error) {
	for _, line := range lines {
		t, err := parseTaped(line)
		if err != nil {
			return nil, err
		}
		if t.session, err = engine.Attach(t.run.prepared); err != nil {
			var point *probe.PointError
			if !errors.As(err, &point) && !errors.Is(err, probe.ErrNotSupported) {
				return nil, t.run.denied(err)
			}
			model.Asked(t.run.tool.Name, "this kernel cannot run it: "+oneLine(err))
			continue
		}
		t.run.prepared.Forget()
		model.Asked(t.run.tool.Name, "")
		t.names = enrich.NewNames(t.session)
		asked = append(asked, t)
	}
	if len(asked) == 0 {
		return nil, fmt.Errorf("%w: none of the tools that why runs can run here: 'seine doctor' says why", probe.ErrNotSupported)
	}
	return asked, nil
}

// watch feeds the model until ctx ends, and starts a closer look if services are suspicious.
func (f *whyFlags) watch(ctx context.Context, engine *tool.Engine, asked []*taped, sampler *watch.Sampler, model *watch.Model, deep *closer) error {
	errs := make([]error, len(asked))
	var wait sync.WaitGroup
	for i, t := range asked {
		wait.Go(func() {
			head, err := t.into(model)
			if err != nil {
				errs[i] = err
				return
			}
			_, errs[i] = t.session.Run(ctx, head)
			t.names.Close()
		})
	}
	shown, _ := terminal(f.err)
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	looked := f.duration < deepAfter+deepLeast
	if looked {
		f.giveUp(engine)
	}
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			if shown {
				fmt.Fprintf(f.err, "\r%.0f of %.0f s ", time.Since(began).Seconds(), f.duration.Seconds())
			}
		case <-ctx.Done():
		}
		sampler.Sample(model, time.Now())
		if !looked && time.Since(began) >= deepAfter && ctx.Err() == nil {
			looked = true
			deep.begin(ctx, f, engine, model.Window(f.duration+time.Minute))
			f.giveUp(engine)
		}
	}
	if shown {
		fmt.Fprint(f.err, "\r\033[K")
	}
	wait.Wait()
	deep.wait.Wait()
	return errors.Join(errs...)
}

// into returns the sink that takes the rows of a tool to a model.
func (t *taped) into(model row.Sink) (row.Sink, error) {
	if where := t.run.flags.where; where != "" {
		w, err := row.Where(model, where, t.run.prepared.Schemas)
		if err != nil {
			return nil, err
		}
		model = w
	}
	return row.Name(model, nil, t.names.Namers()), nil
}

// shares says where the time of a service's turns goes.
func shares(s *watch.Service) string {
	if s.Mixed() {
		return "requests and answers overlap"
	}
	var out []string
	for p := range s.Parts {
		if share := s.Parts.Share(watch.Part(p)); share >= 0.01 && watch.Part(p).OfTurn() {
			out = append(out, fmt.Sprintf("%s %.0f %%", watch.Part(p), share*100))
		}
	}
	return strings.Join(out, ", ")
}

// tell prints on stderr what was looked at, and what could not be seen.
func (f *whyFlags) tell(view *watch.View, a *why.Answer, aim *target) {
	n := uint64(len(a.Findings))
	switch {
	case len(a.Judged) == 0:
		f.say("no rule could be judged")
	case n > 0:
		f.say("%s in %.0f s; %s checked", words.Count(n, "finding", "findings"), view.Seconds(), words.Count(uint64(len(a.Judged)), "rule was", "rules were"))
	case aim.text != "" && !aim.seen(view):
		f.say("nothing was seen of %s in %.0f s: it used neither TCP nor DNS, or it has another name", aim.text, view.Seconds())
	case aim.text != "":
		f.say("nothing is wrong with %s: %s checked in %.0f s", aim.text, words.Count(uint64(len(a.Judged)), "rule was", "rules were"), view.Seconds())
	default:
		f.say("nothing is wrong: %s and %s were seen, %s checked in %.0f s", words.Count(uint64(len(view.Services)), "service", "services"),
			words.Count(uint64(len(view.Tallies)), "kind of event", "kinds of events"), words.Count(uint64(len(a.Judged)), "rule was", "rules were"), view.Seconds())
	}
	for _, p := range a.Patient {
		f.say("left out: %s (%s): its answers may wait on purpose, as in a long poll; name it as the target to see the finding", p.About(), p.Title)
	}
	if len(a.Unjudged) > 0 {
		by := map[string][]string{}
		var order []string
		for _, u := range a.Unjudged {
			if by[u.Why] == nil {
				order = append(order, u.Why)
			}
			by[u.Why] = append(by[u.Why], u.Class)
		}
		for _, reason := range order {
			f.say("not judged: %s: %s", strings.Join(by[reason], ", "), reason)
		}
	}
	for _, name := range sortedKeys(view.Sources) {
		s := view.Sources[name]
		if s.Lost > 0 {
			f.say("%s lost %s: there may be more findings", name, words.Count(s.Lost, "event", "events"))
		}
		if s.Nameless > 0 {
			f.say("%s met %s whose process is not known", name, words.Count(s.Nameless, "socket", "sockets"))
		}
		if f.verbose > 0 && s.Why == "" {
			f.say("%s: %s", name, words.Count(s.Rows, "row", "rows"))
		}
	}
	if f.verbose > 1 {
		f.services("", view)
	}
	if b := view.Bounds; b.Evicted+b.Refused > 0 {
		f.say("too much for the model: %s evicted early, %s refused", words.Count(b.Evicted, "entry was", "entries were"), words.Count(b.Refused, "row was", "rows were"))
	}
}
