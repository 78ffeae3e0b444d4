// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// TestLines: with lines, instructions say what they were compiled from. Without lines each function has its name, and
// nothing else of any object is different.
func TestLines(t *testing.T) {
	defer func() { withLines = false }()
	objects, err := fs.Glob(source, arch+"/*.o.zst")
	if err != nil || len(objects) == 0 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	for _, file := range objects {
		name := strings.TrimSuffix(strings.TrimPrefix(file, arch+"/"), ".o.zst")
		withLines = true
		with, err1 := Spec(name)
		withLines = false
		without, err2 := Spec(name)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if len(with.Programs) != len(without.Programs) {
			t.Errorf("%s: %d programs without lines, %d with them", name, len(without.Programs), len(with.Programs))
		}
		for _, p := range without.Programs {
			compareLines(t, name+": "+p.Name, with.Programs[p.Name], p)
		}
	}
}

func compareLines(t *testing.T, name string, with, without *ebpf.ProgramSpec) {
	lines := 0
	if len(with.Instructions) != len(without.Instructions) {
		t.Fatalf("%s: %d instructions without lines, %d with them", name, len(without.Instructions), len(with.Instructions))
	}
	for i, w := range with.Instructions {
		wo := without.Instructions[i]
		if _, ok := w.Source().(*btf.Line); ok {
			lines++
		}
		if got, _ := wo.Source().(asm.Comment); string(got) != wo.Symbol() {
			t.Errorf("%s: instruction %d: the line is %q, want %q", name, i, got, wo.Symbol())
		}
		same := wo.Symbol() == w.Symbol() && wo.Reference() == w.Reference() && (btf.FuncMetadata(&wo) == nil) == (btf.FuncMetadata(&w) == nil) &&
			(btf.CORERelocationMetadata(&wo) == nil) == (btf.CORERelocationMetadata(&w) == nil)
		if wo.OpCode != w.OpCode || wo.Constant != w.Constant || !same {
			t.Errorf("%s: instruction %d: %v, want %v", name, i, wo, w)
		}
	}
	if lines < 2 {
		t.Errorf("%s: %d lines, want some", name, lines)
	}
	lineEach(t, name, without)
}

// lineEach: the kernel's line infos are those of functions, in the order of the functions.
func lineEach(t *testing.T, name string, p *ebpf.ProgramSpec) {
	b, err := btf.NewBuilder(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	funcs, lines, err := btf.MarshalExtInfos(p.Instructions, b)
	if err != nil {
		t.Fatal(err)
	}
	at := func(infos []byte, size uint32) (offsets [][]byte) {
		for info := range slices.Chunk(infos, int(size)) {
			offsets = append(offsets, info[:4])
		}
		return offsets
	}
	if !slices.EqualFunc(at(funcs, btf.FuncInfoSize), at(lines, btf.LineInfoSize), bytes.Equal) {
		t.Errorf("%s: the kernel is given %d bytes of lines for %d of functions, want one for each", name, len(lines), len(funcs))
	}
}
