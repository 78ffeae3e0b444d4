// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

var (
	offers   = flag.String("offers", "", "the ways that this kernel is known to have, in alphabetic order")
	loadBest = flag.Bool("load-best", false, "TestLoad loads by the best way alone, not by every one")
)

// TestOffers compares the ways that the running kernel offers with the expected
// ones. Other tests leave out ways that the kernel does not offer, so they would
// not notice a missing one.
func TestOffers(t *testing.T) {
	if *offers == "" {
		t.Skip("nobody said with -offers what this kernel has")
	}
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for way, err := range k.Offers() {
		if t.Log(way, err); err == nil {
			have = append(have, way)
		}
	}
	slices.Sort(have)
	if got := strings.Join(have, ","); got != *offers {
		t.Errorf("offers %s, want %s", got, *offers)
	}
}

// TestLoad loads and attaches every program of every tool by every way that the
// running kernel has, not only those that would be chosen, and says how many
// instructions the verifier looked at. A kernel may refuse to trace some
// function by one way (7.2, fentry: more than six arguments) if another way
// sees the same event. With -load-best the first way that this kernel has is
// enough.
func TestLoad(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range append(slices.Clone(tools.All), tool.Owners) {
		t.Run(tl.Name, func(t *testing.T) {
			spec, err := object.Spec(tl.Name)
			if err != nil {
				t.Fatal(err)
			}
			points := tl.EveryPoint(spec, tl.NewConfig())
			tries := attempts(k, spec, points)
			set, err := probe.Attach(k, spec, tries, probe.Options{Once: true})
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			refused, works := map[string]error{}, map[string]bool{}
			for _, c := range set.Choices {
				works[c.Point] = works[c.Point] || c.Way != ""
				for _, r := range c.Refused {
					if errors.Is(r.Err, ebpf.ErrNotSupported) {
						refused[c.Point] = r.Err
					} else {
						t.Errorf("point %s: %s: %v", c.Point, r.Way, r.Err)
					}
				}
			}
			for point, err := range refused {
				if !works[point] {
					t.Errorf("point %s: %v", point, err)
				}
			}
			for name, prog := range set.Programs {
				info, err := prog.Info()
				if err != nil {
					t.Fatal(err)
				}
				n, _ := info.VerifiedInstructions()
				t.Logf("%s: %d instructions verified", name, n)
			}
		})
	}
}

// attempts is a point for each way that fits this kernel, or with -load-best one with all of
// them. They are attached together: the tool's maps, and the kernel's types that its programs
// name, are the same for all. Several points and ways share programs, which are loaded once.
func attempts(k *probe.Kernel, spec *ebpf.CollectionSpec, points []probe.Point) (out []probe.Point) {
	listed := map[string]bool{}
	for _, p := range points {
		fits := slices.DeleteFunc(slices.Clone(p.WaysIn(spec)), func(w probe.Way) bool {
			return k.Fits(spec, w) != nil // TestKernels checks which those are
		})
		for i, w := range fits {
			fresh := len(w.Programs) == 0 || slices.ContainsFunc(w.Programs, func(name string) bool { return !listed[name] })
			if fresh {
				one := p
				one.Ways, one.Optional = []probe.Way{w}, true
				if *loadBest {
					one.Ways = fits[i:]
				}
				for _, name := range w.Programs {
					listed[name] = true
				}
				out = append(out, one)
			}
			if *loadBest {
				break
			}
		}
	}
	return out
}
