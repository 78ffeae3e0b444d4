// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"seine/internal/agent"
	"seine/internal/host"
)

// TestAgentExample loads the example, which has every key.
func TestAgentExample(t *testing.T) {
	fs := pflag.NewFlagSet(agentName, pflag.ContinueOnError)
	f := &agentFlags{stdout: io.Discard, stder: io.Discard}
	f.declare(fs)
	if err := fs.Parse([]string{"--config=../../deploy/agent.yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := f.load(fs); err != nil {
		t.Fatal(err)
	}
	if len(f.tools) != 2 || len(f.fed) != 3 || f.budget != 1<<30 || f.otlp == "" || !slices.Equal(f.hosts, []string{"seine.example"}) {
		t.Errorf("%+v", f)
	}
	b, err := os.ReadFile("../../deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range append(keys(fs), agent.Structured()...) {
		if !strings.Contains("\n"+strings.ReplaceAll(string(b), "\n#", "\n"), "\n"+k+":") {
			t.Errorf("the example has no key %s", k)
		}
	}

	// What the command line says goes before the file.
	fs = pflag.NewFlagSet(agentName, pflag.ContinueOnError)
	f = &agentFlags{stdout: io.Discard, stder: io.Discard}
	f.declare(fs)
	if err := fs.Parse([]string{"--config=../../deploy/agent.yaml", "--budget=2G"}); err != nil {
		t.Fatal(err)
	}
	if err := f.load(fs); err != nil || f.budget != 2<<30 {
		t.Errorf("budget %d, %v; want the command line's 2G", f.budget, err)
	}
}

// TestAgentReference: docs/AGENT-CONFIG.md is made of the flags.
func TestAgentReference(t *testing.T) {
	want := agentReference()
	const path = "../../docs/AGENT-CONFIG.md"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the flags are: UPDATE=1 writes it (%v)", path, err)
	}
}

// TestShedder: what is ended last begins first, a step that has nothing to end is no obstacle, and
// what is ended is told while it is.
func TestShedder(t *testing.T) {
	var did []string
	step := func(name string, there bool) *shedStep {
		return &shedStep{name, func() bool { did = append(did, "-"+name); return there }, func() error { did = append(did, "+"+name); return nil }}
	}
	said := &bytes.Buffer{}
	h := &holder{log: slog.New(slog.NewTextHandler(said, nil))}
	s := &shedder{holder: h, left: []*shedStep{step("rows", true), step("absent", false), step("dns", true)}}
	s.guard = agent.Guard{Most: 0.02, Steps: len(s.left)}
	now, used := time.Unix(1_700_000_000, 0), time.Duration(0)
	run := func(seconds int, share float64) {
		for range seconds {
			now, used = now.Add(time.Second), used+time.Duration(share*float64(time.Second))
			s.tell(now, used)
		}
	}
	var told []int // how many steps were taken at each change
	s.told = func() { told = append(told, len(s.names())) }
	run(5, 1) // what it takes to begin
	run(20, 0.1)
	if got := s.names(); !slices.Equal(got, []string{"rows"}) {
		t.Errorf("%v are ended within 20 s", got)
	}
	run(300, 0.1)
	if got := s.names(); !slices.Equal(got, []string{"rows", "absent", "dns"}) {
		t.Errorf("%v are ended", got)
	}
	run(500, 0.001)
	if got := s.names(); len(got) != 0 {
		t.Errorf("%v are still ended", got)
	}
	if want := []string{"-rows", "-absent", "-dns", "+dns", "+absent", "+rows"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
	if want := []int{1, 2, 3, 2, 1, 0}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if log := said.String(); strings.Count(log, "it stops this for now") != 2 || strings.Contains(log, "it stops this for now\" what=absent") {
		t.Errorf("the log: %s", log)
	}
}

// TestDeployedCapabilities: the systemd unit and the DaemonSet leave the agent the capabilities that
// it keeps. It needs no CAP_DAC_OVERRIDE there, because the directory of its recording is root's.
func TestDeployedCapabilities(t *testing.T) {
	var want []string
	for _, c := range holderKeeps {
		if c != host.CapDACOverride {
			want = append(want, c.String())
		}
	}
	slices.Sort(want)
	for file, list := range map[string]*regexp.Regexp{
		"seine-agent.service":       regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`),
		"kubernetes/daemonset.yaml": regexp.MustCompile(`(?m)^ *add: \[(.*)\]$`),
	} {
		b, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		m := list.FindSubmatch(b)
		if m == nil {
			t.Errorf("%s has no capabilities", file)
			continue
		}
		var got []string
		for _, name := range regexp.MustCompile(`[A-Z_]+`).FindAllString(string(m[1]), -1) {
			got = append(got, "CAP_"+strings.TrimPrefix(name, "CAP_"))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}
