// SPDX-License-Identifier: Apache-2.0

// Package live is ring 3: every tool over its known workloads, by every way
// that the running kernel offers. The same binary runs in the guests of ring 4.
package live

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

var best = flag.Bool("best", false, "only the best way of each tool, not every one")

func TestMain(m *testing.M) {
	lab.Main()
	flag.Parse()
	if os.Geteuid() != 0 {
		println("live tests need root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestLive has a subtest for each tool, way and case.
func TestLive(t *testing.T) {
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			for _, way := range ways(t, tl) {
				name := way
				if way == "" {
					name = "best"
				}
				t.Run(name, func(t *testing.T) {
					for _, c := range tl.Live {
						// What is slow does not depend on the way.
						if way == "" || !c.Slow {
							t.Run(c.Name, func(t *testing.T) { one(t, tl, c, way) })
						}
					}
				})
			}
		})
	}
}

func one(t *testing.T, tl *tool.Tool, c tool.Case, way string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	x, err := tool.RunCase(ctx, tl, c, way, cli.Parse, cli.NamersOf)
	if errors.Is(err, tool.ErrSkip) {
		t.Skip(err)
	}
	if err != nil {
		t.Error(err)
	}
	if x == nil || way == "" {
		return
	}
	for _, ch := range x.Choices {
		if ch.Way == way {
			return
		}
	}
	t.Errorf("no point took the way %s", way)
}

// ways is the best way, and each that a point of the tool could be forced to
// here. One that the kernel lacks is left out by what BTF says, not by trying.
func ways(t *testing.T, tl *tool.Tool) []string {
	out := []string{""}
	if *best {
		return out
	}
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := object.Spec(tl.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tl.AllPoints(spec, tl.NewConfig()) {
		for _, w := range p.WaysIn(spec) {
			if k.Fits(spec, w) == nil && !slices.Contains(out, w.Name) {
				out = append(out, w.Name)
			}
		}
	}
	return out
}
