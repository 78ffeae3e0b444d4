// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"seine/internal/kbtf"
	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
)

// stored reads the kept part of a kernel's BTF: see internal/gen/btf.
func stored(t *testing.T, file string) *kbtf.Types {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	types, err := kbtf.Read(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// cannot lists the kernels of the matrix that a tool does not run on, and why.
// The test also checks that the tool does not run there.
var cannot = map[string]map[string]string{
	"ieee80211scan": {"5.10": "no BTF of modules"},
}

// TestKernels: on each kernel of the matrix every tool finds a way to each of
// its points, or says that the kernel cannot, and every CO-RE relocation of
// the programs that would be loaded there resolves.
func TestKernels(t *testing.T) {
	files, err := filepath.Glob("../test/btf/*.btf.gz")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d stored kernels, want 4 (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".btf.gz")
		t.Run(name, func(t *testing.T) {
			k := probe.Offline(stored(t, file))
			for _, tl := range append(slices.Clone(All), tool.Owners) {
				spec, err := object.Spec(tl.Name)
				if err != nil {
					t.Fatal(err)
				}
				points := tl.EveryPoint(spec, tl.NewConfig())
				if why := cannot[tl.Name][name]; why != "" {
					if len(probe.Missing(points, probe.Predict(k, spec, points, probe.Force{}))) == 0 {
						t.Errorf("%s runs, though there is %s", tl.Name, why)
					}
					continue
				}
				types, err := k.Part(spec)
				if err != nil {
					t.Fatal(err)
				}
				relocated := 0
				for _, p := range points {
					if p.Needed != nil && !p.Needed(k) {
						continue
					}
					fits := 0
					for _, w := range p.WaysIn(spec) {
						if k.Fits(spec, w) != nil {
							continue
						}
						fits++
						for _, prog := range w.Programs {
							relocated += relocate(t, types, spec.Programs[prog])
						}
					}
					if fits == 0 && !p.Optional {
						t.Errorf("%s: no way to point %s", tl.Name, p.Name)
					}
				}
				if relocated == 0 && relocations(spec) > 0 {
					t.Errorf("%s: no relocation was checked", tl.Name)
				}
			}
		})
	}
}

// relocations is the number of relocations of a tool: none if it reads only
// arguments.
func relocations(spec *ebpf.CollectionSpec) (n int) {
	for _, ps := range spec.Programs {
		n += len(relocationsOf(ps))
	}
	return n
}

// TestPart: each relocation of a tool has the same result against the part of
// the running kernel's BTF that is cut out for the tool and against the whole
// BTF.
func TestPart(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Skip(err)
	}
	whole, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, tl := range All {
		spec, err := object.Spec(tl.Name)
		if err != nil {
			t.Fatal(err)
		}
		part, err := k.Part(spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, ps := range spec.Programs {
			relos := relocationsOf(ps)
			if len(relos) == 0 {
				continue
			}
			want, werr := fixups(relos, whole, ps)
			got, err := fixups(relos, part, ps)
			if err != nil || werr != nil {
				t.Fatalf("%s: %v, %v", ps.Name, err, werr)
			}
			for i := range relos {
				if got[i].String() != want[i].String() {
					t.Errorf("%s: %v: %v, want %v", ps.Name, relos[i], got[i], want[i])
				}
			}
			n += len(relos)
		}
	}
	if n < 1000 {
		t.Errorf("%d relocations were compared", n)
	}
}

func relocationsOf(ps *ebpf.ProgramSpec) (relos []*btf.CORERelocation) {
	for i := range ps.Instructions {
		if r := btf.CORERelocationMetadata(&ps.Instructions[i]); r != nil {
			relos = append(relos, r)
		}
	}
	return relos
}

func fixups(relos []*btf.CORERelocation, types *btf.Spec, ps *ebpf.ProgramSpec) ([]btf.COREFixup, error) {
	return btf.CORERelocate(relos, []*btf.Spec{types}, ps.ByteOrder, func(btf.Type) (btf.TypeID, error) { return 0, nil })
}

// relocate resolves the relocations of a program against types and returns
// their number.
func relocate(t *testing.T, types *btf.Spec, ps *ebpf.ProgramSpec) int {
	t.Helper()
	relos := relocationsOf(ps)
	if len(relos) == 0 {
		return 0
	}
	fixups, err := fixups(relos, types, ps)
	if err != nil {
		t.Errorf("%s: %v", ps.Name, err)
		return 0
	}
	for i, f := range fixups {
		// Fields that not every kernel has are in a struct with ___ in its
		// name. Programs check that such a field exists before they read it.
		if s := relos[i].String(); strings.Contains(f.String(), "poison") && !strings.Contains(s, "___") {
			t.Errorf("%s: %s does not resolve", ps.Name, s)
		}
	}
	return len(relos)
}
