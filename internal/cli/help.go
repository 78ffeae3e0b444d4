// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/tool"
	"seine/tools"
)

// overview is the output of seine without arguments.
func overview(w io.Writer) {
	fmt.Fprint(w, "seine casts a net over the Linux network stack: one binary, one tool for each question.\n\n")
	toolsByLayer(w)
	fmt.Fprint(w, `
First things to try (as root):
  seine why                 what is wrong with this machine's network, and what to do about it
  seine top                 this machine's network on one screen
  seine demo tcplife        the tool over traffic of its own
  seine tcplife             every TCP session of this machine, as it ends
  seine doctor              which tools work on this kernel, and how they attach

For questions that no tool answers: 'seine run' runs programs of the bpftrace language;
funccount, stackcount, argdist and trace work as BCC's.

'seine help TOOL' explains a tool; 'seine TOOL --columns help' lists its columns.
`)
}

func toolsByLayer(w io.Writer) {
	for _, l := range tool.Layers {
		for _, t := range tools.All {
			if t.Layer == l {
				fmt.Fprintf(w, "  %-7s %-16s %s\n", l, t.Name, t.Short)
			}
		}
	}
}

// section returns the part of a README under a heading, without the heading.
func section(readme, heading string) string {
	_, rest, ok := strings.Cut(readme, "\n## "+heading+"\n")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.Trim(text, "\n")
}

// lead is the text between a README's title and its first heading.
func lead(readme string) string {
	_, rest, _ := strings.Cut(readme, "\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.Trim(text, "\n")
}

// long is the help text of a tool: the lead of its README, and what it misses.
func long(t *tool.Tool) string {
	text := lead(t.Doc)
	if m := section(t.Doc, "What it misses"); m != "" {
		text += "\n\nWhat it misses:\n\n" + m
	}
	return text
}

// examples is the code block of the README's section Examples.
func examples(t *tool.Tool) string {
	var out []string
	for line := range strings.SplitSeq(section(t.Doc, "Examples"), "\n") {
		if cmd, ok := strings.CutPrefix(line, "    "); ok {
			out = append(out, "  "+cmd)
		}
	}
	return strings.Join(out, "\n")
}

// helpCommand explains seine or one of its tools and commands.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:               "help [TOOL | COMMAND]",
		Short:             "explain a tool or a command",
		Args:              atMost(1),
		ValidArgsFunction: completeCommands,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return root.Help()
			}
			for _, c := range root.Commands() {
				if c.Name() == args[0] {
					c.InitDefaultHelpFlag()
					return c.Help()
				}
			}
			return unknownCommand(args[0])
		},
	}
}

// atMost limits the number of a command's arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return tool.Usagef("%s: too many arguments: %q", cmd.Name(), args[n])
		}
		return nil
	}
}

// OwnFlags is the help of the flags that t has beyond the common ones.
func OwnFlags(t *tool.Tool) string {
	fs := pflag.NewFlagSet(t.Name, pflag.ContinueOnError)
	fs.SortFlags = false
	settings(fs, t.NewConfig())
	return fs.FlagUsages()
}
