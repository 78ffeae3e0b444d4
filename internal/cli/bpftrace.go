// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"seine/internal/bt"
	"seine/internal/tool"
	"seine/internal/words"
)

// bpftraceName is the name under which seine takes bpftrace's flags.
const bpftraceName = "bpftrace"

// runFlags are those of seine run that have bpftrace's meaning under both names.
type runFlags struct {
	program, command, list, to string
	unsafe, quiet, noWarnings  bool
	dryRun, info               bool
	reads                      int
	include, dirs              []string
}

func (r *runFlags) declare(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&r.program, "program", "e", "", "the program itself")
	fs.StringVarP(&r.command, "command", "c", "", "run this command when all is attached, and end with it; cpid is its process")
	fs.StringVarP(&r.list, "list", "l", "", "list the probes that match; with -v, their arguments too")
	fs.Lookup("list").NoOptDefVal = "*"
	fs.BoolVar(&r.unsafe, "unsafe", false, "allow system() and signal()")
	fs.BoolVarP(&r.quiet, "quiet", "q", false, "say nothing but what the script prints")
	fs.BoolVar(&r.noWarnings, "no-warnings", false, "leave out warnings and notes")
	fs.BoolVar(&r.dryRun, "dry-run", false, "compile the script and attach nothing; probes that are not there are only named")
	fs.BoolVar(&r.info, "info", false, "say what of the language this kernel can do")
	fs.CountVarP(&r.reads, "kernel-errors", "k", "taken for bpftrace's sake: reads that fail give 0 and are not told")
	fs.StringArrayVar(&r.include, "include", nil, "taken for bpftrace's sake: types come from the kernel's BTF")
	fs.StringArrayVarP(&r.dirs, "include-dir", "I", nil, "taken for bpftrace's sake, as --include")
}

// apply puts the flags into the options of a run.
func (r *runFlags) apply(o *bt.Options) {
	o.Unsafe, o.Environment = r.unsafe, os.Environ()
	if r.dryRun {
		o.Environment = append(o.Environment, "BPFTRACE_MISSING_PROBES=warn")
	}
	for _, name := range append(r.include, r.dirs...) {
		if o.Verbose > 0 {
			fmt.Fprintf(o.Err, "seine: %s is not read: types come from the kernel's BTF\n", name)
		}
	}
	if r.noWarnings {
		o.Err = io.Discard
	}
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
		Long:          "seine under the name of bpftrace: the flags are those of bpftrace. seine run has more.",
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
	fs.StringVarP(&buffering, "buffering", "B", "line", "taken for bpftrace's sake: output is written as soon as there is nothing to wait for")
	fs.StringVarP(&debug, "debug", "d", "", "print the BPF instructions and do not run them")
	fs.Lookup("debug").NoOptDefVal = "all"
	fs.BoolVarP(&asked, "version", "V", false, "print the version")
	fs.BoolVar(&fileActivation, "usdt-file-activation", false, "taken for bpftrace's sake: the kernel counts listeners of static probes")
	fs.StringArrayVar(&features, "no-feature", nil, "taken for bpftrace's sake")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch format {
		case "text":
			f.output = "table"
		case "json":
			f.output = bt.BpftraceJSON
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

// run is what seine run and bpftrace have in common.
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
	var named []string
	if n := cmd.ArgsLenAtDash(); n >= 0 { // those of getopt() are behind the dashes
		args, named = namedOptions(args, max(0, len(args)-(all-n)))
	}
	compile := func(o bt.Options) (*bt.Program, error) {
		o.Args, o.Named = args, named
		r.apply(&o)
		return bt.Compile(src, o)
	}
	if !listing && !r.dryRun && !cmd.Flags().Changed("list") {
		return f.execute(cmd.Context(), "run", stdout, stderr, attaching, compile)
	}
	o, err := f.options("run", stdout, stderr)
	if err != nil {
		return err
	}
	o.Child = 1 // there is none yet; cpid may be used
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
		fmt.Fprintf(stderr, "seine: the script is fine: %s\n", words.Count(uint64(p.Probes()), "probe", "probes"))
	}
	return err
}
