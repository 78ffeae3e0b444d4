// SPDX-License-Identifier: Apache-2.0

// Command btf writes test/btf/*.btf.gz: for each kernel of the matrix, the part of its BTF and of
// its modules' BTF that our programs and our choices of ways look at. Ring 1 checks every
// relocation against these files without booting anything. Run it from the project's root, by
// make btf, after go run ./test/vm fetch.
package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
	"seine/test/vm/kernel"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "btf:", err)
		os.Exit(1)
	}
}

func run() error {
	structs, err := wantedStructs()
	if err != nil {
		return err
	}
	words, err := quotedWords()
	if err != nil {
		return err
	}
	for _, name := range kernel.Names("amd64") {
		k, err := kernel.Cached(name)
		if err != nil {
			return err
		}
		full, err := btf.LoadSpec(k.BTF)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		specs := []*btf.Spec{full}
		for _, m := range modules {
			types, err := moduleTypes(k.Module(m), full)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, m, err)
			}
			if types != nil {
				specs = append(specs, types)
			}
		}
		raw, err := trim(specs, structs, words)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out := filepath.Join("test/btf", name+".btf.gz")
		n, err := write(out, raw)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s, %d kB\n", out, k.Version, n/1024)
	}
	return nil
}

// modules are those whose types programs read.
var modules = []string{"cfg80211", "mac80211"}

// moduleTypes reads the BTF of a module, nil if it has none.
func moduleTypes(file string, base *btf.Spec) (*btf.Spec, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := f.Section(".BTF")
	if s == nil {
		return nil, nil
	}
	raw, err := s.Data()
	if err != nil {
		return nil, err
	}
	return btf.LoadSplitSpecFromReader(bytes.NewReader(raw), base)
}

// wantedStructs is the names of all types that programs relocate against.
func wantedStructs() (map[string]bool, error) {
	out := map[string]bool{}
	objects, err := filepath.Glob("internal/object/amd64/*.o.zst")
	if err != nil {
		return nil, err
	}
	for _, file := range objects {
		spec, err := object.Spec(strings.TrimSuffix(filepath.Base(file), ".o.zst"))
		if err != nil {
			return nil, err
		}
		for typ, err := range spec.Types.All() {
			if err != nil {
				return nil, err
			}
			switch typ.(type) {
			case *btf.Struct, *btf.Union, *btf.Enum, *btf.Typedef:
				name, _, _ := strings.Cut(typ.TypeName(), "___")
				out[name] = true
			}
		}
	}
	return out, nil
}

var word = regexp.MustCompile(`"([A-Za-z_][A-Za-z0-9_]*)"|(?:fentry|fexit|kprobe|kretprobe)/" #?([a-z_0-9]+)|(?:KFUNC|KFUNC_PART|KEXIT)\([a-z_0-9]+, (?:[a-z_0-9]+, )?([a-z_0-9]+)|iter/([a-z_]+)`)

// quotedWords is every word of the sources that may be a function's name.
func quotedWords() (map[string]bool, error) {
	out := map[string]bool{}
	for _, pattern := range []string{"tools/*/*.go", "tools/*/*.c", "internal/tool/*.go", "internal/probe/*.go", "bpf/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			for _, m := range word.FindAllStringSubmatch(string(b), -1) {
				for i, w := range m[1:] {
					if i == 3 && w != "" {
						w = "bpf_iter_" + w
					}
					out[w] = true
				}
			}
		}
	}
	return out, nil
}

// trim copies the wanted types. Pointers lose what they point at, but for the
// arguments of tracepoints, whose structs keep their name.
func trim(specs []*btf.Spec, structs, words map[string]bool) ([]byte, error) {
	b, err := btf.NewBuilder(nil, nil)
	if err != nil {
		return nil, err
	}
	had := map[string]bool{}
	for i, spec := range specs {
		if err := add(b, spec, structs, words, i > 0, had); err != nil {
			return nil, err
		}
	}
	return b.Marshal(nil, nil)
}

// add copies the wanted types of one spec. Two modules may have the same type
// each for itself: it is taken once.
func add(b *btf.Builder, spec *btf.Spec, structs, words map[string]bool, module bool, had map[string]bool) error {
	t := &trimmer{done: map[btf.Type]btf.Type{}}
	for typ, err := range spec.All() {
		if err != nil {
			return err
		}
		name := typ.TypeName()
		var keep btf.Type
		switch v := typ.(type) {
		case *btf.Struct, *btf.Union, *btf.Enum:
			if structs[name] && name != "" {
				keep = t.value(typ)
			}
		case *btf.Typedef:
			if strings.HasPrefix(name, "btf_trace_") {
				keep = t.tracepoint(v)
			} else if structs[name] {
				keep = t.value(typ)
			}
		case *btf.Func:
			if words[name] {
				keep = &btf.Func{Name: name, Type: &btf.FuncProto{Return: &btf.Void{}}, Linkage: v.Linkage}
			}
		}
		if keep == nil || module && had[name] {
			continue
		}
		had[name] = true
		if _, err := b.Add(keep); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

type trimmer struct {
	done map[btf.Type]btf.Type
}

// value copies a type with all that it holds by value.
func (t *trimmer) value(typ btf.Type) btf.Type {
	if d, ok := t.done[typ]; ok {
		return d
	}
	switch v := typ.(type) {
	case *btf.Struct:
		c := &btf.Struct{Name: v.Name, Size: v.Size}
		t.done[typ] = c
		c.Members = t.members(v.Members)
		return c
	case *btf.Union:
		c := &btf.Union{Name: v.Name, Size: v.Size}
		t.done[typ] = c
		c.Members = t.members(v.Members)
		return c
	case *btf.Pointer:
		return &btf.Pointer{Target: &btf.Void{}}
	case *btf.Array:
		return &btf.Array{Index: v.Index, Type: t.value(v.Type), Nelems: v.Nelems}
	case *btf.Typedef:
		return &btf.Typedef{Name: v.Name, Type: t.value(v.Type)}
	case *btf.Const:
		return t.value(v.Type)
	case *btf.Volatile:
		return t.value(v.Type)
	case *btf.TypeTag:
		return t.value(v.Type)
	}
	return typ
}

func (t *trimmer) members(in []btf.Member) []btf.Member {
	out := make([]btf.Member, len(in))
	for i, m := range in {
		out[i] = m
		out[i].Tags = nil
		out[i].Type = t.value(m.Type)
	}
	return out
}

// tracepoint keeps the shape of btf_trace_<name>.
func (t *trimmer) tracepoint(def *btf.Typedef) btf.Type {
	ptr, ok := def.Type.(*btf.Pointer)
	if !ok {
		return nil
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	if !ok {
		return nil
	}
	c := &btf.FuncProto{Return: &btf.Void{}}
	for _, p := range proto.Params {
		c.Params = append(c.Params, btf.FuncParam{Type: argument(p.Type)})
	}
	return &btf.Typedef{Name: def.Name, Type: &btf.Pointer{Target: c}}
}

func argument(typ btf.Type) btf.Type {
	switch v := btf.UnderlyingType(typ).(type) {
	case *btf.Pointer:
		switch s := btf.UnderlyingType(v.Target).(type) {
		case *btf.Struct:
			return &btf.Pointer{Target: &btf.Fwd{Name: s.Name, Kind: btf.FwdStruct}}
		case *btf.Fwd:
			return &btf.Pointer{Target: s}
		}
		return &btf.Pointer{Target: &btf.Void{}}
	case *btf.Int:
		return v
	}
	return &btf.Int{Name: "int", Size: 4}
}

func write(file string, raw []byte) (int, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	_, err = z.Write(raw)
	if err := errors.Join(err, z.Close()); err != nil {
		return 0, err
	}
	return b.Len(), os.WriteFile(file, b.Bytes(), 0o644)
}
