// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"seine/internal/agent"
	"seine/test/programs"
)

// TestAlerts makes promtool check the alert rules and run their tests.
func TestAlerts(t *testing.T) {
	promtool, err := programs.Prometheus("promtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var metricInUse = regexp.MustCompile(`seine_[a-z0-9_]+`)

// TestMetricsInUse: the dashboard and the alerts use only existing metrics and labels.
func TestMetricsInUse(t *testing.T) {
	files := []string{"../deploy/grafana/seine.json", "../deploy/prometheus/alerts.yaml"}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := metricInUse.FindAllString(string(b), -1)
		if len(used) < 5 {
			t.Errorf("%s uses %d metrics", file, len(used))
		}
		for _, name := range used {
			if !slices.ContainsFunc(agent.Table, func(d agent.Desc) bool {
				return name == d.Name || d.Type == agent.Histogram && slices.Contains([]string{d.Name + "_bucket", d.Name + "_sum", d.Name + "_count"}, name)
			}) {
				t.Errorf("%s asks for %s, which there is not", file, name)
			}
		}
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			name := metricInUse.FindString(target.Expr)
			i := slices.IndexFunc(agent.Table, func(d agent.Desc) bool { return strings.HasPrefix(name, d.Name) })
			for _, m := range by.FindAllStringSubmatch(target.Expr, -1) {
				for _, l := range strings.Split(m[1], ", ") {
					if l != "instance" && l != "le" && !slices.Contains(agent.Table[i].Labels, l) {
						t.Errorf("%s: %s has no label %s", p.Title, name, l)
					}
				}
			}
		}
	}
}

// TestManifests: the DaemonSet requests only the privileges that this test
// lists.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, &map[string]any{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					HostPID     bool `yaml:"hostPID"`
					HostNetwork bool `yaml:"hostNetwork"`
					Containers  []struct {
						SecurityContext struct {
							Privileged             bool
							ReadOnlyRootFilesystem bool `yaml:"readOnlyRootFilesystem"`
							Capabilities           struct{ Drop, Add []string }
						} `yaml:"securityContext"`
						VolumeMounts []struct {
							Name     string
							ReadOnly bool `yaml:"readOnly"`
						} `yaml:"volumeMounts"`
					}
				}
			}
		}
	}
	b, err := os.ReadFile("../deploy/kubernetes/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &set); err != nil {
		t.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	if len(spec.Containers) != 1 || !spec.HostPID || spec.HostNetwork {
		t.Fatalf("%+v", spec)
	}
	c := spec.Containers[0]
	if c.SecurityContext.Privileged || !c.SecurityContext.ReadOnlyRootFilesystem || !slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) || len(c.SecurityContext.Capabilities.Add) > 8 {
		t.Errorf("%+v", c.SecurityContext)
	}
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly && m.Name != "recording" {
			t.Errorf("%s can be written", m.Name)
		}
	}
}

// TestUnit makes systemd verify the unit.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is not there: make test brings it")
	}
	b, err := os.ReadFile("../deploy/seine-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	// The program need not be installed here.
	unit := filepath.Join(t.TempDir(), "seine-agent.service")
	text := strings.ReplaceAll(string(b), "/usr/bin/seine", "/bin/true")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "seine-agent.service:") {
		t.Errorf("%v: %s", err, out)
	}
}
