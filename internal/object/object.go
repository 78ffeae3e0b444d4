// SPDX-License-Identifier: Apache-2.0

// Package object holds the compiled BPF of every tool, and the names that it needs of a
// kernel. The files are generated from tools/*/*.bpf.c by make generate, and committed, so that
// building needs only Go.
package object

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/klauspost/compress/zstd"
)

// kept are the objects that Spec has read, if they are to be kept.
var kept *sync.Map

// Use has objects read from folder, which has one folder per architecture, in place
// of those in this binary. That is for tests which put defects into objects.
func Use(folder fs.FS) { source = folder }

var source fs.FS = files

// Keep has objects read once. That is for tests, which attach tools hundreds of
// times; a run reads one object and has better use for the memory.
func Keep() { kept = new(sync.Map) }

// Spec returns the BPF object of the tool called name.
func Spec(name string) (*ebpf.CollectionSpec, error) {
	if kept == nil {
		return spec(name)
	}
	if s, ok := kept.Load(name); ok {
		return s.(*ebpf.CollectionSpec).Copy(), nil
	}
	s, err := spec(name)
	if err != nil {
		return nil, err
	}
	kept.Store(name, s)
	return s.Copy(), nil
}

func spec(name string) (*ebpf.CollectionSpec, error) {
	b, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	if !withLines {
		if err := dropLines(b); err != nil {
			return nil, fmt.Errorf("object %s: %w", name, err)
		}
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	for _, p := range spec.Programs {
		choosePlain(p)
		if !withLines {
			nameFunctions(p)
		}
	}
	return spec, nil
}

// plain is what LOAD has in its code until it is known what for: probe.h.
const plain = 0x5e1e10ad

// choosePlain lets programs whose arguments have types that the verifier knows
// read by plain loads.
func choosePlain(p *ebpf.ProgramSpec) {
	for i := range p.Instructions {
		if ins := &p.Instructions[i]; ins.OpCode == asm.Mov.Op(asm.ImmSource) && ins.Constant == plain {
			ins.Constant = 0
			if p.Type == ebpf.Tracing {
				ins.Constant = 1
			}
		}
	}
}

// Needs returns the names of the types and functions of a kernel that the programs of a tool need. It
// is known without the object, so that they can be looked for while the object is decoded.
func Needs(name string) ([]string, error) {
	b, err := fs.ReadFile(source, arch+"/"+name+".needs")
	if err != nil {
		return nil, fmt.Errorf("names that %s needs: %w", name, err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
}

func read(name string) ([]byte, error) {
	packed, err := fs.ReadFile(source, arch+"/"+name+".o.zst")
	if err != nil {
		return nil, err
	}
	return Unpack(packed)
}

// Unpack returns the ELF file that a file of this folder holds. It takes a third of the time that gzip does.
func Unpack(packed []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(packed, nil)
}
