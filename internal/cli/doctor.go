// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

// diagnosis is what doctor finds out, as -o json writes it.
type diagnosis struct {
	Kernel  string            `json:"kernel"`
	Arch    string            `json:"arch"`
	BTF     bool              `json:"btf"`
	Missing []string          `json:"missing_capabilities,omitempty"`
	Cgroup2 string            `json:"cgroup2,omitempty"`
	Tracefs string            `json:"tracefs,omitempty"`
	Ways    map[string]string `json:"ways"` // what the kernel offers: yes, or why not
	Sysctls map[string]string `json:"sysctls"`
	Tools   []toolDiagnosis   `json:"tools"`
}

type toolDiagnosis struct {
	Tool     string           `json:"tool"`
	Runs     bool             `json:"runs"`
	Why      string           `json:"why,omitempty"`
	Needs    []privilege      `json:"needs,omitempty"`  // capabilities that it takes
	Better   []privilege      `json:"better,omitempty"` // those that make it see more, or cost less
	Keeps    []privilege      `json:"keeps,omitempty"`  // those that it holds on to once it is attached
	Points   []pointDiagnosis `json:"points,omitempty"`
	Selftest []testDiagnosis  `json:"selftest,omitempty"`
}

type pointDiagnosis struct {
	Point   string    `json:"point"`
	Way     string    `json:"way,omitempty"`
	Misses  string    `json:"misses,omitempty"`
	Refused []refusal `json:"refused,omitempty"`
}

type privilege struct {
	Capability string `json:"capability"`
	For        string `json:"for"`
}

func privileges(ps []tool.Privilege) (out []privilege) {
	for _, p := range ps {
		out = append(out, privilege{p.Cap.String(), p.Why})
	}
	return out
}

type refusal struct {
	Way string `json:"way"`
	Why string `json:"why"`
}

type testDiagnosis struct {
	Case string `json:"case"`
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"`
}

func doctorCommand(stdout, stderr io.Writer) *cobra.Command {
	var output string
	var selftest bool
	cmd := &cobra.Command{
		Use:   "doctor [TOOL…]",
		Short: "what works on this kernel, by which way, and what would help",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return tool.Usagef("-o %s: doctor writes table and json", output)
			}
			chosen := tools.All
			if len(args) > 0 {
				chosen = nil
			}
			for _, name := range args {
				t, _ := find(name)
				if t == nil {
					return unknownCommand(cmd.Root(), name)
				}
				chosen = append(chosen, t)
			}
			d := examine(cmd.Context(), chosen, selftest, stderr)
			if output == "json" {
				return json.NewEncoder(stdout).Encode(d)
			}
			return d.write(stdout)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "format: table, json")
	cmd.Flags().BoolVar(&selftest, "selftest", false, "make each tool's known traffic and check that it is seen")
	return cmd
}

func examine(ctx context.Context, chosen []*tool.Tool, selftest bool, progress io.Writer) *diagnosis {
	d := &diagnosis{Kernel: host.KernelVersion(), Arch: runtime.GOARCH, Missing: host.Caps(), Ways: map[string]string{}, Sysctls: map[string]string{}}
	d.Cgroup2, _ = host.Cgroup2()
	d.Tracefs, _ = host.Tracefs()
	for _, name := range []string{"kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid", "kernel.kptr_restrict", "net.core.bpf_jit_enable", "kernel.bpf_stats_enabled"} {
		if v, ok := host.Sysctl(name); ok {
			d.Sysctls[name] = v
		}
	}
	k, err := probe.Running()
	d.BTF = err == nil
	if err == nil {
		for way, err := range k.Offers() {
			d.Ways[way] = "yes"
			if err != nil {
				d.Ways[way] = probe.Reason(err)
			}
		}
	}
	for i, t := range chosen {
		if selftest {
			fmt.Fprintf(progress, "seine: self-test %d of %d: %s\n", i+1, len(chosen), t.Name)
		}
		d.Tools = append(d.Tools, examineTool(ctx, t, selftest))
	}
	return d
}

func examineTool(ctx context.Context, t *tool.Tool, selftest bool) toolDiagnosis {
	d := toolDiagnosis{Tool: t.Name}
	choices, err := d.attachOnce(t)
	for _, c := range choices {
		p := pointDiagnosis{Point: c.Point, Way: c.Way, Misses: c.Misses}
		for _, r := range c.Refused {
			p.Refused = append(p.Refused, refusal{r.Way, probe.Reason(r.Err)})
		}
		d.Points = append(d.Points, p)
	}
	if err != nil {
		d.Why = oneLine(err)
		return d
	}
	d.Runs = true
	if !selftest {
		return d
	}
	for _, c := range t.Live {
		if c.Slow || ctx.Err() != nil {
			continue
		}
		r := testDiagnosis{Case: c.Name}
		if _, err := tool.RunCase(ctx, t, c, "", Parse, NamersOf); err != nil {
			r.Why = oneLine(err)
			r.OK = errors.Is(err, tool.ErrSkip)
		} else {
			r.OK = true
		}
		d.Selftest = append(d.Selftest, r)
	}
	return d
}

// attachOnce attaches t as a run would, and lets go of it at once.
func (d *toolDiagnosis) attachOnce(t *tool.Tool) ([]probe.Choice, error) {
	p, err := tool.Prepare(t, t.NewConfig(), tool.Options{})
	if err != nil {
		return nil, err
	}
	must, better := p.Needs()
	d.Needs, d.Better = privileges(must), privileges(better)
	if err := checkPermission(); err != nil {
		return nil, err
	}
	s, err := p.Attach()
	if err != nil {
		var pe *probe.PointError
		if errors.As(err, &pe) {
			return []probe.Choice{pe.Choice}, err
		}
		return nil, err
	}
	defer s.Close()
	d.Keeps = privileges(s.Keeps(s.Shown()))
	return s.Choices, nil
}

func (d *diagnosis) write(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "kernel        %s (%s)\n", d.Kernel, d.Arch)
	fmt.Fprintf(b, "BTF           %s\n", yes(d.BTF, "none: seine needs CONFIG_DEBUG_INFO_BTF"))
	caps := "all that are needed"
	if len(d.Missing) > 0 {
		caps = "missing " + strings.Join(d.Missing, ", ") + ": run as root"
	}
	fmt.Fprintf(b, "capabilities  %s\n", caps)
	fmt.Fprintf(b, "cgroup2       %s\n", mounted(d.Cgroup2))
	fmt.Fprintf(b, "tracefs       %s\n", mounted(d.Tracefs))
	for _, way := range probe.WayNames {
		if why, ok := d.Ways[way]; ok {
			fmt.Fprintf(b, "%-13s %s\n", way, why)
		}
	}
	for _, name := range []string{"kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid", "kernel.kptr_restrict", "net.core.bpf_jit_enable", "kernel.bpf_stats_enabled"} {
		if v, ok := d.Sysctls[name]; ok {
			fmt.Fprintf(b, "%s = %s\n", name, v)
		}
	}
	for _, t := range d.Tools {
		b.WriteString("\n")
		t.write(b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *toolDiagnosis) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s\n", t.Tool, yes(t.Runs, "does not run: "+t.Why))
	fmt.Fprintf(b, "  needs            %s\n", inWords(t.Needs))
	if len(t.Better) > 0 {
		fmt.Fprintf(b, "  better with      %s\n", inWords(t.Better))
	}
	if t.Runs {
		fmt.Fprintf(b, "  keeps            %s\n", inWords(t.Keeps))
	}
	for _, p := range t.Points {
		fmt.Fprintf(b, "  %-16s %s\n", p.Point, or(p.Way, "none"))
		if p.Misses != "" {
			fmt.Fprintf(b, "  %-16s   not seen: %s\n", "", p.Misses)
		}
		for _, r := range p.Refused {
			fmt.Fprintf(b, "  %-16s   not %s: %s\n", "", r.Way, r.Why)
		}
	}
	for _, s := range t.Selftest {
		fmt.Fprintf(b, "  self-test %-12s %s\n", s.Case, yes(s.OK, "FAILED: "+s.Why))
	}
}

// inWords lists capabilities, those for the same purpose together.
func inWords(ps []privilege) string {
	text := ""
	for i, p := range ps {
		if i > 0 {
			text += ", "
		}
		text += p.Capability
		if i == len(ps)-1 || ps[i+1].For != p.For {
			text += " (" + p.For + ")"
		}
	}
	return or(text, "none")
}

func yes(ok bool, no string) string {
	if ok {
		return "yes"
	}
	return no
}

func or(s, none string) string {
	if s == "" {
		return none
	}
	return s
}

func mounted(path string) string {
	switch {
	case path == "":
		return "cannot be had"
	case strings.HasPrefix(path, "/proc/self/fd/"):
		return "mounted for this process alone"
	}
	return path
}
