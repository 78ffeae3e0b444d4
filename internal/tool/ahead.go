// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"sync"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
)

// An Ahead is what the start of a tool waits for longest: its object, and the types of the kernel that its programs need.
// Both are decoded in the background, beside each other and beside what else a start does. It serves one Prepare.
type Ahead struct {
	spec  func() (*ebpf.CollectionSpec, error) // waits until it is decoded
	types *probe.Ahead
}

// Begin begins to decode both.
func Begin(t *Tool) (*Ahead, error) {
	needs, err := object.Needs(t.Name)
	if err != nil {
		return nil, err
	}
	a := &Ahead{
		spec:  sync.OnceValues(func() (*ebpf.CollectionSpec, error) { return object.Spec(t.Name) }),
		types: probe.Begin(probe.Running, needs, functions()...),
	}
	go a.spec()
	return a, nil
}
