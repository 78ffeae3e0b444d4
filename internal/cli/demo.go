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

// settle is how long the last events of a workload may take to become rows.
const settle = 300 * time.Millisecond

// demoCommand runs a tool over its own traffic.
func demoCommand(stdout, stderr io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:                "demo TOOL [flags]",
		Short:              "a tool, or why, over traffic of its own, in private network namespaces",
		DisableFlagParsing: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return append(toolNames(nil), "why"), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
				return cmd.Help()
			}
			if args[0] == "why" {
				return demoWhy(cmd, args[1:], stdout, stderr)
			}
			t, alias := find(args[0])
			if t == nil {
				return unknownCommand(cmd.Root(), args[0])
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
	traffic, begun := make(chan error, 1), false
	r := &run{tool: t, cfg: cfg, flags: c, args: cmd.Flags().Args(), out: stdout, err: stderr}
	r.onReady = func(stop context.CancelFunc) {
		begun = true
		go func() {
			traffic <- work.Run(w)
			time.Sleep(settle)
			stop()
		}()
	}
	err = r.do(self.Context())
	if !begun {
		return err
	}
	select {
	case trouble := <-traffic:
		return errors.Join(err, trouble)
	default: // the user, -n or -d ended it first
		w.Stop()
		<-traffic
		return err
	}
}
