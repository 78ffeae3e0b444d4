// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/cilium/ebpf"
	"github.com/spf13/pflag"

	"seine/internal/names"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
)

// common holds the flags that every tool takes.
type common struct {
	output, columns, sort, by, networks, where, timeFormat, view string
	btf                                                          btfFlag
	duration, interval                                           time.Duration
	count                                                        uint64
	top                                                          int
	noClear, stats, summary, names                               bool
	rate                                                         uint64
	buffer, memory                                               uint64
	ways                                                         []string
	verbose                                                      int
	filters                                                      filterFlags
	from                                                         fromFlags
	subnets                                                      map[string]row.Subnet // columns of --by that are grouped by network
	given                                                        *pflag.FlagSet
}

// declare adds the common flags and those of the tool's config to fs.
func declare(fs *pflag.FlagSet, t *tool.Tool, cfg any) *common {
	c := &common{given: fs}
	short := map[string]string{}
	for letter, flag := range t.Shorts {
		short[flag] = letter
	}
	fs.SortFlags = false
	settings(fs, cfg)
	fs.StringVarP(&c.output, "output", "o", cmp.Or(t.Format, "table"), "format: "+strings.Join(formats(t), ", "))
	fs.StringVar(&c.columns, "columns", "", "columns to show: a,b,c or +a,-b; help lists them")
	fs.VarP(&durationFlag{&c.duration, true}, "duration", "d", "stop after this long: 10s, 2m")
	fs.Uint64VarP(&c.count, "count", "n", 0, "stop after this many rows or outputs")
	fs.VarP(&durationFlag{&c.interval, true}, "interval", "i", "print an output this often: 1s, 500ms")
	fs.BoolVar(&c.noClear, "no-clear", false, "do not clear the screen between outputs")
	fs.StringVar(&c.sort, "sort", "", "order the rows of an output: COLUMN or COLUMN,asc")
	fs.IntVar(&c.top, "top", 0, "only the first N rows of an output")
	fs.Uint64Var(&c.rate, "rate", 0, "show at most this many rows a second, and count the rest")
	if t.Kind(t.NewConfig()) != tool.Events { // a new config: the flags of cfg are not parsed yet
		fs.MarkHidden("rate")
	}
	if fs.Lookup("summary") == nil { // two tools have one of their own
		fs.BoolVar(&c.summary, "summary", false, "one line for each key instead of histograms: count, p50, p90, p99, max")
		fs.Lookup("summary").Hidden = !hasHist(t)
	}
	named := "show the names of remote addresses (column rname), from DNS answers and TLS handshakes"
	if t.Names {
		named += "; a table on a terminal has them unless --names=false"
	}
	fs.BoolVar(&c.names, "names", false, named)
	if !slices.ContainsFunc(t.Views(t.NewConfig()), hasRemote) {
		fs.MarkHidden("names")
	}
	fs.StringVar(&c.by, "by", "", "group by these columns; addresses also by network: raddr/24 (IPv6: 64), or raddr/24/56 for IPv4 and IPv6")
	fs.StringVar(&c.networks, "subnets", "", "with --by and an address: group it by the smallest of these networks that it is in: 10.0.0.0/8,192.0.2.0/24")
	if !slices.ContainsFunc(t.Views(t.NewConfig()), hasAddrs) {
		fs.MarkHidden("subnets")
	}
	fs.StringVar(&c.where, "where", "", "show only rows for which this is true: 'lport == 80 && comm == \"nginx\"'")
	c.filters.declare(fs, t, short)
	fs.StringVar(&c.timeFormat, "time", "", "format of the time column: clock, micro, iso, rel, unix, none")
	views := viewNames(t)
	fs.StringVar(&c.view, "view", "", "show only this kind of rows: "+strings.Join(views, ", "))
	if len(views) == 0 {
		fs.MarkHidden("view") // there is only one view
	}
	c.from.declare(fs)
	fs.Var(&sizeFlag{&c.buffer}, "buffer", "size of the ring buffer between the kernel and seine (default 4M)")
	fs.Var(&sizeFlag{&c.memory}, "memory", "limit for the memory of all BPF maps (default 32M)")
	fs.BoolVar(&c.stats, "stats", false, "print the cost of the run at the end")
	fs.StringArrayVar(&c.ways, "way", nil, "force a way to attach: WAY or POINT=WAY")
	c.btf.declare(fs)
	fs.CountVarP(&c.verbose, "verbose", "v", "explain what is attached and why; -vv adds the verifier's log")
	if t.Buffer > 0 {
		buffer := fs.Lookup("buffer")
		buffer.Usage = strings.Replace(buffer.Usage, "4M", fmt.Sprintf("%dM", t.Buffer>>20), 1)
	}
	return c
}

// viewNames are the values of --view, unless a flag changes the rows.
func viewNames(t *tool.Tool) (names []string) {
	for _, v := range t.Views(t.NewConfig()) { // the run's config is not filled in yet
		if v.Name != "" {
			names = append(names, v.Name)
		}
	}
	return names
}

// namesMeasure reports whether --columns names a figure of a histogram, which only
// --summary shows.
func (c *common) namesMeasure(views []tool.View) bool {
	for w := range strings.SplitSeq(c.columns, ",") {
		id := strings.TrimLeft(strings.TrimSpace(w), "+-")
		hist, column := false, false
		for _, v := range views {
			if s, err := v.Output.Schema(); err == nil {
				hist, column = hist || s.HasHist(), column || s.Index(id) >= 0
			}
		}
		if hist && !column && slices.Contains(row.Measures, id) {
			return true
		}
	}
	return false
}

// hasHist reports whether t draws histograms, unless a flag changes the rows.
func hasHist(t *tool.Tool) bool {
	return slices.ContainsFunc(t.Views(t.NewConfig()), func(v tool.View) bool {
		s, err := v.Output.Schema()
		return err == nil && s.HasHist()
	})
}

// hasRemote reports whether rows of v have remote addresses.
func hasRemote(v tool.View) bool {
	s, err := v.Output.Schema()
	return err == nil && names.Can(s)
}

// hasAddrs reports whether rows of v have addresses.
func hasAddrs(v tool.View) bool {
	s, err := v.Output.Schema()
	return err == nil && slices.ContainsFunc(s.Columns, func(c row.Column) bool { return c.Kind == row.Addr })
}

func formats(t *tool.Tool) []string {
	return slices.Concat([]string{"table", "json", "csv"}, t.Formats, []string{"parquet"})
}

// options turns the flags into options of the engine. args are the positionals: the
// tool's own argument if it has one, then [interval [count]].
func (c *common) options(t *tool.Tool, cfg any, args []string) (o tool.Options, err error) {
	if args, err = c.word(t, args); err != nil {
		return o, err
	}
	if err := c.check(args); err != nil {
		return o, err
	}
	if err := c.btf.use(); err != nil {
		return o, err
	}
	if v, ok := cfg.(tool.Viewer); ok {
		if err := v.SetView(c.view); err != nil {
			return o, err
		}
		if c.view == tool.AllViews {
			c.view = "" // the tool has both views: show both
		}
	}
	if err := c.cutSubnets(t.Views(cfg)); err != nil {
		return o, err
	}
	if f := t.Views(cfg)[0].Format; f != "" && !c.given.Changed("output") {
		c.output = f
	}
	c.summary = c.summary || c.namesMeasure(t.Views(cfg))
	kind := t.Kind(cfg)
	switch {
	case kind == tool.Events && c.interval > 0 && c.by == "":
		hint := ""
		if c.given.Lookup("min") != nil { // an argument of BCC's tools for latency
			hint = "; --min 10ms leaves out what was quicker"
		}
		return o, tool.Usagef("%s prints rows as they happen: an interval needs --by%s", t.Name, hint)
	case kind == tool.Events && (c.sort != "" || c.top > 0) && c.by == "":
		return o, tool.Usagef("%s prints rows as they happen: --sort and --top need --by", t.Name)
	case c.rate > 0 && (kind != tool.Events || c.by != ""):
		return o, tool.Usagef("--rate is for rows as they happen: use --top for the rows of an output")
	case t.Views(cfg)[0].Ticks != "" && c.interval == 0 && c.from.path == "":
		flag := t.Views(cfg)[0].Ticks
		return o, tool.Usagef("--%s needs an interval: seine %s --%s 1", flag, t.Name, flag)
	case t.Once && c.interval == 0 && c.duration == 0 && c.from.path == "":
		c.duration = time.Nanosecond
	case kind == tool.Interval && c.interval == 0 && c.from.path == "":
		c.interval = time.Second
	}
	o = tool.Options{
		Interval: c.interval, Duration: c.duration, View: c.view, Buffer: c.buffer, Memory: c.memory, Stats: c.stats,
	}
	if c.verbose > 1 {
		object.WithLines()
		o.Log = ebpf.LogLevelBranch
	}
	if kind == tool.Counting || len(t.Views(cfg)[0].By) > 0 {
		o.By = c.groups(t, cfg)
	}
	if o.Force, err = parseWays(c.ways); err != nil {
		return o, err
	}
	if c.from.path != "" {
		return o, nil // filters apply to the rows of a recording
	}
	o.Filter, err = c.filters.wanted(t)
	return o, err
}

// word takes the tool's own argument from the positionals and sets its flag.
func (c *common) word(t *tool.Tool, args []string) ([]string, error) {
	if t.Arg == "" || len(args) == 0 {
		return args, nil
	}
	if _, err := tool.ParseDuration(args[0]); err == nil {
		return args, nil
	}
	f := c.given.Lookup(t.Arg)
	if f.Changed && f.Value.String() != args[0] {
		return nil, tool.Usagef("%s %s and %s: only one", t.Arg, f.Value, args[0])
	}
	if err := c.given.Set(t.Arg, args[0]); err != nil {
		return nil, tool.Usagef("%v", err)
	}
	return args[1:], nil
}

// check refuses values that are not valid for any tool. An empty one is most likely
// an unset variable of a script, not a filter.
func (c *common) check(args []string) (err error) {
	c.given.Visit(func(f *pflag.Flag) {
		switch {
		case err != nil:
		case f.Value.Type() == "string" && f.Value.String() == "":
			err = tool.Usagef("--%s: the value is empty", f.Name)
		case f.Name == "count" && c.count == 0, f.Name == "top" && c.top <= 0, f.Name == "rate" && c.rate == 0:
			err = tool.Usagef("--%s: write a number from 1 up", f.Name)
		}
	})
	if err != nil {
		return err
	}
	if err := sink.CheckTime(c.timeFormat); err != nil {
		return tool.Usagef("--time: %v", err)
	}
	if err := c.from.check(c.given); err != nil {
		return err
	}
	return c.positionals(args)
}

func (c *common) positionals(args []string) (err error) {
	if len(args) > 2 {
		return tool.Usagef("too many arguments: want [interval [count]]")
	}
	if len(args) > 0 {
		if c.interval, err = tool.ParseDuration(args[0]); err != nil || c.interval == 0 {
			hint := ""
			if strings.Contains(args[0], "/") { // an argument of BCC's tcpsubnet
				hint = "; networks go with --subnets"
			}
			return tool.Usagef("interval %q: write 1, 500ms or 2s%s", args[0], hint)
		}
	}
	if len(args) > 1 {
		if c.count, err = strconv.ParseUint(args[1], 10, 64); err != nil || c.count == 0 {
			return tool.Usagef("count %q: write a number from 1 up", args[1])
		}
	}
	return nil
}

// groups returns the key fields of a counting tool: --by, or the tool's own keys. Key
// columns that --columns adds or leaves out are added or left out here too, because
// otherwise several rows would look the same.
func (c *common) groups(t *tool.Tool, cfg any) []string {
	if c.by != "" {
		return strings.Split(c.by, ",")
	}
	v := t.Views(cfg)[0]
	by := v.By
	if c.output == "folded" && v.Stacks != nil {
		by = v.Stacks
	}
	by = append([]string(nil), by...)
	if c.summary { // stacks need more than one line
		by = slices.DeleteFunc(by, func(id string) bool { return id == "kstack" || id == "ustack" })
	}
	s, err := v.Output.Schema()
	if err != nil {
		return by
	}
	for w := range strings.SplitSeq(c.columns, ",") {
		id := strings.TrimPrefix(strings.TrimSpace(w), "+")
		if i := s.Index(id); i >= 0 && s.Columns[i].Key && !slices.Contains(by, id) {
			by = append(by, id)
		}
	}
	if c.columns == "" || c.columns == "help" || !slices.Contains([]string{"table", "json", "csv"}, c.output) {
		return by
	}
	words := strings.Split(strings.ReplaceAll(c.columns, " ", ""), ",")
	relative := strings.ContainsAny(words[0][:min(1, len(words[0]))], "+-")
	mine := slices.ContainsFunc(words, func(w string) bool { return s.Index(strings.TrimLeft(w, "+-")) >= 0 })
	return slices.DeleteFunc(by, func(id string) bool {
		hidden := slices.Contains(words, "-"+id) || !relative && mine && !slices.Contains(words, id)
		return hidden && !word(c.where, id) && !word(c.sort, id)
	})
}

// word reports whether an expression names a column.
func word(expr, id string) bool {
	return slices.Contains(strings.FieldsFunc(expr, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }), id)
}

func parseWays(words []string) (probe.Force, error) {
	f := probe.Force{ByPoint: map[string]string{}}
	for _, w := range words {
		point, way, one := strings.Cut(w, "=")
		switch {
		case one && point != "" && way != "":
			f.ByPoint[point] = way
		case !one && w != "":
			f.All = w
		default:
			return f, tool.Usagef("--way %q: write WAY or POINT=WAY", w)
		}
	}
	return f, nil
}

// settings declares the fields of a tool's config as flags.
func settings(fs *pflag.FlagSet, cfg any) {
	for _, s := range tool.Settings(cfg) {
		switch p := s.Value.(type) {
		case *bool:
			fs.BoolVarP(p, s.Name, s.Short, *p, s.Help)
		case *time.Duration:
			fs.VarP(&durationFlag{p, *p > 0}, s.Name, s.Short, s.Help)
		case *uint64:
			fs.Uint64VarP(p, s.Name, s.Short, *p, s.Help)
		case *uint32:
			fs.Uint32VarP(p, s.Name, s.Short, *p, s.Help)
		case *string:
			fs.StringVarP(p, s.Name, s.Short, *p, s.Help)
		default:
			panic(fmt.Sprintf("flag %s: there is no flag for %T", s.Name, p))
		}
	}
}

// durationFlag takes 10ms, 2s, and a bare number of seconds. It refuses 0 if some
// is set.
type durationFlag struct {
	d    *time.Duration
	some bool
}

func (f *durationFlag) Type() string { return "duration" }
func (f *durationFlag) String() string {
	if f.d == nil || *f.d == 0 {
		return ""
	}
	return f.d.String()
}
func (f *durationFlag) Set(s string) (err error) {
	if *f.d, err = tool.ParseDuration(s); err == nil && f.some && *f.d == 0 {
		return fmt.Errorf("%q: must be more than 0", s)
	}
	return err
}

// sizeFlag takes 65536, 64k, 4M, 1G: powers of 1024.
type sizeFlag struct{ n *uint64 }

func (f *sizeFlag) Type() string { return "size" }
func (f *sizeFlag) String() string {
	if f.n == nil || *f.n == 0 {
		return ""
	}
	return strconv.FormatUint(*f.n, 10)
}
func (f *sizeFlag) Set(s string) (err error) {
	*f.n, err = tool.ParseSize(s)
	return err
}

// nearestFlag finds the flag that the user may have meant.
func nearestFlag(fs *pflag.FlagSet, name string) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return row.Nearest(name, names)
}
