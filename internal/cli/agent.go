// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/agent"
	"seine/internal/enrich"
	"seine/internal/host"
	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/words"
)

// agentName and frontName are the commands of the agent and of its second process.
const (
	agentName = "agent"
	frontName = "agent-front"
)

// agentTools are the tools that the agent runs. One that this kernel cannot run is left out.
var agentTools = []string{
	"flows -i 1 --view all", "tcpretrans", "soconnect", "tcpsynbl -i 1", "soaccept", "tcplife", "dns", "gethostlatency", "skbdrop -i 1 --by reason,proto,lport,dev,netns",
}

// agentGC is how far the heap may grow, in percent, before garbage is collected. The agent
// promises a limit on memory, and an idle agent collects seldom anyway.
const agentGC = 25

// watchPoll is how long an event may wait before the agent or top reads it. Both show seconds, and
// an idle reader need not wake up more often.
const watchPoll = 200 * time.Millisecond

// dryRun is how long --dry-run runs.
const dryRun = 10 * time.Second

// agentFlags are the flags of the command agent. All but the first few are also keys of the
// config file.
type agentFlags struct {
	config        string
	checkConfig   bool
	dryRun        bool
	demo          bool
	listen        string
	webConfig     string
	hosts         []string
	dir, parquet  string
	budget        uint64
	keep          time.Duration
	otlp          string
	otlpEvery     time.Duration
	netns         string
	series        int
	maxCPU        float64
	log           string
	btf           btfFlag
	stdout, stder io.Writer

	file  *agent.File
	tools []*taped // of the config file
	fed   []*fedTool
}

// A fedTool is a tool whose rows become metrics of the config file.
type fedTool struct {
	*taped
	customs []*agent.Custom
}

// notKeys are the flags that a config file cannot have.
var notKeys = []string{"config", "check-config", "dry-run", "demo", "help"}

func agentCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &agentFlags{stdout: stdout, stder: stderr}
	cmd := &cobra.Command{
		Use:   agentName,
		Short: "always on: metrics for Prometheus and OpenTelemetry, a page, an API, a recording",
		Long: `Runs until it is stopped, and answers on one port: /metrics, a page (/), and an API (/api/openapi.json
describes it). It has two processes. One holds the capabilities and opens no network socket. The other one
talks to the network and has no capability.

On SIGHUP the agent reads its config file again. If the file is not valid, the agent logs the error and keeps
its configuration.`,
		Example: `  seine agent
  seine agent --dir /var/lib/seine --budget 2G
  seine agent --config /etc/seine/agent.yaml --check-config
  seine agent --listen 10.0.0.5:7346 --web-config /etc/seine/web.yaml --otlp http://127.0.0.1:4318`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.declare(fs)
	cmd.SetFlagErrorFunc(flagError)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), fs) }
	return cmd
}

func (f *agentFlags) declare(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.config, "config", "", "config file (YAML): flags as keys, more tools, and metrics of their rows")
	fs.BoolVar(&f.checkConfig, "check-config", false, "check the config file and exit")
	fs.BoolVar(&f.dryRun, "dry-run", false, "run for ten seconds, print how many series there would be, and exit")
	fs.BoolVar(&f.demo, "demo", false, "make traffic with a fault on loopback, for the page to show")
	fs.StringVar(&f.listen, "listen", "127.0.0.1:7346", "address and port of metrics, page and API")
	fs.StringVar(&f.webConfig, "web-config", "", "file with TLS and passwords, in the format of Prometheus exporters")
	fs.StringSliceVar(&f.hosts, "host", nil, "another host name that clients may use, besides localhost, this machine's name and its addresses")
	fs.StringVar(&f.dir, "dir", "", "directory to record into")
	f.budget = 1 << 30
	fs.Var(&sizeFlag{&f.budget}, "budget", "bytes that the recording may take, its Parquet files included (default 1G)")
	fs.Lookup("budget").DefValue = ""
	fs.Var(&longFlag{&f.keep}, "keep", "delete rows that are older: 12h, 7d")
	fs.StringVar(&f.parquet, "parquet", "", "also write the recording into this directory, as Parquet: tool=T/date=D/*.parquet")
	fs.StringVar(&f.otlp, "otlp", "", "push metrics to this collector too: http://127.0.0.1:4318")
	f.otlpEvery = time.Minute
	fs.Var(&durationFlag{&f.otlpEvery, true}, "otlp-interval", "push this often (default 1m)")
	fs.Lookup("otlp-interval").DefValue = ""
	fs.StringVar(&f.netns, "netns", "", "look at this network namespace only, as --netns of tools")
	fs.IntVar(&f.series, "series", 5000, "the most series in a scrape")
	f.maxCPU = 0.02
	fs.Var(&percentFlag{&f.maxCPU}, "max-cpu", "limit of processor time, as a share of one processor, BPF programs included. Above it the agent stops some tools and logs that (default 2%)")
	fs.Lookup("max-cpu").DefValue = ""
	fs.StringVar(&f.log, "log", "text", "format of the log: text, json")
	f.btf.declare(fs)
}

// keys are the names of the flags that a config file can have.
func keys(fs *pflag.FlagSet) (out []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notKeys, f.Name) {
			out = append(out, f.Name)
		}
	})
	return out
}

// load reads the config file. Flags of the command line override it.
func (f *agentFlags) load(fs *pflag.FlagSet) error {
	f.file = &agent.File{}
	if f.config != "" {
		b, err := os.ReadFile(f.config)
		if err != nil {
			return tool.Usagef("--config: %v", err)
		}
		if f.file, err = agent.Parse(b, keys(fs)); err != nil {
			return tool.Usagef("%s: %v", f.config, err)
		}
		given := map[string]bool{}
		fs.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
		for _, s := range f.file.Settings {
			if given[s.Key] {
				continue
			}
			if err := fs.Set(s.Key, s.Value); err != nil {
				return tool.Usagef("%s: line %d: %s: %s", f.config, s.Line, s.Key, oneLine(errors.Unwrap(err)))
			}
		}
	}
	if err := f.btf.use(); err != nil {
		return err
	}
	return f.check()
}

// check refuses flags that are not valid.
func (f *agentFlags) check() error {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return tool.Usagef("--listen %s: want an address and a port, such as 127.0.0.1:7346", f.listen)
	}
	if f.log != "text" && f.log != "json" {
		return tool.Usagef("--log %s: text or json", f.log)
	}
	if f.budget < journal.MinBudget {
		return tool.Usagef("--budget: at least 1M")
	}
	if f.parquet != "" && f.dir == "" {
		return tool.Usagef("--parquet needs --dir: it holds the segments of the recording")
	}
	if f.otlp != "" {
		if _, err := otlpPort(f.otlp); err != nil {
			return tool.Usagef("--otlp: %v", err)
		}
	}
	if f.webConfig != "" {
		if err := checkWebConfig(f.webConfig); err != nil {
			return tool.Usagef("--web-config: %s", oneLine(err))
		}
	}
	for _, line := range agentTools {
		w := &watched{line: line}
		f.limit(w)
		if _, err := parseTaped(w.line); err != nil {
			return err
		}
	}
	for _, line := range f.file.Tools {
		t, err := parseTaped(line)
		if err != nil {
			return fmt.Errorf("%s: tools: %w", f.config, err)
		}
		t.run.prepared.Forget()
		f.tools = append(f.tools, t)
	}
	for _, c := range f.file.Metrics {
		i := slices.IndexFunc(f.fed, func(o *fedTool) bool { return o.customs[0].Tool == c.Tool })
		if i < 0 {
			t, err := parseTaped(c.Tool)
			if err != nil {
				return fmt.Errorf("%s: metric %s: %w", f.config, c.Name, err)
			}
			t.run.prepared.Forget()
			f.fed = append(f.fed, &fedTool{taped: t})
			i = len(f.fed) - 1
		}
		f.fed[i].customs = append(f.fed[i].customs, c)
		if err := c.Bind(f.fed[i].run.prepared.Schemas); err != nil {
			return tool.Usagef("%s: %v", f.config, err)
		}
	}
	_, err := f.meter()
	if err != nil {
		return tool.Usagef("--series: %v", err)
	}
	return nil
}

func (f *agentFlags) meter() (*agent.Meter, error) {
	descs := slices.Clone(agent.Table)
	for _, c := range f.file.Metrics {
		descs = append(descs, c.Desc())
	}
	return agent.NewMeter(agent.Limits{Series: f.series}, descs...)
}

func (f *agentFlags) run(ctx context.Context, fs *pflag.FlagSet) error {
	var args []string // to restart with
	fs.Visit(func(flag *pflag.Flag) {
		if s, ok := flag.Value.(pflag.SliceValue); ok {
			for _, v := range s.GetSlice() {
				args = append(args, "--"+flag.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+flag.Name+"="+flag.Value.String())
	})
	if err := f.load(fs); err != nil {
		return err
	}
	if f.checkConfig {
		fmt.Fprintf(f.stdout, "the config is valid: %s, %s of its own\n", words.Count(uint64(len(f.tools)+len(agentTools)), "tool", "tools"), words.Count(uint64(len(f.file.Metrics)), "metric", "metrics"))
		return nil
	}
	if err := checkPermission(); err != nil {
		return err
	}
	h, err := newHolder(f)
	if err != nil {
		return err
	}
	if f.dryRun {
		limited, cancel := context.WithTimeout(ctx, dryRun)
		defer cancel()
		if err := h.run(limited, f); err != nil {
			return err
		}
		n := h.counts.Count()
		fmt.Fprintf(f.stdout, "%s of %s, in %s\n", words.Count(uint64(n.Series), "series", "series"), words.Thousands(uint64(n.Limit)), words.Count(uint64(n.Sets), "label set", "label sets"))
		return nil
	}
	if f.demo {
		if address, _, err := net.SplitHostPort(f.listen); err != nil || !isLoopback(address) {
			return tool.Usagef("--demo: --listen %s is not on loopback", f.listen)
		}
		if err := startDemo(ctx); err != nil {
			return err
		}
		fmt.Fprintf(f.stdout, "http://%s/\n", f.listen)
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		inner, stop := context.WithCancel(ctx)
		var next *agentFlags
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-hup:
					fresh := pflag.NewFlagSet(agentName, pflag.ContinueOnError)
					n := &agentFlags{stdout: f.stdout, stder: f.stder}
					n.declare(fresh)
					err := fresh.Parse(args)
					if err == nil {
						err = n.load(fresh)
					}
					if err != nil {
						h.log.Error("the config is not valid: the agent keeps the one that it has", "reason", oneLine(err))
						continue
					}
					next = n
					stop()
					return
				case <-inner.Done():
					return
				}
			}
		}()
		err := h.run(inner, f)
		stop()
		<-done
		if next == nil || ctx.Err() != nil {
			return err
		}
		h.log.Info("the config was read again")
		if f.series != next.series || !sameMetrics(f.file.Metrics, next.file.Metrics) {
			meter, err := next.meter()
			if err != nil {
				return err
			}
			h.counts = &agent.Counts{Meter: meter}
		}
		f = next
	}
}

func isLoopback(address string) bool {
	ip := net.ParseIP(address)
	return address == "localhost" || ip != nil && ip.IsLoopback()
}

func sameMetrics(a, b []*agent.Custom) bool {
	return slices.EqualFunc(a, b, func(x, y *agent.Custom) bool { return fmt.Sprint(*x) == fmt.Sprint(*y) })
}

// A holder keeps the state that survives a change of the config.
type holder struct {
	log    *slog.Logger
	logs   *agent.Limited
	model  *watch.Model
	conns  withoutConns // hands rows to the model
	counts *agent.Counts
	ready  atomic.Bool
}

func newHolder(f *agentFlags) (*holder, error) {
	meter, err := f.meter()
	if err != nil {
		return nil, err
	}
	logs := agentLog(f.log, f.stder)
	h := &holder{log: slog.New(logs), logs: logs, model: watch.New(watch.Options{}), counts: &agent.Counts{Meter: meter}}
	h.conns.Sink = h.model
	return h, nil
}

// agentLog opens the log.
func agentLog(format string, to io.Writer) *agent.Limited {
	if format == "json" {
		return agent.NewLimited(slog.NewJSONHandler(to, nil))
	}
	return agent.NewLimited(slog.NewTextHandler(to, nil))
}

// run runs the tools, and the front, until ctx ends.
func (h *holder) run(ctx context.Context, f *agentFlags) error {
	attached := startMany()
	defer attached()
	if err := host.Memlock(); err != nil {
		h.log.Warn("locked memory is limited", "reason", err.Error())
	}
	engine, err := tool.NewEngine(tool.EngineOptions{Poll: watchPoll})
	if err != nil {
		return err
	}
	defer engine.Close()
	rec, end, err := f.recorder(h.log)
	if err != nil {
		return err
	}
	defer end()
	plan, err := f.plan(h)
	if err != nil {
		return err
	}
	for _, w := range plan {
		if err := h.attach(engine, rec, w); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(plan, func(w *watched) bool { return w.taped != nil }) {
		return fmt.Errorf("none of the agent's tools can run here: 'seine doctor' says why")
	}
	sampler := watch.NewSampler()
	defer sampler.Close()
	h.model.Asked(watch.Counters, "")
	h.model.OnCount(func(k watch.CounterKey, by int64) { h.counts.Grown(k.Name, by) })
	attached()
	defer debug.SetGCPercent(debug.SetGCPercent(agentGC))
	if err := host.Keep(holderKeeps...); err != nil {
		h.log.Warn("capabilities were not dropped", "reason", err.Error())
	}
	answers := &agent.Answers{Model: h.model, Meter: h.counts.Meter, Ready: func() error {
		if !h.ready.Load() {
			return errors.New("the tools are not attached yet")
		}
		return nil
	}}
	answers.Host, _ = os.Hostname()
	var wait sync.WaitGroup
	keeper := &agent.Keeper{Args: f.frontArgs(), Answer: answers.Answer, Log: h.log}
	shed := &shedder{holder: h, engine: engine, rec: rec, plan: plan}
	shed.guard = agent.Guard{Most: f.maxCPU, Steps: len(shed.steps(ctx, &wait))}
	bpf := &agent.BPFTime{Enable: enableStats, Spent: engine.Spent}
	self := &agent.Self{Counts: h.counts, Model: h.model, BPF: bpf, Answers: answers, Logs: h.logs, Version: version(), Front: keeper.Status, Shed: shed.names}
	shed.told = self.TellShed // at once: a scrape need not wait for the rest
	if rec != nil {
		self.Recorder = func() (uint64, uint64, map[string]time.Time) {
			return f.recordedSize(), rec.Lost(), rec.Oldest()
		}
	}

	defer wait.Wait()
	for _, w := range plan {
		h.start(ctx, &wait, w)
	}
	wait.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var lost unrecorded
		for ctx.Err() == nil {
			sampler.Sample(h.model, time.Now())
			if rec != nil {
				lost.tell(h.log, rec.Lost(), time.Now())
			}
			pid, _ := keeper.Status()
			spent, _ := bpf.Total(time.Now())
			shed.tell(time.Now(), agent.Used(pid)+spent)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	wait.Go(func() { self.Run(ctx) })
	wait.Go(func() {
		if err := bpf.Run(ctx); err != nil {
			h.log.Warn("BPF programs are not timed: --max-cpu counts only the agent's processes", "reason", oneLine(err))
		}
	})
	if !f.dryRun {
		wait.Go(func() { keeper.Run(ctx) })
	}
	h.ready.Store(true)
	fmt.Fprintln(f.stder, "seine: ready")
	if err := host.Notify("READY=1"); err != nil {
		h.log.Warn("systemd does not hear that the agent is ready", "reason", oneLine(err))
	}
	giveBack()
	<-ctx.Done()
	h.ready.Store(false)
	return nil
}

// holderKeeps are the capabilities to attach tools again, to read /proc of new processes, and
// to write a recording.
var holderKeeps = []host.Capability{
	host.CapBPF, host.CapPerfmon, host.CapSysAdmin, host.CapSysPtrace, host.CapDACReadSearch, host.CapDACOverride, host.CapSyslog, host.CapNetAdmin, host.CapSysResource,
}

// recorder opens the recording. It is nil without --dir. Call end when no tool writes any more.
func (f *agentFlags) recorder(log *slog.Logger) (rec *record.Recorder, end func(), err error) {
	if f.dir == "" || f.dryRun {
		return nil, func() {}, nil
	}
	return openRecording(f.dir, f.parquet, journal.Options{Budget: int64(f.budget), Keep: f.keep, Streams: len(agentTools) + len(f.tools)},
		func(err error) { log.Error("a segment was not written as Parquet", "reason", oneLine(err)) })
}

// A watched is a tool of the agent.
type watched struct {
	*taped                 // nil before it is attached, and while it is shed
	line     string        // the tool with its flags
	recorded bool          // its rows go into the recording too
	into     []row.Sink    // take its rows
	stop     func()        // ends it
	ended    chan struct{} // closed when it has ended
}

// plan returns the tools to run.
func (f *agentFlags) plan(h *holder) (out []*watched, err error) {
	for _, line := range agentTools {
		w := &watched{line: line, recorded: true, into: []row.Sink{&h.conns, h.counts}}
		f.limit(w)
		out = append(out, w)
	}
	for _, line := range f.file.Tools {
		out = append(out, &watched{line: line, recorded: true})
	}
	for _, t := range f.fed {
		w := &watched{line: t.customs[0].Tool}
		for _, c := range t.customs {
			w.into = append(w.into, c.Into(h.counts))
		}
		out = append(out, w)
	}
	return out, nil
}

// limit filters a tool by --netns, if that is set. The counters of skbdrop are only for the
// recording: a Sampler reads those of the model.
func (f *agentFlags) limit(w *watched) {
	if f.dir == "" && strings.HasPrefix(w.line, "skbdrop ") {
		w.line += " --view drops"
	}
	if f.netns != "" {
		w.line += " --netns='" + f.netns + "'"
	}
}

// attach attaches a tool. If this kernel cannot run it, the log says so and the tool is left out.
func (h *holder) attach(engine *tool.Engine, rec *record.Recorder, w *watched) error {
	t, err := parseTaped(w.line)
	if err != nil {
		return err
	}
	name := t.run.tool.Name
	if t.session, err = engine.Attach(t.run.prepared); err != nil {
		if denied := t.run.denied(err); code(denied) == exitPermission {
			return denied
		}
		h.model.Asked(name, "this kernel cannot run it: "+oneLine(err))
		h.log.Warn("a tool was left out", "tool", name, "reason", oneLine(err))
		return nil
	}
	t.run.prepared.Forget()
	h.model.Asked(name, "")
	h.counts.Tool(name)
	t.names = enrich.NewNames(t.session)
	if rec != nil && w.recorded {
		t.stream = rec.Stream(t.src, withoutConnsOf(t.run.prepared.Schemas), t.run.prepared.Views[0].Above)
	}
	w.taped = t
	return nil
}

// start runs an attached tool. If it fails, the log says so and the other tools go on.
func (h *holder) start(ctx context.Context, wait *sync.WaitGroup, w *watched) {
	if w.taped == nil {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	t, into, ended := w.taped, fan(slices.Clone(w.into)), w.ended
	if t.stream != nil {
		t.stream.Start(time.Now())
		rows := &withoutConns{Sink: t.stream} // too many to record: the recording has services
		rows.off.Store(true)
		into = append(into, rows)
	}
	wait.Go(func() {
		defer close(ended)
		defer t.names.Close()
		head, err := t.into(into)
		if err == nil {
			_, err = t.session.Run(ctx, head)
		}
		if err != nil && ctx.Err() == nil {
			h.model.Asked(t.run.tool.Name, "it failed: "+oneLine(err))
			h.log.Error("a tool failed", "tool", t.run.tool.Name, "reason", oneLine(err))
		}
	})
}

// fan hands rows to several sinks.
type fan []row.Sink

func (f fan) Row(r *row.Row) error {
	for _, s := range f {
		if err := s.Row(r); err != nil {
			return err
		}
	}
	return nil
}

func (f fan) End(e row.End) error {
	for _, s := range f {
		if err := s.End(e); err != nil {
			return err
		}
	}
	return nil
}

// percentFlag takes 2% as 0.02.
type percentFlag struct{ share *float64 }

func (f *percentFlag) Type() string { return "percent" }
func (f *percentFlag) String() string {
	if f.share == nil || *f.share == 0 {
		return ""
	}
	return strconv.FormatFloat(*f.share*100, 'g', -1, 64) + "%"
}
func (f *percentFlag) Set(s string) error {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || n <= 0 || n > 10_000 {
		return fmt.Errorf("%q is not a share of a processor: write 2%%", s)
	}
	*f.share = n / 100
	return nil
}

// recordedSize is the size of the recording and of its Parquet files.
func (f *agentFlags) recordedSize() uint64 {
	size := dirSize(f.dir)
	if rel, err := filepath.Rel(f.dir, f.parquet); f.parquet != "" && (err != nil || strings.HasPrefix(rel, "..")) {
		size += dirSize(f.parquet) // otherwise it is in the first directory
	}
	return size
}

// dirSize is the total size of the files in a directory.
func dirSize(dir string) (n uint64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += uint64(info.Size())
		}
		return nil
	})
	return n
}

// frontArgs is the command line of the front.
func (f *agentFlags) frontArgs() []string {
	args := []string{"seine", frontName, "--listen=" + f.listen, "--log=" + f.log}
	add := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	add("web-config", f.webConfig)
	add("dir", f.dir)
	add("otlp", f.otlp)
	add("otlp-interval", f.otlpEvery.String())
	add("host", strings.Join(f.hosts, ","))
	return args
}
