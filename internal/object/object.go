// SPDX-License-Identifier: Apache-2.0

// Package object holds the compiled BPF of every tool. The .o.gz files are
// generated from tools/*/*.bpf.c by make generate, and committed, so that
// building needs only Go.
package object

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
)

// Spec returns the BPF object of the tool called name.
func Spec(name string) (*ebpf.CollectionSpec, error) {
	b, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	return spec, nil
}

func read(name string) ([]byte, error) {
	f, err := files.Open(arch + "/" + name + ".o.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
