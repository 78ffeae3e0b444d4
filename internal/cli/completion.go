// SPDX-License-Identifier: Apache-2.0

package cli

import (
	_ "embed"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/tools"
)

// bashCompletion asks seine for candidates, as cobra's scripts do, but does not
// need the package bash-completion.
//
//go:embed completion.bash
var bashCompletion string

// completionCommand writes the completion script of a shell.
func completionCommand(root *cobra.Command, w io.Writer) *cobra.Command {
	shells := map[string]func() error{
		"bash": func() error { _, err := io.WriteString(w, bashCompletion); return err },
		"fish": func() error { return root.GenFishCompletion(w, true) },
		"zsh":  func() error { return root.GenZshCompletion(w) },
	}
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use:       "completion " + strings.Join(names, "|"),
		Short:     "write completion for a shell: source <(seine completion bash)",
		ValidArgs: names,
		Args:      atMost(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return tool.Usagef("completion: name a shell: %s", strings.Join(names, ", "))
			}
			write := shells[args[0]]
			if write == nil {
				return tool.Usagef("completion: %q is not one of %s", args[0], strings.Join(names, ", "))
			}
			return write()
		},
	}
}

// toolNames returns every tool that is not in given.
func toolNames(given []string) (out []string) {
	for _, t := range tools.All {
		if !slices.Contains(given, t.Name) {
			out = append(out, t.Name+"\t"+t.Short)
		}
	}
	return out
}

// completeCommands names tools and commands, for help and man.
func completeCommands(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, c := range cmd.Root().Commands() {
			if !c.Hidden {
				out = append(out, c.Name()+"\t"+c.Short)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeList completes the values of a flag, each with its meaning after a tab.
func completeList(cmd *cobra.Command, flag string, values ...string) {
	completeWith(cmd, flag, func() []string { return values })
}

func completeWith(cmd *cobra.Command, flag string, values func() []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeWords completes the last word of a list with commas. A sign before a
// word, as --columns has it, stays.
func completeWords(cmd *cobra.Command, flag string, values func() []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		given := strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(",+-", r) })
		sign := ""
		if last := typed[len(before):]; strings.HasPrefix(last, "+") || strings.HasPrefix(last, "-") {
			sign = last[:1]
		}
		for _, v := range values() {
			if id, _, _ := strings.Cut(v, "\t"); !slices.Contains(given, id) {
				out = append(out, before+sign+v)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// completeFlags completes the values of a tool's flags.
func completeFlags(cmd *cobra.Command, t *tool.Tool, cfg any) {
	columns := func(want func(*row.Column) bool, measures bool) func() []string {
		return func() (out []string) {
			schemas, err := t.Schemas(t.Views(cfg))
			if err != nil {
				return nil
			}
			hist := false
			for _, s := range schemas {
				hist = hist || s.HasHist()
				for i := range s.Columns {
					if c := &s.Columns[i]; want(c) && !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(o, c.ID+"\t") }) {
						out = append(out, c.ID+"\t"+c.Help)
					}
				}
			}
			if hist && measures {
				for _, m := range row.Measures {
					out = append(out, m+"\tof the histogram")
				}
			}
			return out
		}
	}
	every := func(*row.Column) bool { return true }
	completeList(cmd, "output", formats(t)...)
	completeWords(cmd, "columns", func() []string {
		return append(columns(every, true)(), "help\tlist the columns with their meaning")
	})
	completeWords(cmd, "sort", columns(every, true))
	completeWords(cmd, "by", columns(func(c *row.Column) bool {
		if t.Kind(cfg) == tool.Counting {
			return c.Key
		}
		return c.Kind != row.Object && c.Kind != row.Time
	}, false))
	completeList(cmd, "view", viewNames(t)...)
	completeList(cmd, "time", "clock\t23:36:01", "micro\t23:36:01.123456", "iso", "rel\tseconds since the start", "unix", "none")
	completeList(cmd, "way", probe.WayNames...)
	completeWords(cmd, "netns", func() []string { return slices.Sorted(maps.Values(host.NetnsNames())) })
	completeWords(cmd, "comm", runningComms)
	completeWith(cmd, "dev", func() (out []string) {
		all, _ := net.Interfaces()
		for _, i := range all {
			out = append(out, i.Name)
		}
		return out
	})
	completeWords(cmd, "family", func() []string { return orNames(t.Sockets.Families, kern.Families) })
	completeWords(cmd, "proto", func() []string { return orNames(t.Sockets.Protos, kern.Protos) })
}

// orNames returns the names that a tool has, or all names.
func orNames[N ~uint16](has []string, all map[N]string) []string {
	if len(has) > 0 {
		return has
	}
	return slices.Sorted(maps.Values(all))
}

// runningComms returns the names of the running processes, each once.
func runningComms() []string {
	names := map[string]bool{}
	files, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			if name := strings.TrimSpace(string(b)); name != "" && !strings.ContainsAny(name, " \t,*\"'\\$`(") {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
