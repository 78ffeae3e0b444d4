// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/internal/words"
	"seine/tools"
)

// diagnosis is the output of doctor, as -o json writes it.
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
	Verdict string            `json:"verdict"` // one line
}

type toolDiagnosis struct {
	Tool     string           `json:"tool"`
	Runs     bool             `json:"runs"`
	Why      string           `json:"why,omitempty"`
	Needs    []privilege      `json:"needs,omitempty"`  // capabilities that it cannot run without
	Better   []privilege      `json:"better,omitempty"` // capabilities that let it see more or cost less
	Keeps    []privilege      `json:"keeps,omitempty"`  // capabilities that it keeps after it is attached
	Points   []pointDiagnosis `json:"points,omitempty"`
	Verdict  string           `json:"verdict,omitempty"` // of the self-test
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

func doctorCommand(stdout, stderr io.Writer) *cobra.Command {
	var output string
	var selftest bool
	var verbose int
	cmd := &cobra.Command{
		Use:   "doctor [TOOL…]",
		Short: "which tools work on this kernel, how they attach, and what is missing",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return toolNames(args), cobra.ShellCompDirectiveNoFileComp
		},
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
					return unknownCommand(name)
				}
				chosen = append(chosen, t)
			}
			report := &report{details: verbose > 0 || len(args) > 0}
			if output == "table" {
				report.w = stdout
			} else if f, ok := stderr.(*os.File); ok {
				if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
					report.w = stderr
				}
			}
			d := examineHost()
			report.host(d, selftest)
			for _, t := range chosen {
				report.begin(t)
				one := examineTool(t)
				if selftest {
					one.selftest(cmd.Context(), tools.Selftests[t.Name], func(c trial.Case) error {
						_, err := trial.RunCase(cmd.Context(), t, c, "")
						return err
					})
				}
				d.Tools = append(d.Tools, one)
				report.tool(&one)
			}
			var verdict error
			if selftest {
				d.Verdict, verdict = d.judge()
			} else {
				d.Verdict = d.count()
			}
			if output == "json" {
				return errors.Join(json.NewEncoder(stdout).Encode(d), verdict)
			}
			return errors.Join(report.end(d), verdict)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "format: table, json")
	completeList(cmd, "output", "table", "json")
	cmd.Flags().BoolVar(&selftest, "selftest", false, "run one or two cases of known traffic for each tool and compare its rows; exits 3 if a tool was not seen to work, 4 if privileges are missing")
	new(btfFlag).of(cmd)
	cmd.Flags().CountVarP(&verbose, "verbose", "v", "print the details of every tool; without it only those of tools that are named")
	return cmd
}

// sysctls are the sysctls that matter to BPF.
var sysctls = []string{"kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid", "kernel.kptr_restrict", "net.core.bpf_jit_enable", "kernel.bpf_stats_enabled"}

// examineHost examines what does not depend on a tool.
func examineHost() *diagnosis {
	d := &diagnosis{Kernel: host.KernelVersion(), Arch: runtime.GOARCH, Missing: host.Caps(), Ways: map[string]string{}, Sysctls: map[string]string{}}
	d.Cgroup2, _ = host.Cgroup2()
	d.Tracefs, _ = host.Tracefs()
	for _, name := range sysctls {
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
	return d
}

// examineTool examines t by attaching it once.
func examineTool(t *tool.Tool) toolDiagnosis {
	d := toolDiagnosis{Tool: t.Name}
	choices, err := d.attachOnce(t)
	for _, c := range choices {
		p := pointDiagnosis{Point: c.Point, Way: c.Way, Misses: c.Misses}
		for _, r := range c.Refused {
			p.Refused = append(p.Refused, refusal{r.Way, probe.Reason(r.Err)})
		}
		d.Points = append(d.Points, p)
	}
	d.Runs = err == nil
	if err != nil {
		d.Why = oneLine(err)
		d.Verdict = cannot
		if code(err) == exitPermission && !host.HasCap(host.CapSysAdmin) {
			d.Verdict = denied
		}
	}
	return d
}

// attachOnce attaches t as a run would, and detaches it at once.
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

// count is the last line of doctor without a self-test.
func (d *diagnosis) count() string {
	runs := 0
	for i := range d.Tools {
		if d.Tools[i].Runs {
			runs++
		}
		d.Tools[i].Verdict = "" // only the self-test has verdicts
	}
	return fmt.Sprintf("%d of %s run here; 'seine doctor TOOL' gives details, 'seine doctor --selftest' tests them on known traffic", runs, words.Count(uint64(len(d.Tools)), "tool", "tools"))
}

// A report writes doctor's text. It writes the name of a tool first and its result when
// the tool is done, so that a user sees which tool takes the time.
type report struct {
	w        io.Writer // nil: nowhere
	err      error
	details  bool
	selftest bool
}

func (r *report) print(format string, args ...any) {
	if r.w != nil && r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format, args...)
	}
}

func (r *report) host(d *diagnosis, selftest bool) {
	r.selftest = selftest
	r.print("kernel        %s (%s)\n", d.Kernel, d.Arch)
	if selftest && !r.details {
		return
	}
	r.print("BTF           %s\n", yes(d.BTF, "none: seine needs CONFIG_DEBUG_INFO_BTF"))
	caps := "all that seine needs"
	if len(d.Missing) > 0 {
		caps = "missing " + strings.Join(d.Missing, ", ") + ": run as root"
	}
	r.print("capabilities  %s\n", caps)
	r.print("cgroup2       %s\n", mounted(d.Cgroup2))
	r.print("tracefs       %s\n", mounted(d.Tracefs))
	for _, way := range probe.WayNames {
		if why, ok := d.Ways[way]; ok {
			r.print("%-13s %s\n", way, why)
		}
	}
	for _, name := range sysctls {
		if v, ok := d.Sysctls[name]; ok {
			r.print("%s = %s\n", name, v)
		}
	}
	r.print("\n")
}

func (r *report) begin(t *tool.Tool) { r.print("%-16s ", t.Name) }

func (r *report) tool(t *toolDiagnosis) {
	line := "runs"
	switch missed := t.missed(); {
	case r.selftest:
		line = t.result()
	case t.Verdict == denied:
		line = "does not run: " + t.lacks()
	case !t.Runs:
		line = "does not run: " + t.Why
	case missed != "":
		line += "; not seen: " + missed
	}
	r.print("%s\n", line)
}

// lacks names the missing privileges on one line.
func (t *toolDiagnosis) lacks() string {
	var missing []string
	for _, c := range host.NeedTrace.Missing() {
		missing = append(missing, c.String())
	}
	if len(missing) == 0 {
		return t.Why
	}
	return "needs " + strings.Join(missing, ", ")
}

// missed says what the tool's points do not see here.
func (t *toolDiagnosis) missed() string {
	var all []string
	for _, p := range t.Points {
		if p.Misses != "" {
			all = append(all, p.Misses)
		}
	}
	return strings.Join(all, "; ")
}

// end writes the verdict, and the details behind it.
func (r *report) end(d *diagnosis) error {
	r.print("\n%s\n", d.Verdict)
	if !r.details {
		return r.err
	}
	b := &strings.Builder{}
	for i := range d.Tools {
		b.WriteString("\n")
		d.Tools[i].write(b)
	}
	r.print("%s", b.String())
	return r.err
}

func (t *toolDiagnosis) write(b *strings.Builder) {
	runs := "runs"
	if !t.Runs {
		runs = "does not run: " + t.Why
	}
	fmt.Fprintf(b, "%s: %s\n", t.Tool, runs)
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
		said := "seen to work"
		switch {
		case s.Skipped:
			said = s.Why // which begins with skipped
		case !s.OK:
			said = "FAILED: " + s.Why
		}
		fmt.Fprintf(b, "  self-test %-12s %s (%.1fs)\n", s.Case, said, s.Seconds)
	}
}

// inWords lists capabilities and groups them by purpose.
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
		return "not available"
	case strings.HasPrefix(path, "/proc/self/fd/"):
		return "mounted for this process only"
	}
	return path
}
