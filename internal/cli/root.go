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

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/tools"
)

// Main runs seine and returns its exit code.
func Main(args []string, stdout, stderr *os.File) int {
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) && !(len(args) > 1 && args[1] == agentName) { // nohup ignores it, and the agent rereads its configuration
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	// After the first signal, a second one ends the process at once.
	context.AfterFunc(ctx, func() { time.AfterFunc(echo, stop) })

	probe.LearnVersion()
	host.ReleaseCode()
	ctx = begin(ctx, args)
	err := execute(ctx, args, stdout, stderr)
	var asked exitCode // of a script's exit, printed without a message
	if err != nil && code(err) != exitOK && !errors.As(err, &asked) {
		fmt.Fprintf(stderr, "seine: %s\n", oneLine(err))
	}
	return code(err)
}

// echo is the time in which a second signal counts as the first: timeout(1)
// signals the process and then its group.
const echo = 200 * time.Millisecond

// execute runs the command that args name. The program's own name counts too: a
// link named tcplife or funccount runs that tool.
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
	if t, _ := find(name); t != nil || slices.Contains(multiTools, name) {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			return err
		}
		if err := checkLetters(name, cmd.Flags(), rest); err != nil {
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

// attempt keeps the first write error. Cobra ignores it when it prints help.
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

// commands is New, or makes one command alone if only names it. Declaring the flags
// of all the others takes as long as loading a BPF program.
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
				return unknownCommand(args[0])
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
	root.SetOut(&attempt{Writer: stdout})
	root.SetErr(stderr)
	root.SetFlagErrorFunc(flagError)
	root.Flags().BoolVar(&asked, "version", false, "print the version, as 'seine version' does")
	if one := oneCommand(stdout, stderr, only); one != nil {
		root.AddCommand(one)
		return root
	}
	for _, t := range tools.All {
		root.AddCommand(toolCommand(t, nil, stdout, stderr))
		for i := range t.Aliases {
			root.AddCommand(toolCommand(t, &t.Aliases[i], stdout, stderr))
		}
	}
	for _, o := range apart() {
		root.AddCommand(o.make(stdout, stderr))
	}
	root.AddCommand(manCommand(root, stdout), completionCommand(root, stdout))
	return root
}

// maker is a command's name and its constructor.
type maker struct {
	name string
	make func(stdout, stderr io.Writer) *cobra.Command
}

// apart are the commands that are not tools and need no other command.
func apart() []maker {
	return []maker{
		{"run", runCommand}, {"funccount", funccountCommand}, {"stackcount", stackcountCommand}, {"argdist", argdistCommand}, {"trace", traceCommand},
		{"why", whyCommand}, {"top", topCommand}, {"with", withCommand}, {"list", listCommand}, {"doctor", doctorCommand}, {"demo", demoCommand},
		{"record", recordCommand}, {agentName, agentCommand}, {frontName, agentFrontCommand}, {demoName, agentDemoCommand}, {"version", versionCommand},
	}
}

// oneCommand returns the command of this name. It is nil if there is none, or if the
// command needs the others.
func oneCommand(stdout, stderr io.Writer, name string) *cobra.Command {
	if t, alias := find(name); t != nil {
		return toolCommand(t, alias, stdout, stderr)
	}
	for _, o := range apart() {
		if o.name == name {
			return o.make(stdout, stderr)
		}
	}
	return nil
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

// arg is the tool's own argument in its usage line.
func arg(t *tool.Tool) string {
	if t.Arg == "" {
		return ""
	}
	return " [" + strings.ToUpper(t.Arg) + "]"
}

// preset sets the flags of an alias that the user has not set.
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

// flagError turns pflag's errors into usage errors that name the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &number) && errors.As(err, &invalid) && invalid.GetFlag().Name == "count":
		return tool.Usagef("--count: %q is not a number from 1 up", invalid.GetValue())
	case errors.As(err, &number) && errors.As(err, &invalid):
		return tool.Usagef("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), nouns[invalid.GetFlag().Value.Type()])
	case errors.As(err, &invalid):
		return tool.Usagef("--%s: %s", invalid.GetFlag().Name, oneLine(invalid.Unwrap()))
	}
	return tool.Usagef("%s", oneLine(err))
}

// nouns names the values of flags that pflag parses.
var nouns = map[string]string{"bool": "true or false", "int": "a number", "count": "a number", "uint32": "a number from 0 up", "uint64": "a number from 0 up"}

// moved is the replacement of flags that earlier releases had.
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
		return tool.Usagef("%s no longer has the flag %s: write '%s'", cmd.Name(), flag, now)
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

// unknownCommand is the error for a name that is neither a tool's nor a command's.
func unknownCommand(name string) error {
	if ours := elsewhere[name]; ours != "" {
		return tool.Usagef("there is no tool or command %q: use %s", name, ours)
	}
	var names []string
	for _, c := range New(io.Discard, io.Discard).Commands() {
		names = append(names, c.Name())
	}
	return unknown("tool or command", name, names)
}

// unknownTool is the error for a name that is not a tool's, where a command does not serve.
func unknownTool(name string) error {
	var names []string
	for _, t := range tools.All {
		names = append(names, t.Name)
		for _, a := range t.Aliases {
			names = append(names, a.Name)
		}
	}
	return unknown("tool", name, names)
}

func unknown(what, name string, names []string) error {
	if near := row.Nearest(name, names); near != "" {
		return tool.Usagef("there is no %s %q: did you mean %s?", what, name, near)
	}
	return tool.Usagef("there is no %s %q: 'seine list' names them", what, name)
}
