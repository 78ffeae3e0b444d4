// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"seine/internal/bt"
	"seine/internal/tool"
	"seine/internal/words"
)

// bpftraceName is the program name under which seine takes bpftrace's flags.
const bpftraceName = "bpftrace"

// bpftraceJSON is the output of bpftrace -f json.
const bpftraceJSON = "bpftrace-json"

// runFlags are the flags of seine run that mean the same in bpftrace.
type runFlags struct {
	program, command, list, to string
	filter                     string
	bench, test, children      bool
	unsafe, quiet, noWarnings  bool
	dryRun, info               bool
	reads                      int
	include, dirs              []string
}

func (r *runFlags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&r.program, "program", "e", "", "the program itself")
	fs.StringVarP(&r.command, "command", "c", "", "run this command once all probes are attached, and end with it; cpid is its process id")
	fs.StringVarP(&r.list, "list", "l", "", "list the probes that match; with -v, their arguments too")
	fs.Lookup("list").NoOptDefVal = "*"
	fs.BoolVar(&r.unsafe, "unsafe", false, "allow system(), signal(), write_user() and override()")
	fs.BoolVarP(&r.quiet, "quiet", "q", false, "print only the output of the script")
	fs.BoolVar(&r.noWarnings, "no-warnings", false, "leave out warnings and notes")
	fs.BoolVar(&r.dryRun, "dry-run", false, "compile the script and attach nothing; probes that do not exist are only named")
	fs.BoolVar(&r.info, "info", false, "print which parts of the language this kernel supports")
	fs.CountVarP(&r.reads, "kernel-errors", "k", "report reads of memory that fail; without it they give 0 silently")
	fs.StringArrayVar(&r.include, "include", nil, "read this header first: its structs, enums, typedefs and #defines (may be repeated)")
	fs.StringArrayVarP(&r.dirs, "include-dir", "I", nil, "look for headers in this folder too (may be repeated)")
	fs.StringVar(&r.filter, "probe-filter", "", "only the probes whose full name matches this regular expression, and BEGIN and END")
	fs.BoolVar(&r.bench, "bench", false, "run the bench probes of the script, and print how long each takes")
	fs.BoolVar(&r.test, "test", false, "run the test probes of the script; exit code 1 if one fails")
}

// apply puts the flags into the options of a run.
func (r *runFlags) apply(o *bt.Options) error {
	o.Unsafe, o.Environment, o.Reads, o.Headers, o.Children = r.unsafe, os.Environ(), r.reads > 0, r.include, r.children
	switch {
	case r.bench && r.test:
		return tool.Usagef("--bench and --test exclude each other")
	case r.bench:
		o.Mode = bt.ToBench
	case r.test:
		o.Mode = bt.ToTest
	}
	if r.filter != "" {
		var err error
		if o.Filter, err = regexp.Compile(r.filter); err != nil {
			return tool.Usagef("--probe-filter: %v", err)
		}
	}
	if r.children && len(o.PIDs) == 0 {
		return tool.Usagef("--children goes with -p")
	}
	if r.dryRun {
		o.Check, o.Environment = true, append(o.Environment, "BPFTRACE_MISSING_PROBES=warn")
	}
	if r.noWarnings {
		o.Err = io.Discard
	}
	return nil
}

// bpftraceCommand is seine run with bpftrace's flags: -o names a file, -f a format.
func bpftraceCommand(stdout, stderr io.Writer) *cobra.Command {
	f, r := &btFlags{}, &runFlags{}
	var format, buffering, debug string
	var asked, fileActivation bool
	var features []string
	cmd := &cobra.Command{
		Use:           "bpftrace [flags] FILE.bt [args] | -e 'PROGRAM' [args] | -l [PATTERN]",
		Short:         "runs programs of the bpftrace language, with bpftrace's flags",
		Long:          "seine under the name of bpftrace takes bpftrace's flags. seine run has more.",
		SilenceErrors: true, SilenceUsage: true,
	}
	r.declare(cmd)
	fs := cmd.Flags()
	fs.SortFlags = false
	cmd.SetFlagErrorFunc(flagError)
	fs.StringVarP(&r.to, "output", "o", "", "write what the script prints to this file")
	fs.StringVarP(&format, "format", "f", "text", "text or json")
	fs.StringVarP(&f.pids, "pid", "p", "", "only this process")
	fs.CountVarP(&f.verbose, "verbose", "v", "explain what is attached and why")
	fs.StringVarP(&buffering, "buffering", "B", "line", "accepted for compatibility and ignored: output is written as soon as it is complete")
	fs.StringVarP(&debug, "debug", "d", "", "print the BPF instructions and do not run them")
	fs.Lookup("debug").NoOptDefVal = "all"
	fs.BoolVarP(&asked, "version", "V", false, "print the version")
	fs.BoolVar(&fileActivation, "usdt-file-activation", false, "accepted for compatibility and ignored: the kernel counts the listeners of static probes")
	fs.StringArrayVar(&features, "no-feature", nil, "accepted for compatibility and ignored")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch format {
		case "text":
			f.output = "table"
		case "json":
			f.output = bpftraceJSON
		default:
			return tool.Usagef("-f %s: text or json", format)
		}
		if asked {
			_, err := fmt.Fprintf(stdout, "bpftrace (seine %s)\n", version())
			return err
		}
		return r.run(cmd, f, stdout, stderr, args, debug != "")
	}
	return cmd
}

// run runs a program for both seine run and bpftrace.
func (r *runFlags) run(cmd *cobra.Command, f *btFlags, stdout, stderr io.Writer, args []string, listing bool) (err error) {
	if r.info {
		return bt.Info(stdout)
	}
	if r.to != "" {
		file, err := os.Create(r.to)
		if err != nil {
			return tool.Usagef("%v", err)
		}
		defer func() {
			if e := file.Close(); err == nil {
				err = e
			}
		}()
		stdout = file
	}
	if cmd.Flags().Changed("list") && !cmd.Flags().Changed("program") {
		return listProbes(stdout, stderr, r.list, args, f.verbose > 0)
	}
	f.command, f.quiet = r.command, r.quiet
	all := len(args)
	src := &bt.Source{Name: "-e", Text: r.program}
	if !cmd.Flags().Changed("program") {
		if len(args) == 0 {
			return tool.Usagef("%s needs a file, or a program with -e", cmd.Name())
		}
		data, err := readScript(args[0])
		if err != nil {
			return tool.Usagef("%v", err)
		}
		src, args = &bt.Source{Name: args[0], Text: data}, args[1:]
	}
	src.Dirs = r.dirs
	var named []string
	if n := cmd.ArgsLenAtDash(); n >= 0 { // the options of getopt() come after the dashes
		args, named = namedOptions(args, max(0, len(args)-(all-n)))
	}
	compile := func(o bt.Options) (*bt.Program, error) {
		o.Args, o.Named = args, named
		if err := r.apply(&o); err != nil {
			return nil, err
		}
		return bt.Compile(src, o)
	}
	if !listing && !r.dryRun && !cmd.Flags().Changed("list") {
		return f.execute(cmd.Context(), "run", stdout, stderr, attaching, compile)
	}
	o, err := f.options("run", stdout, stderr)
	if err != nil {
		return err
	}
	o.Child = 1 // not started yet, but scripts may use cpid
	p, err := compile(o)
	if err != nil {
		return btError(stderr, err)
	}
	switch {
	case cmd.Flags().Changed("list"): // -l -e lists what the program attaches to
		_, err = io.WriteString(stdout, strings.Join(p.Names(), "\n")+"\n")
	case listing:
		_, err = io.WriteString(stdout, p.Listing())
	case !r.quiet:
		fmt.Fprintf(stderr, "seine: the script is valid: %s\n", words.Count(uint64(p.Probes()), "probe", "probes"))
	}
	return err
}
