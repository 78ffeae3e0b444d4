// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"seine/internal/enrich"
	"seine/internal/host"
	"seine/internal/journal"
	"seine/internal/probe"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/words"
)

// recorded are the tools that 'seine record' runs unless tools are named. They answer most
// questions about the past at little cost. Open connections are in the intervals of flows.
// tcplife says how a session ended, which flows does not.
var recorded = []string{
	"flows --closed", "flows -i 10", "flows --view connections -i 60", "tcplife", "tcpretrans", "skbdrop", "soconnect --where 'errno != nil'", "gethostlatency", "tcpsynbl", "udplife",
	watch.Counters,
}

// recordEvery is the interval of counting tools while they are recorded.
const recordEvery = 10 * time.Second

// recordFlags are the flags of the command record.
type recordFlags struct {
	dir, parquet  string
	budget        uint64
	keep          time.Duration
	duration      time.Duration
	list, cut     string
	from          fromFlags
	output        string
	verbose       int
	counters      bool // record the kernel's counters too
	stdout, stder io.Writer
}

func recordCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &recordFlags{budget: 1 << 30, stdout: stdout, stder: stderr}
	cmd := &cobra.Command{
		Use:   "record [TOOL…] --dir DIR",
		Short: "record the rows of tools, and read them later with --from",
		Long: "Writes every row of the tools into a directory. If the budget is full, the oldest rows are deleted first. Afterwards every tool reads the recording " +
			"in place of the kernel with --from DIR [--since T] [--until T]. Each argument is one tool with its flags, quoted. The word counters stands for the kernel's counters, which " +
			"why and top read. Without arguments: " + strings.Join(recorded, ", ") + ".",
		Example: "  seine record --dir /var/lib/seine\n  seine record tcplife 'tcpretrans --port 443' --dir /tmp/rec --budget 200M\n  seine record --list /tmp/rec\n" +
			"  seine record --cut ticket.seine --from /tmp/rec --since 14:00 --until 14:10\n  seine tcpretrans --from /tmp/rec --since '10m ago' --by raddr",
		Args: cobra.ArbitraryArgs,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.dir, "dir", "", "directory to record into")
	fs.Var(&sizeFlag{&f.budget}, "budget", "bytes that the recording may take, its Parquet files included (default 1G)")
	fs.Lookup("budget").DefValue = "" // the text has it
	fs.Var(&longFlag{&f.keep}, "keep", "delete rows that are older: 12h, 7d")
	fs.StringVar(&f.parquet, "parquet", "", "also write each segment into this directory, as Parquet: tool=T/date=D/*.parquet")
	fs.VarP(&durationFlag{&f.duration, true}, "duration", "d", "stop after this long: 10s, 2m")
	fs.StringVar(&f.list, "list", "", "list what a recording holds")
	fs.StringVar(&f.cut, "cut", "", "write the part of a recording that --from, --since and --until name into one file")
	fs.StringVarP(&f.output, "output", "o", "table", "format of --list: table, json, csv")
	fs.CountVarP(&f.verbose, "verbose", "v", "explain what is attached and why")
	new(btfFlag).of(cmd)
	f.from.declare(fs)
	fs.MarkHidden("follow")
	cmd.SetFlagErrorFunc(flagError)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), fs, args) }
	return cmd
}

func (f *recordFlags) run(ctx context.Context, fs *pflag.FlagSet, args []string) error {
	switch {
	case f.list != "" && len(args) > 0, f.cut != "" && len(args) > 0:
		return tool.Usagef("--list and --cut take no tools: they apply to the whole recording")
	case f.list != "":
		return listRecording(f.stdout, f.list, f.output)
	case f.cut != "":
		return f.cutOut(ctx)
	case f.from.path != "":
		return tool.Usagef("record writes rows: --from is for tools, and for --cut FILE")
	case f.dir == "":
		return tool.Usagef("record needs --dir DIR, a directory to write into")
	case f.budget < journal.MinBudget:
		return tool.Usagef("--budget: at least 1M")
	}
	if len(args) == 0 {
		args = recorded
	}
	var all []*taped
	f.counters = slices.Contains(args, watch.Counters)
	for _, a := range args {
		if a == watch.Counters {
			continue
		}
		t, err := parseTaped(a)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(o *taped) bool { return o.src.Name == t.src.Name }) {
			return tool.Usagef("%s is named twice", t.src.Name)
		}
		all = append(all, t)
	}
	return f.record(ctx, all, len(args) == len(recorded) && &args[0] == &recorded[0])
}

// A taped is a tool whose rows are recorded.
type taped struct {
	run     *run
	opts    tool.Options
	src     record.Source
	session *tool.Session
	names   *enrich.Names
	stream  *record.Stream
	rows    row.Count
}

// notRecorded are the flags that apply to reading.
var notRecorded = []string{"output", "columns", "count", "no-clear", "sort", "top", "rate", "summary", "time", "duration", "stats", "verbose", "from", "since", "until", "follow"}

// parseTaped reads one argument: a tool with its flags.
func parseTaped(arg string) (*taped, error) {
	split, err := words.Fields(arg)
	if err != nil || len(split) == 0 {
		return nil, tool.Usagef("%q is not a tool with its flags: %v", arg, err)
	}
	t, alias := find(split[0])
	if t == nil {
		return nil, unknownTool(split[0])
	}
	cfg := t.NewConfig()
	fs := pflag.NewFlagSet(t.Name, pflag.ContinueOnError)
	c := declare(fs, t, cfg)
	if err := fs.Parse(split[1:]); err != nil {
		return nil, tool.Usagef("%s: %v", t.Name, err)
	}
	if alias != nil {
		if err := preset(fs, alias.Flags); err != nil {
			return nil, err
		}
	}
	for _, name := range notRecorded {
		if g := fs.Lookup(name); g != nil && g.Changed && config(cfg)[name] == "" {
			return nil, tool.Usagef("%s: --%s applies to reading: give it with --from", t.Name, name)
		}
	}
	kind := t.Kind(cfg)
	if kind == tool.Events && c.by != "" {
		return nil, tool.Usagef("%s: rows are recorded as they come: give --by with --from", t.Name)
	}
	if kind != tool.Events && c.interval == 0 && len(fs.Args()) == 0 {
		c.interval = recordEvery
	}
	if strings.Contains(c.by, "/") || c.networks != "" {
		return nil, tool.Usagef("%s: addresses are recorded whole: group them by network with --from", t.Name)
	}
	r := &run{tool: t, cfg: cfg, flags: c, args: fs.Args()}
	o, err := c.options(t, cfg, fs.Args())
	if err != nil {
		return nil, err
	}
	if err := noFile(t, cfg); err != nil {
		return nil, err
	}
	if r.prepared, err = tool.Prepare(t, cfg, o); err != nil {
		return nil, err
	}
	if err := r.showNames(); err != nil {
		return nil, err
	}
	r.showKeys(r.prepared.Schemas)
	out := &taped{run: r, opts: o}
	out.src = r.source(fs, o)
	return out, nil
}

// source describes the run for readers of the recording.
func (r *run) source(fs *pflag.FlagSet, o tool.Options) record.Source {
	src := record.Source{Name: r.tool.Name, Tool: r.tool.Name, Config: config(r.cfg), By: r.prepared.By(), Interval: o.Interval}
	filters := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(filterFlags).declare(filters, r.tool, map[string]string{})
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(notRecorded, f.Name) && src.Config[f.Name] == "" {
			return
		}
		given := "--" + f.Name
		if f.Value.Type() != "bool" {
			given += "=" + strings.Trim(f.Value.String(), "[]")
		}
		all := f.Name == "view" && r.flags.view == ""
		if all {
			given += tool.AllViews
		}
		src.Flags = append(src.Flags, given)
		if all {
			return // all views: not a filter
		}
		if filters.Lookup(f.Name) != nil || f.Name == "where" || f.Name == "view" {
			src.Filters = append(src.Filters, given)
		}
	})
	slices.Sort(src.Flags)
	for _, given := range src.Flags {
		src.Name += " " + given
	}
	return src
}

// machine describes this machine.
func machine() record.Machine {
	m := record.Machine{Arch: runtime.GOARCH, Version: version()}
	m.Host, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.Boot = strings.TrimSpace(string(b))
	}
	return m
}

// userName is the name of a user id, "" if it has none.
func userName(uid uint64) string {
	if u, err := user.LookupId(strconv.FormatUint(uid, 10)); err == nil {
		return u.Username
	}
	return ""
}

// openRecording opens a recording, and its Parquet files unless that directory is "". Call end to close both. Segments
// that cannot be written as Parquet are reported to fail.
func openRecording(dir, parquet string, o journal.Options, fail func(error)) (rec *record.Recorder, end func(), err error) {
	var data *dataset
	if parquet != "" {
		if data, err = openDataset(parquet); err != nil {
			return nil, nil, err
		}
		data.fail = fail
		o.Others, o.Free, o.Closed = data.others, data.free, data.closed
	}
	rec, err = record.Open(dir, record.Options{Options: o, Machine: machine(), Netns: netnsNamer(), User: userName})
	if err != nil {
		return nil, nil, err
	}
	if data == nil {
		return rec, func() { rec.Close() }, nil
	}
	data.room = rec.MakeRoom
	stop := data.start()
	return rec, func() { // the last segment is closed, and its Parquet files written
		rec.Close()
		stop()
	}, nil
}

func (f *recordFlags) say(format string, args ...any) {
	fmt.Fprintf(f.stder, "seine: "+format+"\n", args...)
}

// record runs the tools until they are stopped. If optional, it leaves out tools that this
// kernel cannot run.
func (f *recordFlags) record(ctx context.Context, all []*taped, optional bool) error {
	if err := checkPermission(); err != nil {
		return err
	}
	if err := host.Memlock(); err != nil {
		f.say("warning: %v", err)
	}
	o := journal.Options{Budget: int64(f.budget), Keep: f.keep, Streams: len(all)}
	if f.counters {
		o.Streams++
	}
	rec, end, err := openRecording(f.dir, f.parquet, o, func(err error) { f.say("warning: --parquet: %v", err) })
	if err != nil {
		return err
	}
	defer end()
	engine, err := tool.NewEngine(tool.EngineOptions{})
	if err != nil {
		return err
	}
	defer engine.Close()
	if slices.ContainsFunc(all, func(t *taped) bool { return t.run.flags.names }) {
		table, err := openNames() // before the tools: a name is looked up before it is used
		if err != nil {
			return all[0].run.denied(err)
		}
		defer table.Close()
		for _, t := range all {
			t.run.remote = table
		}
	}
	var running []*taped
	defer func() {
		for _, t := range running {
			t.names.Close()
		}
	}()
	for _, t := range all {
		if err := t.attach(engine, rec); err != nil {
			var point *probe.PointError
			if optional && (errors.As(err, &point) || errors.Is(err, probe.ErrNotSupported)) {
				f.say("%s is left out: %s", t.run.tool.Name, oneLine(err))
				continue
			}
			return t.run.denied(err)
		}
		running = append(running, t)
		if f.verbose > 0 {
			explain(f.stder, t.session.Choices, 0, false)
		}
	}
	if len(running) == 0 && !f.counters {
		return tool.Usagef("no tool to record")
	}
	names := streamNames(running)
	var counters *counting
	if f.counters {
		counters = newCounting(rec)
		defer counters.close()
		names = append(names, watch.Counters)
	}
	if err := f.giveUp(running); err != nil {
		f.say("warning: %v", err)
	}
	f.say("recording %s into %s, %s at most. Ctrl-C ends.", strings.Join(names, ", "), f.dir, size(f.budget))
	began := time.Now()
	for _, t := range running {
		t.stream.Start(began)
	}
	f.say("ready")
	giveBack()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	errs := make([]error, len(running))
	reports := make([]*tool.Report, len(running))
	for i, t := range running {
		wait.Go(func() {
			if reports[i], errs[i] = t.session.Run(ctx, t.head()); errs[i] != nil {
				stop() // one that fails ends all, so that the user notices
			}
		})
	}
	var counted error
	if counters != nil {
		wait.Go(func() {
			if counted = counters.run(ctx, began); counted != nil {
				stop()
			}
		})
	}
	wait.Wait()
	if counters != nil {
		f.countingSummary(counters)
	}
	for i, t := range running {
		f.summary(t, reports[i], rec)
	}
	if n := rec.Lost(); n > 0 {
		f.say("%s not be written: the disk is full, or the budget is too small", words.Count(n, "row could", "rows could"))
	}
	return errors.Join(append(errs, counted)...)
}

func streamNames(all []*taped) (out []string) {
	for _, t := range all {
		out = append(out, t.src.Name)
	}
	return out
}

// size formats a number of bytes.
func size(n uint64) string {
	for _, u := range []struct {
		name string
		by   uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.by {
			return strconv.FormatFloat(float64(n)/float64(u.by), 'g', 4, 64) + " " + u.name
		}
	}
	return words.Count(n, "byte", "bytes")
}

// attach attaches the tool and opens its stream.
func (t *taped) attach(engine *tool.Engine, rec *record.Recorder) (err error) {
	if t.session, err = engine.Attach(t.run.prepared); err != nil {
		return err
	}
	t.names = enrich.NewNames(t.session)
	t.stream = rec.Stream(t.src, t.run.prepared.Schemas, t.run.prepared.Views[0].Above)
	return nil
}

// head returns the sink of the session's rows. It fills in all names, because processes and
// containers may be gone when the rows are read.
func (t *taped) head() row.Sink {
	t.rows.Next = t.stream
	var next row.Sink = &t.rows
	if where := t.run.flags.where; where != "" {
		if w, err := row.Where(next, where, t.run.prepared.Schemas); err == nil {
			next = w
		}
	}
	if view := t.run.flags.view; view != "" {
		next = row.Only(next, slices.DeleteFunc(slices.Clone(t.run.prepared.Schemas), func(s *row.Schema) bool { return s.View != view })...)
	}
	return row.Name(next, nil, t.run.namers(t.names))
}

// giveUp drops all privileges but those that the tools need, and writing into the directory.
func (f *recordFlags) giveUp(all []*taped) error {
	var keeps []host.Capability
	for _, t := range all {
		for _, p := range t.session.Keeps(t.session.All()) {
			keeps = append(keeps, p.Cap)
		}
	}
	if st, err := os.Stat(f.dir); err == nil {
		if sys, ok := st.Sys().(*unix.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
			keeps = append(keeps, host.CapDACOverride)
		}
	}
	slices.Sort(keeps)
	if err := host.Keep(slices.Compact(keeps)...); err != nil {
		return err
	}
	if slices.Contains(keeps, host.CapSysPtrace) {
		return nil
	}
	if err := host.LockExcept(f.writes()...); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// writes returns the directories that are written to.
func (f *recordFlags) writes() []string {
	out := []string{f.dir}
	if f.parquet != "" {
		out = append(out, f.parquet)
	}
	return out
}

func (f *recordFlags) summary(t *taped, rep *tool.Report, rec *record.Recorder) {
	if rep == nil {
		return
	}
	f.say("%s: %s, %s lost, %.1fs", t.src.Name, words.Count(t.rows.Rows, "row", "rows"), words.Thousands(rep.Lost()), rep.Duration.Seconds())
	for _, w := range rep.Warnings() {
		f.say("%s: %s", t.src.Name, w)
	}
	for _, h := range t.names.Hints() {
		f.say("%s: %s", t.src.Name, h)
	}
}

// cutOut writes a part of a recording into one file.
func (f *recordFlags) cutOut(ctx context.Context) error {
	if f.from.path == "" {
		return tool.Usagef("--cut needs --from DIR, the recording to cut from")
	}
	rec, err := record.Read(f.from.path)
	if err != nil {
		return tool.Usagef("--from: %v", err)
	}
	_, end, err := rec.Span()
	if err != nil {
		return err
	}
	var q record.Query
	if q.Since, q.Until, err = f.from.bounds(end); err != nil {
		return err
	}
	n, err := record.Cut(ctx, rec, &q, f.cut)
	if err != nil {
		return err
	}
	st, err := os.Stat(f.cut)
	if err != nil {
		return err
	}
	f.say("%s, %s in %s", words.Count(n, "row", "rows"), size(uint64(st.Size())), f.cut)
	if d := rec.Damage(); cmp.Or(uint64(d.Bytes), uint64(d.Gaps)) > 0 {
		f.say("the recording is damaged: %s could not be read; rows are missing at %s", words.Count(uint64(d.Bytes), "byte", "bytes"), words.Count(uint64(d.Gaps), "place", "places"))
	}
	return nil
}
