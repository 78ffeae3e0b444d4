// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"seine/internal/bt"
	"seine/internal/host"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/internal/tool"
	"seine/internal/words"
)

// btFlags are the flags that all commands of the language take.
type btFlags struct {
	output             string
	duration, interval time.Duration
	count, buffer      uint64
	pids               string
	verbose            int
	way                string
	command            string
	quiet              bool // no banner
}

// multiTools are the commands that have the names of BCC's tools.
var multiTools = []string{"funccount", "stackcount", "argdist", "trace"}

func (f *btFlags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	cmd.SetFlagErrorFunc(flagError)
	fs.StringVarP(&f.output, "output", "o", "table", "format: table, json")
	fs.VarP(&durationFlag{&f.duration, true}, "duration", "d", "stop after this long: 10s, 2m")
	fs.Uint64VarP(&f.count, "count", "n", 0, "stop after this many lines or outputs")
	fs.VarP(&durationFlag{&f.interval, true}, "interval", "i", "print the maps this often, and start aggregations anew: 1s, 500ms")
	fs.StringVarP(&f.pids, "pid", "p", "", "only these processes: 12 or 12,34")
	fs.Var(&sizeFlag{&f.buffer}, "buffer", "size of the ring buffer between the kernel and seine (default 1M)")
	fs.CountVarP(&f.verbose, "verbose", "v", "explain what is attached and why; -vv adds the verifier's log")
	fs.StringVar(&f.way, "way", "", "trace kernel functions by kprobe or fentry only")
	new(btfFlag).of(cmd)
}

func (f *btFlags) options(name string, out, errw io.Writer) (o bt.Options, err error) {
	if f.output != "table" && f.output != "json" && f.output != bpftraceJSON {
		return o, tool.Usagef("-o %s: %s knows table and json", f.output, name)
	}
	if f.way != "" && f.way != "kprobe" && f.way != "fentry" {
		return o, tool.Usagef("--way %s: write kprobe or fentry", f.way)
	}
	o = bt.Options{
		Tool: name, Duration: f.duration, Interval: f.interval, Count: f.count, Buffer: f.buffer,
		Verbose: f.verbose, Way: f.way, Err: errw,
	}
	if f.output != "json" {
		o.Out, o.Native = out, f.output == bpftraceJSON // as bpftrace prints it
	} else if o.Rows, err = sink.New(f.output, out, sink.Options{Schemas: []*row.Schema{{Tool: name}}}); err != nil {
		return o, err
	}
	if f.pids != "" {
		for p := range strings.SplitSeq(f.pids, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(p), 10, 31)
			if err != nil {
				return o, tool.Usagef("-p %s: write process ids, as 12 or 12,34", f.pids)
			}
			o.PIDs = append(o.PIDs, uint32(n))
		}
		if host.InPIDNamespace() {
			if o.PIDs, err = outerPIDs(o.PIDs); errors.As(err, new(errPermission)) {
				return o, err
			} else if err != nil {
				return o, tool.Usagef("-p: %v", err)
			}
		}
	}
	return o, nil
}

// positionals are [interval [count]], as BCC's tools have them.
func (f *btFlags) positionals(args []string) (err error) {
	c := common{}
	if err := c.positionals(args); err != nil {
		return err
	}
	if len(args) > 0 {
		f.interval = c.interval
	}
	if len(args) > 1 {
		f.count = c.count
	}
	return nil
}

// attaching is bpftrace's message, used for functions too.
const attaching = "Attaching %s..."

// execute compiles with make, runs the program, and prints what was lost.
func (f *btFlags) execute(ctx context.Context, name string, out, errw io.Writer, banner string, compile func(bt.Options) (*bt.Program, error)) error {
	o, err := f.options(name, out, errw)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o.Context = ctx
	o.Ready = func() {
		stopWhenClosed(ctx, out, stop)
		if !f.quiet {
			fmt.Fprintln(errw, "seine: ready")
		}
	}
	if f.command != "" {
		c, err := hold(f.command)
		if err != nil {
			return err
		}
		defer c.end()
		o.Child = c.pid
		ready := o.Ready
		o.Ready = func() {
			ready()
			c.start()
			go func() {
				<-c.done
				stop()
			}()
		}
	}
	o.Ended = func(r *bt.Run) {
		for _, s := range r.Lost().Summary() {
			fmt.Fprintf(errw, "seine: %s\n", s)
		}
	}
	prog, err := compile(o)
	if errors.Is(err, context.Canceled) {
		return nil // cancelled before it started
	}
	var help *bt.HelpError
	if errors.As(err, &help) {
		_, err := io.WriteString(out, help.Text)
		return err
	}
	var at *bt.Error
	if err != nil && (errors.As(err, &at) && !bt.KernelsFault(err) || checkPermission() == nil) {
		return btError(errw, err)
	}
	// Without privileges nothing can be said about the kernel either.
	if err := checkPermission(); err != nil {
		return err
	}
	if err := host.Memlock(); err != nil {
		fmt.Fprintf(errw, "seine: warning: %v\n", err)
	}
	one, many := "probe", "probes"
	if prog.Functions() && banner != attaching {
		one, many = "function", "functions"
	}
	if !f.quiet {
		fmt.Fprintf(errw, banner+"\n", words.Count(uint64(prog.Probes()), one, many))
	}
	r, err := prog.Run(ctx)
	if err != nil {
		return btError(errw, err)
	}
	if r.Code != 0 {
		return exitCode(r.Code)
	}
	return nil
}

// exitCode is the exit code that exit(code) of a script asks for.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("the script ended with exit(%d)", int(e)) }

// btError prints the place in the script above the message, and turns errors of
// the script into usage errors.
func btError(errw io.Writer, err error) error {
	list := bt.All(err)
	for i, e := range list {
		var at *bt.Error
		if !errors.As(e, &at) {
			return e
		}
		if show := at.Show(); show != "" {
			fmt.Fprintln(errw, show)
		}
		if i < len(list)-1 {
			fmt.Fprintf(errw, "seine: %v\n", e)
		}
	}
	last := list[len(list)-1]
	if bt.KernelsFault(err) {
		return last
	}
	return tool.Usagef("%s", last)
}

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	f, r := &btFlags{}, &runFlags{}
	var listing bool
	cmd := &cobra.Command{
		Use:   "run FILE.bt [args] | -e 'PROGRAM' [args] | -l [PATTERN]",
		Short: "runs programs of the bpftrace language",
		Long: "Runs programs of the bpftrace language, without LLVM and headers. docs/LANGUAGE.md says what is supported\n" +
			"and what differs from bpftrace.",
		Example: "  seine run -e 't:syscalls:sys_enter_connect { @[pid, comm] = count(); }'\n" +
			"  seine run script.bt 10\n  seine run -l 't:tcp:*'\n  seine run -lv t:syscalls:sys_enter_connect",
	}
	f.declare(cmd)
	r.declare(cmd)
	cmd.Flags().StringVar(&r.to, "to", "", "write what the script prints to this file")
	cmd.Flags().BoolVar(&r.children, "children", false, "with -p: also their children, and the processes that these start")
	cmd.Flags().BoolVar(&listing, "listing", false, "print the BPF instructions and do not run them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.run(cmd, f, stdout, stderr, args, listing)
	}
	return cmd
}

// namedOptions takes --name and --name=value out of the arguments after the dashes.
func namedOptions(args []string, dash int) (rest, named []string) {
	rest = args[:dash:dash]
	for _, a := range args[dash:] {
		if strings.HasPrefix(a, "--") && len(a) > 2 {
			named = append(named, a)
		} else {
			rest = append(rest, a)
		}
	}
	return rest, named
}

// readScript reads a file, or standard input for -.
func readScript(name string) (string, error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		in = file
	}
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s is larger than 1 MB", name)
	}
	return string(data), err
}

// listProbes takes -l PATTERN, -lPATTERN, -lv PATTERN and -l -v PATTERN.
func listProbes(stdout, stderr io.Writer, pattern string, args []string, verbose bool) error {
	if pattern == "v" {
		pattern, verbose = "*", true
	}
	if rest, ok := strings.CutPrefix(pattern, "v "); ok {
		pattern, verbose = rest, true
	}
	if len(args) > 0 {
		pattern = args[0]
	}
	if len(args) > 1 {
		return tool.Usagef("-l takes one pattern: quote it")
	}
	if err := bt.List(stdout, pattern, verbose); err != nil {
		return btError(stderr, err)
	}
	return nil
}

func funccountCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &btFlags{}
	var regex bool
	cmd := &cobra.Command{
		Use:     "funccount [flags] PATTERN [interval [count]]",
		Short:   "counts calls of functions or tracepoints that match a pattern",
		Example: "  seine funccount 'tcp_*'\n  seine funccount -i 1 't:tcp:*'\n  seine funccount 'c:malloc'",
		Args:    cobra.ArbitraryArgs,
	}
	f.declare(cmd)
	cmd.Flags().BoolVarP(&regex, "regexp", "r", false, "the pattern is a regular expression")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return tool.Usagef("funccount needs a pattern, as 'tcp_*' or 't:tcp:*'")
		}
		if err := f.positionals(args[1:]); err != nil {
			return err
		}
		return f.execute(cmd.Context(), "funccount", stdout, stderr,
			"Tracing %s for \""+strings.ReplaceAll(args[0], "%", "%%")+"\"... Hit Ctrl-C to end.",
			func(o bt.Options) (*bt.Program, error) { return bt.FuncCount(args[0], regex, o) })
	}
	return cmd
}

func stackcountCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &btFlags{}
	so := bt.StackOptions{}
	cmd := &cobra.Command{
		Use:     "stackcount [flags] PATTERN [interval [count]]",
		Short:   "counts the stacks that lead to functions or tracepoints",
		Example: "  seine stackcount t:net:net_dev_xmit\n  seine stackcount -U t:syscalls:sys_enter_connect",
		Args:    cobra.ArbitraryArgs,
	}
	f.declare(cmd)
	fs := cmd.Flags()
	fs.BoolVarP(&so.Regex, "regexp", "r", false, "the pattern is a regular expression")
	fs.BoolVarP(&so.User, "user-stacks", "U", false, "user stacks")
	fs.BoolVarP(&so.Kernel, "kernel-stacks", "K", false, "kernel stacks")
	fs.BoolVarP(&so.PerProcess, "perpid", "P", false, "by process")
	fs.BoolVarP(&so.Offsets, "offset", "s", false, "show offsets in functions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return tool.Usagef("stackcount needs a pattern, as tcp_sendmsg or t:net:net_dev_xmit")
		}
		if err := f.positionals(args[1:]); err != nil {
			return err
		}
		return f.execute(cmd.Context(), "stackcount", stdout, stderr,
			"Tracing %s for \""+strings.ReplaceAll(args[0], "%", "%%")+"\"... Hit Ctrl-C to end.",
			func(o bt.Options) (*bt.Program, error) { return bt.StackCount(args[0], so, o) })
	}
	return cmd
}

func argdistCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &btFlags{}
	var specs []bt.ArgSpec
	var top int
	cmd := &cobra.Command{
		Use:   "argdist [flags] -C SPEC | -H SPEC … [interval [count]]",
		Short: "counts or histograms of arguments and returned values",
		Long: "Counts (-C) or histograms (-H) of expressions over the arguments of functions and tracepoints. A SPEC is\n\n" +
			"  {p,r,t,u}:{library}:function(signature)[:type[,type…]:expr[,expr…][:filter]][#label]",
		Example: "  seine argdist -H 'p::tcp_sendmsg(void *sk, void *msg, int size):int:size'\n" +
			"  seine argdist -C 't:syscalls:sys_exit_connect():int:args->ret:args->ret<0'",
		Args: cobra.ArbitraryArgs,
	}
	f.declare(cmd)
	fs := cmd.Flags()
	fs.VarP(&specFlag{&specs, false}, "count-spec", "C", "count the values of this spec (may be repeated)")
	fs.VarP(&specFlag{&specs, true}, "hist", "H", "a histogram of the values of this spec (may be repeated)")
	fs.IntVarP(&top, "top", "T", 0, "only the N largest counts")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(specs) == 0 {
			return tool.Usagef("argdist needs a spec, with -C or -H")
		}
		if err := f.positionals(args); err != nil {
			return err
		}
		return f.execute(cmd.Context(), "argdist", stdout, stderr, "Tracing %s... Hit Ctrl-C to end.",
			func(o bt.Options) (*bt.Program, error) { return bt.ArgDist(specs, top, o) })
	}
	return cmd
}

// specFlag keeps -C and -H in the order given.
type specFlag struct {
	list *[]bt.ArgSpec
	hist bool
}

func (s *specFlag) Type() string   { return "spec" }
func (s *specFlag) String() string { return "" }
func (s *specFlag) Set(v string) error {
	*s.list = append(*s.list, bt.ArgSpec{Hist: s.hist, Text: v})
	return nil
}

func traceCommand(stdout, stderr io.Writer) *cobra.Command {
	f := &btFlags{}
	var stamp bool
	cmd := &cobra.Command{
		Use:   "trace [flags] SPEC …",
		Short: "a line for each call of a function or tracepoint",
		Long: "Prints a line for each event. A SPEC is\n\n" +
			"  {p,r,t,u}:{library}:function(signature) (filter) \"format\", arg, …",
		Example: "  seine trace 'p::tcp_sendmsg (arg3 > 1000) \"%d bytes\", arg3'\n" +
			"  seine trace 't:syscalls:sys_enter_connect \"fd %d\", args->fd'",
		Args: cobra.ArbitraryArgs,
	}
	f.declare(cmd)
	cmd.Flags().BoolVarP(&stamp, "time", "t", false, "show the time of each event")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return tool.Usagef("trace needs a spec, as 'tcp_sendmsg \"%%d bytes\", arg3'")
		}
		if f.interval > 0 {
			return tool.Usagef("trace prints events as they happen: it has no interval")
		}
		return f.execute(cmd.Context(), "trace", stdout, stderr, "Tracing %s... Hit Ctrl-C to end.",
			func(o bt.Options) (*bt.Program, error) { return bt.Trace(args, stamp, o) })
	}
	return cmd
}
