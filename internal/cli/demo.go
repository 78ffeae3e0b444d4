// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

// demoCommand runs a tool over its own traffic.
func demoCommand(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:                "demo TOOL [flags]",
		Short:              "a tool, why or top over traffic of its own, in private network namespaces",
		DisableFlagParsing: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(toolNames(nil), "top", "why"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
				return cmd.Help()
			}
			switch args[0] {
			case "why":
				return demoWhy(cmd, args[1:], stdout, stderr)
			case "top":
				return demoTop(cmd, args[1:], stdout, stderr)
			}
			t, alias := find(args[0])
			if t == nil {
				return unknownCommand(args[0])
			}
			return demo(cmd, t, alias, args[1:], stdout, stderr)
		},
	}
}

func demo(self *cobra.Command, t *tool.Tool, alias *tool.Alias, args []string, stdout, stderr io.Writer) error {
	work := tools.Demos[t.Name]
	if work.Run == nil {
		return fmt.Errorf("%w: there is no demo of %s: %s", probe.ErrNotSupported, t.Name, work.Why)
	}
	cfg := t.NewConfig()
	cmd := &cobra.Command{Use: t.Name}
	c := declare(cmd.Flags(), t, cfg)
	if err := cmd.ParseFlags(args); errors.Is(err, pflag.ErrHelp) {
		return self.Help()
	} else if err != nil {
		return flagError(cmd, err)
	}
	if alias != nil {
		if err := preset(cmd.Flags(), alias.Flags); err != nil {
			return err
		}
	}
	if err := checkPermission(); err != nil {
		return err
	}
	w, err := lab.NewWorld(lab.Options{Hosts: work.Hosts})
	if err != nil {
		return err
	}
	defer w.Close()
	if t.Filters&tool.FilterNetns != 0 {
		for _, h := range w.Hosts() {
			c.filters.netns = append(c.filters.netns, strconv.FormatUint(uint64(w.Netns(h)), 10))
		}
	}
	if t.Once && c.interval == 0 && c.duration == 0 {
		c.duration = time.Hour // the end of the traffic ends the run
	}
	traffic := demoTraffic{world: w}
	r := &run{tool: t, cfg: cfg, flags: c, args: cmd.Flags().Args(), out: stdout, err: stderr}
	r.onReady = func(stop context.CancelFunc) { traffic.begin(func() error { return work.Run(w) }, stop) }
	return traffic.end(r.do(self.Context()))
}
