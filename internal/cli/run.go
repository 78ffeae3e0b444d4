// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/enrich"
	"seine/internal/host"
	remote "seine/internal/names"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/words"
	"seine/tools/dns"
	"seine/tools/sni"
)

// A run is one tool over one pipe:
//
//	kernel ─► Session ─► row.Pipe ─► sink
//	          decode     names       table json csv …
//	                     row.Query
//
// Each arrow is a row.Sink. A stage never calls the one before it. It returns an
// error, or the context is cancelled.
type run struct {
	tool     *tool.Tool
	cfg      any
	flags    *common
	args     []string
	out      io.Writer
	err      io.Writer
	quiet    bool // no banner, no summary
	prepared *tool.Prepared
	remote   *remote.Table                 // of --names
	onReady  func(stop context.CancelFunc) // called when everything is attached
	past     *past                         // rows come from it; nil: from the kernel
	start    time.Time                     // --time rel counts from here
	above    func(time.Time) string        // gives the line above outputs; nil: the view gives it
}

// StartGC is how far the heap may grow, in percent, until everything is attached.
// Starting makes much garbage once. Collecting it took an eighth of the start's time.
const StartGC = 400

// Where several tools are attached one after the other, garbage of ten would take more memory than
// all the rest. A limit of 24 MB takes twice the processor time, this one hardly any.
const (
	startManyGC    = 50
	startManyBytes = 32 << 20
)

// startMany keeps the memory small until it is ended: when all tools are attached, or when that failed.
func startMany() (end func()) {
	percent := debug.SetGCPercent(startManyGC)
	limit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(limit, startManyBytes))
	return sync.OnceFunc(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// longInterval is an interval that a user may have meant as something else.
const longInterval = 100 * time.Second

func (r *run) do(ctx context.Context) error {
	usual := debug.SetGCPercent(StartGC)
	o, err := r.flags.options(r.tool, r.cfg, r.args)
	if err != nil {
		return err
	}
	on, err := r.waitsFor(&o)
	if err != nil {
		return err
	}
	if o.Ahead = aheadIn(ctx); o.Ahead == nil && r.flags.columns != "help" && r.flags.from.path == "" {
		if o.Ahead, err = tool.Begin(r.tool); err != nil {
			return err
		}
	}
	if r.prepared, err = tool.Prepare(r.tool, r.cfg, o); err != nil {
		return err
	}
	r.namesOnTerminal()
	if err := errors.Join(r.showNames(), r.showSubnets()); err != nil {
		return err
	}
	schemas, err := r.view()
	if err != nil {
		return err
	}
	if r.flags.columns == "help" {
		return sink.HelpColumns(r.out, schemas...)
	}
	if r.flags.from.path != "" {
		if r.past, err = r.openPast(); err != nil {
			return err
		}
	}
	closeFile, err := r.openFile()
	if err != nil {
		return err
	}
	defer closeFile()
	pipe, err := r.pipe(schemas)
	if err != nil {
		return tool.Usagef("%v", err)
	}
	if r.past != nil {
		return r.past.play(ctx, pipe)
	}
	if err := r.prepared.Use(pipe.Uses); err != nil {
		return err
	}
	if err := checkPermission(); err != nil {
		return err
	}
	if err := host.Memlock(); err != nil {
		r.say("warning: %v", err)
	}
	if o.Stats {
		stop, err := enableStats()
		if err != nil {
			r.say("warning: the kernel does not count the cost of programs: %v", err)
		} else {
			defer stop()
		}
	}
	began := time.Now()
	if r.flags.names { // before the tool: a name is looked up before it is used
		r.remote, err = openNames()
		switch {
		case err == nil:
			defer r.remote.Close()
		case r.flags.given.Changed("names"):
			return r.denied(err)
		default:
			r.say("addresses have no names: %v", err)
		}
	}
	session, err := on.attach(r.prepared)
	debug.SetGCPercent(usual)
	host.ReleaseCode() // that has loaded the programs
	if err != nil {
		var point *probe.PointError
		if r.flags.verbose > 1 && errors.As(err, &point) {
			verifierLogs(r.err, point.Choice)
		}
		return r.denied(err)
	}
	if !r.quiet {
		fmt.Fprintln(r.err, r.tool.Banner, "Ctrl-C ends.")
	}
	if r.onReady == nil { // a demo makes what is missing
		for _, n := range session.Notes {
			r.say("%s", n)
		}
	}
	names := enrich.NewNames(session)
	defer names.Close()
	head := pipe.Head(r.live(names))
	if r.flags.from.tee != "" {
		tee, err := r.tee(o, pipe, names)
		if err != nil {
			session.Close()
			return err
		}
		defer tee.close()
		head = tee.head
	}
	if r.flags.verbose > 0 {
		explain(r.err, session.Choices, time.Since(began), r.flags.verbose > 1)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopWhenClosed(ctx, r.out, stop)
	if err := head.End(row.End{}); err != nil { // prints the head of the table
		return err
	}
	if r.onReady == nil && r.flags.from.tee == "" { // a demo's traffic needs privileges
		kept, err := session.Engine().GiveUp(func(s *tool.Session) map[string]bool {
			if s == session {
				return pipe.Uses
			}
			return on.uses()
		})
		if err != nil {
			r.say("warning: %v", err)
		} else if r.flags.verbose > 0 {
			r.say("capabilities kept: %s", inWords(privileges(kept)))
		}
	}
	if len(r.args) > 0 && o.Interval >= longInterval {
		if ours := bccArg(r.tool.Name, r.args[0]); ours != "" {
			r.say("the first output comes after %v; the argument of libbpf-tools' %s is %s here", o.Interval, r.tool.Name, ours)
		}
	}
	r.say("ready")
	giveBack()
	if r.onReady != nil {
		r.onReady(stop)
	}
	if !r.quiet {
		session.OnLoss(func(rep *tool.Report) { r.say("lost so far: %s", strings.Join(rep.Warnings(), "; ")) })
	}
	report, err := on.follow(ctx, session, head)
	if report != nil && !r.quiet {
		r.summary(report, pipe, names)
	}
	return err
}

// openNames starts to learn the names of addresses.
func openNames() (*remote.Table, error) { return remote.Open(dns.Names, sni.Names) }

// namesOnTerminal sets --names where that is the default and rows can have names.
func (r *run) namesOnTerminal() {
	f := r.flags
	is, _ := terminal(r.out)
	if is && r.tool.Names && !f.given.Changed("names") && f.output == "table" && f.columns == "" && f.by == "" && f.from.path == "" {
		f.names = r.canName() == nil
	}
}

// showNames adds the column of --names.
func (r *run) showNames() error {
	if !r.flags.names {
		return nil
	}
	if err := r.canName(); err != nil {
		return err
	}
	for _, s := range r.prepared.Schemas {
		remote.Show(s)
	}
	return nil
}

// canName refuses --names for rows without remote addresses.
func (r *run) canName() error {
	if slices.Contains(r.prepared.Keys(), "raddr") && !slices.Contains(r.prepared.By(), "raddr") {
		return tool.Usagef("--names: %s does not count by remote address here: add raddr to --by", r.tool.Name)
	}
	if !slices.ContainsFunc(r.prepared.Schemas, remote.Can) {
		return tool.Usagef("--names: rows of %s have no remote addresses", r.tool.Name)
	}
	return nil
}

// denied names the missing capabilities if they are the reason for err. With all
// of them held, EPERM means that a way does not work here.
func (r *run) denied(err error) error {
	if !errors.Is(err, os.ErrPermission) || host.HasCap(host.CapSysAdmin) {
		return err
	}
	must, _ := r.prepared.Needs()
	missing := slices.DeleteFunc(must, func(p tool.Privilege) bool { return host.HasCap(p.Cap) })
	if len(missing) == 0 {
		return err
	}
	return errPermission(fmt.Sprintf("%s also needs %s: run as root or with it", r.tool.Name, inWords(privileges(missing))))
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.err, "seine: "+format+"\n", args...)
}

// view returns the schemas to show: all, or the one that --view names.
func (r *run) view() ([]*row.Schema, error) {
	all := r.prepared.Schemas
	if r.flags.view == "" {
		return all, nil
	}
	var names []string
	for _, s := range all {
		if s.View == r.flags.view {
			return []*row.Schema{s}, nil
		}
		names = append(names, s.View)
	}
	if len(all) == 1 {
		return nil, tool.Usagef("--view: %s has only one kind of rows", r.tool.Name)
	}
	return nil, tool.Usagef("--view %s: one of %s", r.flags.view, strings.Join(names, ", "))
}

// query turns the flags into a row.Query.
func (r *run) query() row.Query {
	f := r.flags
	view := &r.prepared.Views[0]
	q := row.Query{
		View: f.view, Summary: f.summary, Top: f.top, Rate: f.rate,
		Held: func(rows uint64) {
			r.say("%s not shown because of --rate %d", words.Count(rows, "row was", "rows were"), f.rate)
		},
		Limit: f.count, Outputs: f.by != "" || r.tool.Kind(r.cfg) != tool.Events,
	}
	if r.past != nil {
		q.Now = func() time.Time { return r.past.now }
	}
	// Counting tools group in the kernel.
	if f.by != "" && r.tool.Kind(r.cfg) != tool.Counting && len(r.prepared.Keys()) == 0 {
		q.By = strings.Split(f.by, ",")
	}
	if by := r.prepared.By(); view.Merge || len(r.flags.subnets) > 0 && len(r.prepared.Keys()) > 0 || slices.Contains(by, "kstack") || slices.Contains(by, "ustack") && !slices.Contains(by, "pid") {
		// Stacks of several processes may be equal once they have names, and kernel
		// stacks may be equal once the frames of tracing are left out.
		q.Fold = append([]string{}, by...)
	}
	for _, where := range []string{f.where, view.Where} {
		if where != "" {
			q.Where = append(q.Where, where)
		}
	}
	return q
}

// pipe builds the stages and the sink for rows of these schemas: all, or those of --view.
func (r *run) pipe(schemas []*row.Schema) (*row.Pipe, error) {
	f := r.flags
	q := r.query()
	if q.By != nil && slices.Contains([]string{"dot", "svg", "png"}, f.output) && slices.Contains(r.tool.Formats, f.output) {
		return nil, fmt.Errorf("-o %s draws rows as they come: leave out --by", f.output)
	}
	if q.By != nil && f.output == pcapngFormat {
		return nil, fmt.Errorf("-o %s writes packets as they come: leave out --by", f.output)
	}
	if q.Limit > 0 && q.Outputs && f.interval == 0 && f.duration == 0 && r.onReady == nil { // a demo ends by itself
		return nil, errors.New("--count: there is only one output, at the end: give an interval, or -d")
	}
	r.showKeys(schemas)
	// With an interval the time stands above the output.
	withTime := f.output == "table" && f.timeFormat != "" && f.timeFormat != "none" && f.interval == 0
	if withTime {
		for _, s := range schemas {
			s.ShowTime()
		}
	}
	plan, err := q.Plan(r.prepared.Schemas)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	if withTime && plan.Grouped() {
		plan.Schemas[0].ShowTime()
	}
	if err := r.grouped(schemas, plan.Schemas); err != nil {
		return nil, err
	}
	columns, err := r.columns(plan)
	if err != nil {
		return nil, err
	}
	r.order(plan)
	o := r.sinkOptions(plan.Schemas, columns, r.tool.Kind(r.cfg))
	if plan.Grouped() {
		o.Book = nil // it is for single rows
	}
	out, err := sink.New(f.output, r.out, o)
	if err != nil {
		return nil, err
	}
	p, err := plan.Build(out)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	if plan.Grouped() {
		return p, nil // names were filled in before grouping
	}
	return p, r.shows(p, plan.Schemas, columns)
}

// columns chooses the columns to show of each schema, and drops schemas without any.
func (r *run) columns(plan *row.Plan) (map[*row.Schema][]int, error) {
	f := r.flags
	if !slices.Contains(formats(r.tool), f.output) {
		if near := row.Nearest(f.output, formats(r.tool)); near != "" {
			return nil, fmt.Errorf("-o %s: did you mean %s?", f.output, near)
		}
		return nil, fmt.Errorf("-o %s: %s writes %s", f.output, r.tool.Name, strings.Join(formats(r.tool), ", "))
	}
	columns, err := sink.Choose(f.output, plan.Schemas, f.columns)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	err = plan.Drop(func(s *row.Schema) bool {
		cols, chosen := columns[s]
		return chosen && len(cols) == 0
	})
	if err != nil {
		return nil, fmt.Errorf("--columns %s: no view has all of these: choose with --view", f.columns)
	}
	return columns, nil
}

// shows adds the columns that the sink shows to those that need their names.
func (r *run) shows(p *row.Pipe, schemas []*row.Schema, columns map[*row.Schema][]int) (err error) {
	for _, s := range schemas {
		cols, ok := columns[s]
		if !ok { // no column of this view was chosen
			if cols, err = sink.Columns(r.flags.output, s, ""); err != nil {
				return err
			}
		}
		for _, i := range cols {
			p.Uses[s.Columns[i].ID] = true
		}
	}
	if g := r.tool.Graph; g != nil && r.flags.output == "dot" {
		for _, id := range slices.Concat(g.From, g.To, g.Sum) {
			p.Uses[id] = true
		}
	}
	return nil
}

// order sets the column that sorts outputs: --sort, or the view's own.
func (r *run) order(plan *row.Plan) {
	column, asc := strings.CutSuffix(r.flags.sort, ",asc")
	if plan.Sort, plan.Ascending = column, asc; column != "" {
		return
	}
	if r.flags.by != "" && r.tool.Kind(r.cfg) == tool.Events {
		plan.Sort = "count"
		return
	}
	plan.Sort = r.prepared.Views[0].Sort
	for _, v := range r.prepared.Views {
		if v.Name == r.flags.view {
			plan.Sort = v.Sort
		}
	}
	if plan.Sort != "" && !slices.ContainsFunc(plan.Schemas, func(s *row.Schema) bool { return s.Index(plan.Sort) >= 0 }) {
		plan.Sort = "count" // of the summed histogram
	}
}

// grouped refuses columns that rows no longer have after --by has grouped them.
func (r *run) grouped(schemas, shown []*row.Schema) error {
	if r.flags.by == "" {
		return nil
	}
	for w := range strings.SplitSeq(r.flags.columns, ",") {
		id := strings.TrimLeft(strings.TrimSpace(w), "+-")
		known := func(s *row.Schema) bool { return s.Index(id) >= 0 }
		filled := func(s *row.Schema) bool { return known(s) && !s.Columns[s.Index(id)].Idle }
		if slices.ContainsFunc(schemas, known) && !slices.ContainsFunc(shown, filled) {
			return fmt.Errorf("--columns: %s is neither a column of --by %s nor a sum", id, r.flags.by)
		}
	}
	return nil
}

// showKeys adds the key fields that --by asked for to a counting tool's table
// and takes out those that it did not.
func (r *run) showKeys(schemas []*row.Schema) {
	keys := r.prepared.Keys()
	if len(keys) == 0 {
		return
	}
	by := r.prepared.By()
	for _, s := range schemas {
		if s != r.prepared.Schemas[0] {
			continue // only the first view has keys
		}
		var show []int
		for _, id := range by {
			if i := s.Index(id); i >= 0 {
				show = append(show, i)
			}
		}
		for _, i := range s.Show {
			if !slices.Contains(keys, s.Columns[i].ID) {
				show = append(show, i)
			}
		}
		s.Show = show
		for i := range s.Columns {
			s.Columns[i].Idle = slices.Contains(keys, s.Columns[i].ID) && !slices.Contains(by, s.Columns[i].ID)
		}
	}
}

func (r *run) sinkOptions(schemas []*row.Schema, columns map[*row.Schema][]int, kind tool.Kind) sink.Options {
	r.start = time.Now()
	o := sink.Options{
		Schemas: schemas, Columns: columns, Time: r.flags.timeFormat, Start: r.start,
		Netns: netnsNamer(), Interval: r.flags.interval > 0, Above: r.prepared.Views[0].Above, Book: r.prepared.Views[0].Book,
	}
	if o.Time == "" {
		o.Time = r.prepared.Views[0].Time
	}
	if g := r.tool.Graph; g != nil {
		o.Graph = sink.Graph{From: g.From, To: g.To, Sum: g.Sum, Noun: g.Unit}
	}
	if r.tool.Plot != nil {
		o.Plot = sink.Plot(r.tool.Plot(r.cfg))
	}
	if o.Terminal, o.Height = terminal(r.out); o.Terminal {
		o.Clear = kind == tool.Interval && r.flags.interval > 0 && !r.flags.noClear
	}
	if above := o.Above; above != nil {
		o.Above = func(t time.Time) string {
			if r.above != nil {
				return r.above(t)
			}
			return above(t)
		}
	}
	if r.past != nil {
		r.past.options(&o)
	}
	return o
}

// terminal reports whether w is a terminal, and how many lines it has.
func terminal(w io.Writer) (is bool, height int) {
	if f, ok := w.(*os.File); ok {
		if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			return true, int(ws.Row)
		}
	}
	return false, 0
}

// netnsNamer reads the names of namespaces before privileges are dropped. It reads
// them again for an unknown namespace, at most once a second.
func netnsNamer() func(uint64) string {
	names, looked := host.NetnsNames(), time.Now()
	return func(inode uint64) string {
		name, ok := names[uint32(inode)]
		if !ok && time.Since(looked) > time.Second {
			if again := host.NetnsNames(); len(again) > 0 { // none: privileges were dropped
				names = again
			}
			looked = time.Now()
			name = names[uint32(inode)]
		}
		return name
	}
}

// stopWhenClosed ends the run when the reader of our output is gone. The write of
// the next row would end it too, but that may take long.
func stopWhenClosed(ctx context.Context, out io.Writer, stop func()) {
	f, ok := out.(*os.File)
	if !ok {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return
	}
	go func() {
		for ctx.Err() == nil {
			fds := []unix.PollFd{{Fd: int32(f.Fd())}}
			unix.Poll(fds, 200)
			if fds[0].Revents&unix.POLLERR != 0 {
				stop()
				return
			}
		}
	}()
}
