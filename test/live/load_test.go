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
	"seine/tools"
)

var (
	offers   = flag.String("offers", "", "the ways that this kernel is known to have, in alphabetic order")
	loadBest = flag.Bool("load-best", false, "TestLoad loads by the best way alone, not by every one")
)

// TestOffers holds what the running kernel is said to offer against what is known
// of it. The other tests leave out what it does not offer: they would not miss it.
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

// TestLoad loads and attaches every program of every tool by every way that
// the running kernel has, not only those that would be chosen, and says how
// many instructions the verifier looked at. A kernel may say that it cannot
// trace some function by one way (7.2, fentry: more than six arguments) if
// another one leads to the same moment. With -load-best the first way that this
// kernel has is enough.
func TestLoad(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			spec, err := object.Spec(tl.Name)
			if err != nil {
				t.Fatal(err)
			}
			loaded := map[string]bool{} // programs: several points and ways share some
			for _, p := range tl.EveryPoint(spec, tl.NewConfig()) {
				var refused error
				works := 0
				for _, w := range p.WaysIn(spec) {
					if k.Fits(spec, w) != nil {
						continue // TestKernels knows which those are
					}
					if !slices.ContainsFunc(w.Programs, func(name string) bool { return !loaded[name] }) && len(w.Programs) > 0 {
						works++
						continue
					}
					one := p
					one.Ways, one.Optional = []probe.Way{w}, false
					switch err := load(t, k, spec, one); {
					case errors.Is(err, ebpf.ErrNotSupported):
						refused = err
					case err != nil:
						t.Error(err)
					default:
						works++
						for _, name := range w.Programs {
							loaded[name] = true
						}
					}
					if *loadBest && works > 0 {
						break
					}
				}
				if refused != nil && works == 0 {
					t.Error(refused)
				}
			}
		})
	}
}

func load(t *testing.T, k *probe.Kernel, spec *ebpf.CollectionSpec, p probe.Point) error {
	t.Helper()
	set, err := probe.Attach(k, spec, []probe.Point{p}, probe.Options{Once: true})
	if err != nil {
		return err
	}
	defer set.Close()
	for name, prog := range set.Programs {
		info, err := prog.Info()
		if err != nil {
			return err
		}
		n, _ := info.VerifiedInstructions()
		t.Logf("%s: %d instructions verified", name, n)
	}
	return nil
}
