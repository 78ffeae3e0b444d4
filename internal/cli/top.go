// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/top"
	"seine/internal/watch"
	"seine/internal/words"
)

// topFlags are the flags of the command top.
type topFlags struct {
	from     fromFlags
	output   string
	plain    bool
	ascii    bool
	screen   string
	where    string
	sort     string
	interval time.Duration
	duration time.Duration
	count    uint64
	out, err io.Writer
}

func topCommand(stdout, stderr io.Writer) *cobra.Command {
	cmd, _ := newTop(stdout, stderr)
	return cmd
}

func newTop(stdout, stderr io.Writer) (*cobra.Command, *topFlags) {
	f := &topFlags{out: stdout, err: stderr}
	cmd := &cobra.Command{
		Use:   "top [flags] [interval [count]]",
		Short: "this machine's network on one screen, live or from a recording",
		Long: `A full-screen view: services, processes, connections, events and findings (keys 1 to 5). Enter opens the
row under the cursor. / filters with an expression, as --where does. c prints and copies the command that
shows the same rows. ? explains all keys and columns. q quits.

If standard output is not a terminal, or with --plain, the screen is printed as lines. -o json streams the
rows of all screens, second by second.`,
		Example: `  seine top
  seine top --screen events
  seine top --where 'comm == "nginx"'
  seine top --plain 10 6
  seine top -o json -d 10s
  seine top --from /var/lib/seine --until 14:10`,
		Args: cobra.MaximumNArgs(2),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.output, "output", "o", "table", "format: table, json")
	fs.BoolVar(&f.plain, "plain", false, "print lines, without control codes: for logs and screen readers")
	fs.BoolVar(&f.ascii, "ascii", false, "use only ASCII characters (default: by the locale)")
	fs.StringVar(&f.screen, "screen", top.Screens[0], "start with this screen: "+strings.Join(top.Screens[:], ", "))
	fs.StringVar(&f.where, "where", "", "show only the rows of that screen that match: 'p99_us > 100000'")
	fs.StringVar(&f.sort, "sort", "", "sort that screen by this column; ,asc or ,desc may follow")
	fs.VarP(&durationFlag{&f.interval, true}, "interval", "i", "refresh this often (default 1s; with --plain 10s)")
	fs.VarP(&durationFlag{&f.duration, true}, "duration", "d", "end after this long")
	fs.Uint64VarP(&f.count, "count", "n", 0, "end after this many outputs")
	for _, name := range []string{"interval", "duration"} {
		fs.Lookup(name).DefValue = "" // the text has it
	}
	new(btfFlag).of(cmd)
	f.from.declare(fs)
	fs.Lookup("from").Usage = "look at this recording instead of the machine: a directory or a file"
	fs.Lookup("since").Usage = "with --from: the earliest time to look at"
	fs.Lookup("until").Usage = "with --from: start at this time (default: the end of the recording)"
	fs.MarkHidden("follow")
	cmd.SetFlagErrorFunc(flagError)
	cmd.RegisterFlagCompletionFunc("screen", cobra.FixedCompletions(top.Screens[:], cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), fs, args) }
	return cmd, f
}

func (f *topFlags) say(format string, args ...any) {
	fmt.Fprintf(f.err, "seine: "+format+"\n", args...)
}

func (f *topFlags) run(ctx context.Context, fs *pflag.FlagSet, args []string) error {
	state, err := f.check(fs, args)
	if err != nil {
		return err
	}
	state.Runs = runs
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stopWhenClosed(ctx, f.out, stop)
	full := f.output == "table" && !f.plain && isScreen(f.out)
	if f.from.path != "" {
		return f.past(ctx, state, full)
	}
	return f.live(ctx, state, full)
}

// check refuses flags that exclude each other, and makes the first state.
func (f *topFlags) check(fs *pflag.FlagSet, args []string) (*top.State, error) {
	if f.output != "table" && f.output != "json" {
		return nil, tool.Usagef("-o %s: top writes table, json", f.output)
	}
	screen := top.Screen(slices.Index(top.Screens[:], f.screen))
	if screen < 0 {
		return nil, tool.Usagef("--screen %s: one of %s", f.screen, strings.Join(top.Screens[:], ", "))
	}
	if f.from.follow || f.from.tee != "" {
		return nil, tool.Usagef("top: leave out --follow and --tee")
	}
	if err := f.from.check(fs); err != nil {
		return nil, err
	}
	if len(args) > 0 {
		if err := (&durationFlag{&f.interval, true}).Set(args[0]); err != nil {
			return nil, tool.Usagef("interval: %v", err)
		}
	}
	if len(args) > 1 {
		if _, err := fmt.Sscan(args[1], &f.count); err != nil || f.count == 0 {
			return nil, tool.Usagef("count: %q is not a number from 1 up", args[1])
		}
	}
	if f.interval != 0 && f.interval < time.Second {
		return nil, tool.Usagef("--interval: at least 1s")
	}
	by, way, _ := strings.Cut(f.sort, ",")
	if way != "" && way != "asc" && way != "desc" {
		return nil, tool.Usagef("--sort %s: asc or desc", f.sort)
	}
	if err := top.CheckQuery(screen, f.where, by); err != nil {
		return nil, tool.Usagef("--%v", err)
	}
	return top.NewState(screen, f.where, by, way != "" && (way == "asc") != top.Rises(screen, by)), nil
}

// isScreen reports whether a full screen can be shown: stdin and stdout are terminals.
func isScreen(out io.Writer) bool {
	is, _ := terminal(out)
	in, _ := terminal(os.Stdin)
	return is && in && os.Getenv("TERM") != "dumb"
}

// topTools are the tools of why. sni gives names of remote addresses that nobody looked up. It runs
// at each packet that is sent, so why goes without it.
func topTools() []string { return append(slices.Clone(whyTools), "sni") }

// live shows this machine.
func (f *topFlags) live(ctx context.Context, state *top.State, full bool) error {
	attached := startMany()
	defer attached()
	if err := checkPermission(); err != nil {
		return err
	}
	if err := host.Memlock(); err != nil {
		f.say("warning: %v", err)
	}
	held := &top.Terminal{}
	if full {
		held = top.Hold(f.out.(*os.File))
	}
	engine, err := tool.NewEngine(tool.EngineOptions{Poll: watchPoll, Guard: held.Guard})
	if err != nil {
		return err
	}
	defer engine.Close()
	model := watch.New(watch.Options{})
	asked, err := (&whyFlags{out: f.out, err: f.err}).attach(engine, model, topTools())
	if err != nil {
		return err
	}
	sampler := watch.NewSampler()
	defer sampler.Close()
	model.Asked(watch.Counters, "")
	left := model.LeftOut()
	for _, name := range sortedKeys(left) {
		f.say("without %s: %s", name, left[name])
	}
	attached()
	source := newLiveSource(model)
	look := f.look()
	if _, err := engine.GiveUp((*tool.Session).All); err != nil {
		f.say("warning: %v", err)
	}
	began := time.Now()
	f.say("ready")
	giveBack()

	if f.duration > 0 {
		limited, cancel := context.WithTimeout(ctx, f.duration)
		defer cancel()
		ctx = limited
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errs := make([]error, len(asked))
	var wait sync.WaitGroup
	for i, t := range asked {
		wait.Go(func() {
			defer held.Guard()
			head, err := t.into(model)
			if err == nil {
				_, err = t.session.Run(ctx, head)
			}
			if errs[i] = err; err != nil {
				stop(err)
			}
			t.names.Close()
		})
	}
	wait.Go(func() {
		defer held.Guard()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			sampler.Sample(model, time.Now())
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	var rows *stream
	switch {
	case full:
		err = top.Run(ctx, top.Options{Source: source, State: state, Look: look, In: os.Stdin, Out: f.out.(*os.File), Terminal: held, Every: f.every(time.Second), Count: f.count})
	case f.output == "json":
		if rows, err = f.newStream(model, began); err == nil {
			err = rows.run(ctx, func() {
				for _, t := range asked {
					t.session.Deliver(ctx)
				}
			})
		}
	default:
		err = f.lines(ctx, source, state)
	}
	stop(nil)
	wait.Wait()
	if rows != nil && err == nil { // rows that tools give when they are stopped
		err = rows.write(time.Now())
	}
	f.summary(model)
	return errors.Join(append(errs, err)...)
}

// every is how often to refresh.
func (f *topFlags) every(usual time.Duration) time.Duration {
	if f.interval > 0 {
		return f.interval
	}
	return usual
}

// look is what the terminal can show.
func (f *topFlags) look() top.Look {
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale = os.Getenv(name); locale != "" {
			break
		}
	}
	utf8 := strings.Contains(strings.ToUpper(strings.ReplaceAll(locale, "-", "")), "UTF8")
	return top.Look{Color: os.Getenv("NO_COLOR") == "", ASCII: f.ascii || !utf8}
}

// lines prints the screen at each interval.
func (f *topFlags) lines(ctx context.Context, source top.Source, state *top.State) error {
	tick := time.NewTicker(f.every(top.Recent))
	defer tick.Stop()
	for n := uint64(0); f.count == 0 || n < f.count; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if n > 0 {
				return nil
			}
		}
		snap, err := source.Look(ctx, state.At, state.WantsEvents(), nil)
		if err != nil {
			return err
		}
		if err := top.Plain(f.out, state, snap); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// late is how long after its end a second is written. Counting tools deliver its rows until
// then.
const late = 2 * time.Second

// A stream writes the rows of each second, once.
type stream struct {
	model       *watch.Model
	out         row.Sink
	count       uint64
	began, next time.Time
}

// newStream makes a stream that starts with the second of began.
func (f *topFlags) newStream(model *watch.Model, began time.Time) (*stream, error) {
	out, err := sink.New("json", f.out, sink.Options{Schemas: top.Schemas()})
	began = began.Truncate(time.Second)
	return &stream{model: model, out: out, count: f.count, began: began, next: began}, err
}

// enough reports whether as many seconds have been written as the user asked for.
func (s *stream) enough() bool {
	return s.count > 0 && uint64(s.next.Sub(s.began)/time.Second) >= s.count
}

// write writes all seconds up to and including until.
func (s *stream) write(until time.Time) error {
	for ; !s.next.After(until) && !s.enough(); s.next = s.next.Add(time.Second) {
		if err := top.Rows(s.model, s.next, s.out); err != nil {
			return err
		}
	}
	return nil
}

// run writes until ctx ends. deliver returns when the model has all events that happened before
// the call, because a second is written only once.
func (s *stream) run(ctx context.Context, deliver func()) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for !s.enough() {
		select {
		case <-tick.C:
			now := time.Now()
			deliver()
			if err := s.write(now.Add(-time.Second - late)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// summary prints how many events were lost.
func (f *topFlags) summary(model *watch.Model) {
	v := model.Window(time.Second)
	for _, name := range sortedKeys(v.Sources) {
		if s := v.Sources[name]; s.Lost > 0 {
			f.say("%s lost %s", name, words.Count(s.Lost, "event", "events"))
		}
	}
}

// liveSource takes snapshots of a model and of seine's own cost.
type liveSource struct {
	model *watch.Model
	host  string
	statm *os.File
	then  time.Time
	used  time.Duration
	self  top.Self
}

func newLiveSource(m *watch.Model) *liveSource {
	s := &liveSource{model: m, then: time.Now(), used: processorTime()}
	s.host, _ = os.Hostname()
	s.statm, _ = os.Open("/proc/self/statm")
	return s
}

// Look takes a snapshot.
func (s *liveSource) Look(_ context.Context, at time.Time, events bool, follow []watch.ConnKey) (*top.Snapshot, error) {
	s.model.Follow(follow...)
	snap := top.Take(s.model, at, events)
	snap.Host = s.host
	if now := time.Now(); now.Sub(s.then) >= 500*time.Millisecond {
		used := processorTime()
		s.self = top.Self{CPU: (used - s.used).Seconds() / now.Sub(s.then).Seconds(), Memory: s.memory(), Known: true}
		s.then, s.used = now, used
	}
	snap.Self = s.self
	return snap, nil
}

// memory is the resident memory of this process.
func (s *liveSource) memory() uint64 {
	if s.statm == nil {
		return 0
	}
	var buf [128]byte
	n, _ := s.statm.ReadAt(buf[:], 0)
	var all, resident uint64
	fmt.Sscan(string(buf[:n]), &all, &resident)
	return resident * uint64(os.Getpagesize())
}

// processorTime is the processor time that this process has used.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runs reports whether seine accepts a command line: its tool, flags and filter.
func runs(command string) bool {
	split, err := words.Fields(strings.TrimPrefix(command, "seine "))
	if err != nil || len(split) == 0 {
		return false
	}
	t, _ := find(split[0])
	if t == nil {
		return false
	}
	cfg := t.NewConfig()
	fs := pflag.NewFlagSet(t.Name, pflag.ContinueOnError)
	c := declare(fs, t, cfg)
	if fs.Parse(split[1:]) != nil {
		return false
	}
	o, err := c.options(t, cfg, fs.Args())
	if err != nil {
		return false
	}
	p, err := tool.Prepare(t, cfg, o)
	if err != nil {
		return false
	}
	if c.where != "" {
		_, err = row.Where(nil, c.where, p.Schemas)
	}
	return err == nil
}
