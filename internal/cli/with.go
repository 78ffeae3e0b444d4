// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/enrich"
	"seine/internal/host"
	remote "seine/internal/names"
	"seine/internal/object"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/words"
)

// mergeWait is how long a row waits for older rows of other tools. It is longer than an
// event may wait in the ring.
const mergeWait = 250 * time.Millisecond

// A with runs several tools in one engine and merges their rows by time:
//
//	          ┌► Session ─► row.Pipe ─┐
//	kernel ─► ├► Session ─► row.Pipe ─┼► row.Merge ─► sink.Timeline ─► table, csv
//	          └► Session ─► row.Pipe ─┘             └────────────────► json
//
// The engine is ordered: events come almost in order of time. The merge does the rest, and puts
// outputs of tools that count between them.
//
// With --from a past takes the place of each session, and row.Replay that of row.Merge.
type with struct {
	flags    *common
	out, err io.Writer
	members  []*member
	timeline *sink.Timeline // nil: rows are not merged into a timeline
	merge    *row.Merge
	replay   *row.Replay // takes the place of merge; nil: rows come from the kernel
	count    row.Count
	remote   *remote.Table // of --names
}

// A member is one of the tools.
type member struct {
	run
	plan    *row.Plan
	uses    map[string]bool // columns that are shown
	pipe    *row.Pipe
	source  *row.ReplaySource // where its rows go; nil: they come from the kernel
	session *tool.Session
	names   *enrich.Names
	report  *tool.Report
}

// once are the flags that apply to the whole run. They stand outside of the quotes,
// not among the flags of one tool.
var once = []string{"output", "duration", "count", "time", "buffer", "stats", "verbose", "no-clear", "rate", "from", "since", "until", "follow", "btf"}

// together are the other flags that may stand outside of the quotes. They apply to each
// tool.
var together = []string{
	"interval", "where", "memory", "pid", "comm", "uid", "cgroup", "container", "netns", "port", "lport", "rport", "addr", "laddr", "raddr",
	"family", "proto", "dev", "ipv4", "ipv6", "names",
}

// withTool declares the common flags. It accepts every filter.
var withTool = &tool.Tool{
	Name: "with", Filters: ^tool.Filter(0),
	Views: func(any) []tool.View { return []tool.View{{Output: tool.Stream[struct{}]{}}} },
}

func withCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "with TOOL TOOL… [common flags]",
		Short: "several tools at once on one timeline",
		Long: `Runs several tools in one process and shows their rows in order of time. Each argument is one tool with
its flags, quoted. Filters outside of the quotes apply to all tools.

A table has the columns that all tools share. A sentence for each row says the rest.
-o json writes each row with all of its own columns.`,
		Example: `  seine with tcplife 'tcpretrans --by cause -i 5'
  seine with tcpconnect tcpdrop gethostlatency --comm nginx -o json
  seine with tcplife tcpretrans --from /var/lib/seine --since 14:02 --until 14:05`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return toolNames(args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.SetFlagErrorFunc(flagError)
	c := declare(cmd.Flags(), withTool, withTool.NewConfig())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(once, f.Name) && !slices.Contains(together, f.Name) })
	cmd.Flags().Lookup("output").Usage = "format: table, json, csv"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		w := &with{flags: c, out: stdout, err: stderr}
		return w.do(cmd, args)
	}
	return cmd
}

func (w *with) say(format string, args ...any) {
	fmt.Fprintf(w.err, "seine: "+format+"\n", args...)
}

func (w *with) do(cmd *cobra.Command, args []string) error {
	attached := startMany()
	defer attached()
	if err := w.flags.check(nil); err != nil {
		return err
	}
	if err := w.flags.btf.use(); err != nil {
		return err
	}
	if w.flags.verbose > 1 {
		object.WithLines()
	}
	for _, arg := range args {
		m, err := w.member(cmd, arg)
		if err != nil {
			return err
		}
		w.members = append(w.members, m)
	}
	named := slices.ContainsFunc(w.members, func(m *member) bool { return m.flags.names })
	if w.flags.names && !named {
		return tool.Usagef("--names: rows of these tools have no remote addresses")
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	if w.flags.from.path != "" {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.wire(func(error) { stop() }); err != nil {
		return tool.Usagef("%v", err)
	}
	if w.replay != nil {
		return w.play(ctx, stop)
	}
	if err := checkPermission(); err != nil {
		return err
	}
	if err := host.Memlock(); err != nil {
		w.say("warning: %v", err)
	}
	if w.flags.stats {
		stop, err := enableStats()
		if err != nil {
			w.say("warning: the kernel does not count the cost of programs: %v", err)
		} else {
			defer stop()
		}
	}
	engine, err := tool.NewEngine(tool.EngineOptions{Buffer: w.flags.buffer, Ordered: true})
	if err != nil {
		return err
	}
	defer engine.Close()
	if named { // before the tools: a name is looked up before it is used
		if w.remote, err = openNames(); err != nil {
			return w.members[0].denied(err)
		}
		defer w.remote.Close()
	}
	if err := w.attach(engine); err != nil {
		return err
	}
	attached()
	fmt.Fprintf(w.err, "Tracing with %s. Ctrl-C ends.\n", words.And(w.names()))
	if w.flags.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.flags.duration)
		defer cancel()
	}
	stopWhenClosed(ctx, w.out, stop)
	if err := w.count.End(row.End{}); err != nil { // prints the head of the table
		return err
	}
	kept, err := engine.GiveUp(w.uses)
	if err != nil {
		w.say("warning: %v", err)
	} else if w.flags.verbose > 0 {
		w.say("capabilities kept: %s", inWords(privileges(kept)))
	}
	w.say("ready")
	giveBack()
	return w.run(ctx, stop)
}

// member prepares one tool from its argument and the flags that apply to all.
func (w *with) member(cmd *cobra.Command, arg string) (*member, error) {
	line, err := words.Fields(arg)
	if err != nil {
		return nil, tool.Usagef("%v", err)
	}
	if len(line) == 0 {
		return nil, tool.Usagef("an argument is empty: each argument is a tool with its flags")
	}
	t, alias := find(line[0])
	if t == nil {
		return nil, unknownTool(line[0])
	}
	m := &member{run: run{tool: t, cfg: t.NewConfig(), out: w.out, err: w.err}}
	own := &cobra.Command{Use: t.Name}
	m.flags = declare(own.Flags(), t, m.cfg)
	if err := own.ParseFlags(line[1:]); err != nil {
		return nil, flagError(own, err)
	}
	for _, name := range once {
		if own.Flags().Changed(name) {
			return nil, tool.Usagef("%s: --%s applies to all tools: write it outside of the quotes", t.Name, name)
		}
	}
	m.flags.from = w.flags.from
	if alias != nil {
		if err := preset(own.Flags(), alias.Flags); err != nil {
			return nil, err
		}
	}
	if err := w.pass(own.Flags(), t); err != nil {
		return nil, err
	}
	if t.Once && m.flags.interval == 0 && w.flags.from.path == "" {
		m.flags.interval = time.Second // the other tools go on
	}
	o, err := m.flags.options(t, m.cfg, own.Flags().Args())
	if err != nil {
		return nil, err
	}
	if err := noFile(t, m.cfg); err != nil {
		return nil, err
	}
	m.flags.output = w.flags.output
	m.args = own.Flags().Args()
	if m.prepared, err = tool.Prepare(t, m.cfg, o); err != nil {
		return nil, err
	}
	if w.flags.names && !own.Flags().Changed("names") { // of those tools that can
		m.flags.names = true
		m.flags.names = m.showNames() == nil
		return m, m.showSubnets()
	}
	return m, errors.Join(m.showNames(), m.showSubnets())
}

// pass sets the flags that apply to all tools, unless the tool sets its own.
func (w *with) pass(fs *pflag.FlagSet, t *tool.Tool) (err error) {
	set := func(name, value string) {
		if e := fs.Set(name, value); e != nil && err == nil {
			err = tool.Usagef("--%s: %v", name, e)
		}
	}
	w.flags.given.Visit(func(f *pflag.Flag) {
		switch {
		case !slices.Contains(together, f.Name) || fs.Changed(f.Name):
		case f.Name == "names": // not every tool can
		case f.Name == "interval" && t.Kind(t.NewConfig()) == tool.Events && !fs.Changed("by"): // it prints each event
		case f.Name == "netns":
			for _, v := range w.flags.filters.netns {
				set(f.Name, v)
			}
		default:
			set(f.Name, f.Value.String())
		}
	})
	if w.flags.stats {
		set("stats", "true")
	}
	return err
}

// wire builds the pipes of all tools, from the sink backwards.
func (w *with) wire(fail func(error)) error {
	if !slices.Contains([]string{"table", "json", "csv"}, w.flags.output) {
		return fmt.Errorf("-o %s: with writes table, json, csv", w.flags.output)
	}
	asIs, past := w.flags.output == "json", w.flags.from.path != ""
	o := sink.Options{Time: w.flags.timeFormat, Start: time.Now(), Columns: map[*row.Schema][]int{}}
	if o.Time == "" {
		o.Time = "micro"
	}
	if o.Netns = w.netns; !past {
		o.Netns = netnsNamer()
	} else if o.Time == "rel" {
		o.Start = w.began()
	}
	if !asIs {
		w.timeline = sink.NewTimeline(o.Netns)
	}
	for _, m := range w.members {
		if err := w.plan(m, asIs); err != nil {
			return fmt.Errorf("%s: %w", m.tool.Name, err)
		}
	}
	for _, m := range w.members {
		if err := m.columnsOf(&o, asIs); err != nil {
			return fmt.Errorf("%s: %w", m.tool.Name, err)
		}
	}
	if !asIs {
		o.Schemas = []*row.Schema{w.timeline.Schema()}
		o.Terminal, o.Height = terminal(w.out)
	}
	out, err := sink.New(w.flags.output, w.out, o)
	if err != nil {
		return err
	}
	w.count.Next = out
	var next row.Sink = row.Limit(&w.count, w.flags.count, false)
	if w.flags.rate > 0 {
		next = &row.Rate{Next: next, PerSecond: w.flags.rate, Every: 5 * time.Second, Now: w.now, Notice: func(held uint64) {
			w.say("%s not shown because of --rate %d", words.Count(held, "row was", "rows were"), w.flags.rate)
		}}
	}
	if !asIs {
		w.timeline.Into(next)
		next = w.timeline
	}
	source := func(*member) row.Sink { return w.merge.Source() }
	if past {
		w.replay = row.NewReplay(next, mergeWait, recordLate)
		source = func(m *member) row.Sink { m.source = w.replay.Source(); return m.source }
	} else {
		w.merge = row.NewMerge(next, mergeWait, fail)
	}
	for _, m := range w.members {
		if m.pipe, err = m.plan.Build(source(m)); err != nil {
			return fmt.Errorf("%s: --%w", m.tool.Name, err)
		}
		maps.Copy(m.pipe.Uses, m.uses)
		if past {
			continue
		}
		if err := m.prepared.Use(m.pipe.Uses); err != nil {
			return err
		}
	}
	return nil
}

// now is the time of the clock that the rows use.
func (w *with) now() time.Time {
	if w.replay != nil {
		return w.replay.Now()
	}
	return time.Now()
}

// plan chooses the stages and the sentences for the rows of one tool.
func (w *with) plan(m *member, asIs bool) (err error) {
	schemas, err := m.view()
	if err != nil {
		return err
	}
	m.showKeys(schemas)
	q := m.query()
	q.Limit = 0
	q.Summary = q.Summary || !asIs && slices.ContainsFunc(schemas, (*row.Schema).HasHist)
	if m.plan, err = q.Plan(m.prepared.Schemas); err != nil {
		return fmt.Errorf("--%w", err)
	}
	m.order(m.plan)
	m.uses = map[string]bool{}
	if asIs {
		return nil
	}
	if m.flags.columns != "" {
		return errors.New("--columns: a timeline has columns of its own: use -o json")
	}
	for _, s := range m.plan.Schemas {
		says := ""
		if !m.plan.Grouped() {
			says = m.says(s.View)
		}
		keys := m.prepared.By()
		if m.flags.names {
			keys = append(slices.Clone(keys), remote.Column)
		}
		uses, err := w.timeline.Add(s, says, keys)
		if err != nil {
			return err
		}
		for _, id := range uses {
			m.uses[id] = true
		}
	}
	return nil
}

// says returns the sentence of a view.
func (m *member) says(view string) string {
	for _, v := range m.prepared.Views {
		if v.Name == view {
			return v.Says
		}
	}
	return ""
}

// columnsOf chooses the columns of rows that are not merged into a timeline.
func (m *member) columnsOf(o *sink.Options, asIs bool) error {
	if !asIs {
		return nil
	}
	columns, err := m.columns(m.plan)
	if err != nil {
		return err
	}
	maps.Copy(o.Columns, columns)
	o.Schemas = append(o.Schemas, m.plan.Schemas...)
	if m.plan.Grouped() {
		return nil
	}
	return m.shows(&row.Pipe{Uses: m.uses}, m.plan.Schemas, columns)
}

// attach attaches all tools, in the order in which they were named.
func (w *with) attach(e *tool.Engine) (err error) {
	for _, m := range w.members {
		began := time.Now()
		if m.session, err = e.Attach(m.prepared); err != nil {
			return m.denied(err)
		}
		m.prepared.Forget() // the kernel has its programs
		for _, n := range m.session.Notes {
			w.say("%s: %s", m.tool.Name, n)
		}
		if w.flags.verbose > 0 {
			w.say("%s:", m.tool.Name)
			explain(w.err, m.session.Choices, time.Since(began), w.flags.verbose > 1)
		}
		m.remote = w.remote
		m.names = enrich.NewNames(m.session)
		m.session.OnLoss(func(rep *tool.Report) { w.say("%s: lost so far: %s", m.tool.Name, strings.Join(rep.Warnings(), "; ")) })
	}
	return nil
}

// run runs all tools until ctx or one of them ends.
func (w *with) run(ctx context.Context, stop func()) error {
	began := time.Now()
	errs := make([]error, len(w.members))
	var wg sync.WaitGroup
	for i, m := range w.members {
		wg.Go(func() {
			defer stop()
			m.report, errs[i] = m.session.Run(ctx, m.pipe.Head(m.live(m.names)))
		})
	}
	wg.Wait()
	err := errors.Join(append(errs, w.merge.Close())...)
	w.summary(time.Since(began))
	for _, m := range w.members {
		m.names.Close()
	}
	return err
}

// uses returns the columns of a session's rows that are shown.
func (w *with) uses(s *tool.Session) map[string]bool {
	for _, m := range w.members {
		if m.session == s {
			return m.pipe.Uses
		}
	}
	return nil
}

// names returns the names of the tools.
func (w *with) names() (out []string) {
	for _, m := range w.members {
		out = append(out, m.tool.Name)
	}
	return out
}

// summary prints on stderr how many rows there were and how many events each tool lost.
func (w *with) summary(took time.Duration) {
	var lost uint64
	for _, m := range w.members {
		if m.report != nil {
			lost += m.report.Lost()
		}
	}
	w.say("%s, %s lost, %.1fs", words.Count(w.count.Rows, "row", "rows"), words.Thousands(lost), took.Seconds())
	for _, m := range w.members {
		if m.report == nil {
			continue
		}
		for _, warning := range slices.Concat(m.report.Warnings(), m.names.Hints()) {
			w.say("%s: %s", m.tool.Name, warning)
		}
		if w.flags.stats {
			w.say("%s:", m.tool.Name)
			m.cost(m.report)
		}
	}
	if warning := namesLost(w.remote); warning != "" {
		w.say("%s", warning)
	}
	if o := w.owners(); o != nil {
		w.say("owners of sockets, for %s: maps take %.1f MiB", words.Count(uint64(o.Tools), "tool", "tools"), float64(o.Memory)/mib)
		costOfParts(w.err, o.Programs, o.Maps)
	}
}

// owners is what the table of owners took when the first of the tools that share it ended.
func (w *with) owners() (all *tool.OwnersReport) {
	for _, m := range w.members {
		if m.report != nil && m.report.Owners != nil && (all == nil || m.report.Owners.Tools > all.Tools) {
			all = m.report.Owners
		}
	}
	return all
}
