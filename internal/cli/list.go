// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"seine/internal/host"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

// listed is a tool in the output of list.
type listed struct {
	Tool    string   `json:"tool"`
	Layer   string   `json:"layer"`
	Short   string   `json:"short"`
	Aliases []string `json:"aliases,omitempty"`
	Status  string   `json:"status"` // runs, or the reason why not
}

func listCommand(w, _ io.Writer) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "every tool, and whether it runs on this kernel",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			if output != "table" && output != "json" {
				return tool.Usagef("-o %s: list writes table and json", output)
			}
			for _, l := range tool.Layers {
				for _, t := range tools.All {
					if t.Layer != l {
						continue
					}
					if err := writeListed(w, t, output); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "format: table, json")
	completeList(cmd, "output", "table", "json")
	new(btfFlag).of(cmd)
	return cmd
}

func writeListed(w io.Writer, t *tool.Tool, output string) error {
	e := listed{Tool: t.Name, Layer: string(t.Layer), Short: t.Short, Status: status(t)}
	for _, a := range t.Aliases {
		e.Aliases = append(e.Aliases, a.Name)
	}
	if output == "json" {
		return json.NewEncoder(w).Encode(e)
	}
	wide := 0
	for _, t := range tools.All {
		wide = max(wide, len(t.Short))
	}
	_, err := fmt.Fprintf(w, "%-7s %-16s %-*s %s\n", e.Layer, e.Tool, wide, e.Short, e.Status)
	return err
}

// status says whether t would run here, judged by BTF alone.
func status(t *tool.Tool) string {
	k, err := probe.Running()
	if err != nil {
		return "no: " + probe.Reason(err)
	}
	spec, err := object.Spec(t.Name)
	if err != nil {
		return "no: " + err.Error()
	}
	points := t.AllPoints(spec, t.NewConfig())
	if m := probe.Missing(points, probe.Predict(k, spec, points, probe.Force{})); len(m) > 0 {
		e := &probe.PointError{Choice: m[0]}
		var untold probe.Untold
		if errors.As(e, &untold) {
			return privileged(t)
		}
		return "no: " + e.Error()
	}
	return privileged(t)
}

// privileged says whether this process may run t: "runs", or the missing privileges.
func privileged(t *tool.Tool) string {
	if host.HasCap(host.CapSysAdmin) {
		return "runs"
	}
	p, err := tool.Prepare(t, t.NewConfig(), tool.Options{})
	if err != nil {
		return "no: " + oneLine(err)
	}
	must, _ := p.Needs()
	var missing []string
	for _, m := range must {
		if name := m.Cap.String(); !host.HasCap(m.Cap) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return "runs"
	}
	return "needs " + strings.Join(missing, ", ") + ": run as root"
}
