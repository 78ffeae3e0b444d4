// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: commands, help, completion, doctor, demo.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/tools"
)

// Main runs seine and returns its exit code.
func Main(args []string, stdout, stderr *os.File) int {
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	// After the first signal the second one ends us at once.
	context.AfterFunc(ctx, func() { time.AfterFunc(echo, stop) })

	probe.LearnVersion()
	err := execute(ctx, args, stdout, stderr)
	var asked exitCode // of a script, which says nothing
	if err != nil && code(err) != exitOK && !errors.As(err, &asked) {
		fmt.Fprintf(stderr, "seine: %s\n", oneLine(err))
	}
	return code(err)
}

// echo is how long after a signal another one is taken for the same wish:
// timeout(1) signals the process and then its group.
const echo = 200 * time.Millisecond

// execute runs the command that args name: by the first of them if that is the
// name of a tool, as where seine is linked to as tcplife or funccount.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	name, rest := filepath.Base(args[0]), args[1:]
	if name == bpftraceName {
		cmd := bpftraceCommand(stdout, stderr)
		cmd.SetArgs(rest)
		cmd.SetOut(stdout)
		cmd.SetErr(stderr)
		return cmd.ExecuteContext(ctx)
	}
	only := name
	if t, _ := find(name); t == nil && len(rest) > 0 {
		only = rest[0]
	}
	root := commands(stdout, stderr, only)
	bccName := name
	t, _ := find(name)
	if t != nil {
		bccName = t.Name
	}
	if t != nil || slices.Contains(multiTools, name) {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			return err
		}
		if err := checkLetters(bccName, cmd.Flags(), rest); err != nil {
			return err
		}
		rest = append([]string{name}, rest...)
	}
	root.SetArgs(rest)
	if err := root.ExecuteContext(ctx); err != nil {
		return err
	}
	return root.OutOrStdout().(*attempt).err
}

// attempt keeps why something could not be written, which cobra does not when it
// prints help.
type attempt struct {
	io.Writer
	err error
}

func (a *attempt) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	if err != nil {
		a.err = err
	}
	return n, err
}

// oneLine is an error for the user: without line breaks and verifier logs.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// New returns the command tree.
func New(stdout, stderr io.Writer) *cobra.Command { return commands(stdout, stderr, "") }

// commands is New, with one tool alone where only names one: to make the flags of
// all the others takes as long as to load a program.
func commands(stdout, stderr io.Writer, only string) *cobra.Command {
	var asked bool
	root := &cobra.Command{
		Use:           "seine",
		Short:         "casts a net over the Linux network stack",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			if asked {
				return writeVersion(stdout)
			}
			overview(cmd.OutOrStdout())
			return nil
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	root.DisableAutoGenTag = true // man pages are the same tomorrow
	root.SetOut(&attempt{Writer: stdout})
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	root.Flags().BoolVar(&asked, "version", false, "the same as seine version")
	all := tools.All
	if t, _ := find(only); t != nil {
		all = []*tool.Tool{t}
	}
	for _, t := range all {
		root.AddCommand(toolCommand(t, nil, stdout, stderr))
		for i := range t.Aliases {
			root.AddCommand(toolCommand(t, &t.Aliases[i], stdout, stderr))
		}
	}
	root.AddCommand(btCommands(stdout, stderr)...)
	root.AddCommand(whyCommand(stdout, stderr), topCommand(stdout, stderr), withCommand(stdout, stderr), listCommand(stdout), doctorCommand(stdout, stderr), demoCommand(stdout, stderr), recordCommand(stdout, stderr),
		manCommand(root, stdout), completionCommand(root, stdout), versionCommand(stdout))
	return root
}

// find looks up a tool by its name or one of its aliases.
func find(name string) (*tool.Tool, *tool.Alias) {
	for _, t := range tools.All {
		if t.Name == name {
			return t, nil
		}
		if i := slices.IndexFunc(t.Aliases, func(a tool.Alias) bool { return a.Name == name }); i >= 0 {
			return t, &t.Aliases[i]
		}
	}
	return nil, nil
}

// toolCommand is the command of a tool, or of another name for it.
func toolCommand(t *tool.Tool, alias *tool.Alias, stdout, stderr io.Writer) *cobra.Command {
	cfg := t.NewConfig()
	cmd := &cobra.Command{
		Use:     t.Name + arg(t) + " [flags] [interval [count]]",
		Short:   t.Short,
		Long:    long(t),
		Example: examples(t),
		GroupID: "",
	}
	cmd.SetFlagErrorFunc(flagError)
	c := declare(cmd.Flags(), t, cfg)
	completeFlags(cmd, t, cfg)
	if alias != nil {
		cmd.Use, cmd.Short, cmd.Hidden = alias.Name+" [flags] [interval [count]]", alias.Short, true
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if alias != nil {
			if err := preset(cmd.Flags(), alias.Flags); err != nil {
				return err
			}
		}
		r := &run{tool: t, cfg: cfg, flags: c, args: args, out: stdout, err: stderr}
		return r.do(cmd.Context())
	}
	return cmd
}

// arg is a tool's own word, for its usage line.
func arg(t *tool.Tool) string {
	if t.Arg == "" {
		return ""
	}
	return " [" + strings.ToUpper(t.Arg) + "]"
}

// preset sets an alias's flags unless the user has.
func preset(fs *pflag.FlagSet, flags []string) error {
	for _, f := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(f, "--"), "=")
		if fl := fs.Lookup(name); fl != nil && !fl.Changed {
			if err := fs.Set(name, value); err != nil {
				return tool.Usagef("%v", err)
			}
		}
	}
	return nil
}

// Parse turns flags into a config and options, for trials.
func Parse(t *tool.Tool, flags []string) (any, tool.Options, error) {
	cfg := t.NewConfig()
	fs := pflag.NewFlagSet(t.Name, pflag.ContinueOnError)
	c := declare(fs, t, cfg)
	if err := fs.Parse(flags); err != nil {
		return nil, tool.Options{}, tool.Usagef("%v", err)
	}
	o, err := c.options(t, cfg, fs.Args())
	return cfg, o, err
}

// flagError makes usage errors of what pflag says, with the nearest name.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &number) && errors.As(err, &invalid) && invalid.GetFlag().Name == "count":
		return tool.Usagef("--count: %q is no number from 1 up", invalid.GetValue())
	case errors.As(err, &number) && errors.As(err, &invalid):
		return tool.Usagef("--%s: %q is no %s", invalid.GetFlag().Name, invalid.GetValue(), nouns[invalid.GetFlag().Value.Type()])
	case errors.As(err, &invalid):
		return tool.Usagef("--%s: %s", invalid.GetFlag().Name, oneLine(invalid.Unwrap()))
	}
	return tool.Usagef("%s", oneLine(err))
}

// nouns is what the values of flags are called where pflag reads them.
var nouns = map[string]string{"bool": "true or false", "int": "number", "count": "number", "uint32": "number from 0 up", "uint64": "number from 0 up"}

// moved is what took the place of flags that earlier releases had.
var moved = map[string]string{"gethostlatency --packets": "seine dns"}

func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	flag, where := "--"+e.GetSpecifiedName(), "seine help "+cmd.Name()
	if e.GetSpecifiedShortnames() != "" {
		flag = "-" + e.GetSpecifiedName()
	}
	if !cmd.HasParent() && cmd.Name() == "seine" {
		where = "seine help"
	}
	if now := moved[cmd.Name()+" "+flag]; now != "" {
		return tool.Usagef("%s has no flag %s any more: write '%s'", cmd.Name(), flag, now)
	}
	if ours := bccFlag(cmd.Name(), e.GetSpecifiedName()); ours != "" {
		return tool.Usagef("%s has no flag %s, which BCC has: write %s", cmd.Name(), flag, ours)
	}
	if o := cmd.Flags().Lookup("output"); o != nil {
		if _, formats, ok := strings.Cut(o.Usage, "format: "); ok && slices.Contains(strings.Split(formats, ", "), e.GetSpecifiedName()) {
			return tool.Usagef("%s has no flag %s: write -o %s", cmd.Name(), flag, e.GetSpecifiedName())
		}
	}
	if near := nearestFlag(cmd.Flags(), e.GetSpecifiedName()); near != "" && flag[1] == '-' {
		return tool.Usagef("%s has no flag %s: did you mean --%s?", cmd.Name(), flag, near)
	}
	return tool.Usagef("%s has no flag %s: see '%s'", cmd.Name(), flag, where)
}

func unknownCommand(root *cobra.Command, name string) error {
	if ours := elsewhere[name]; ours != "" {
		return tool.Usagef("there is no tool or command %q: what it does elsewhere does %s", name, ours)
	}
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	if near := row.Nearest(name, names); near != "" {
		return tool.Usagef("there is no tool or command %q: did you mean %s?", name, near)
	}
	return tool.Usagef("there is no tool or command %q: 'seine list' names them", name)
}
