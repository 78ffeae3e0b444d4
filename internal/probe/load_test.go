// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestSetKernel: a cache takes the types that it is given for the kernel's. If
// this fails after an update of cilium/ebpf, everything works, and starts slowly.
func TestSetKernel(t *testing.T) {
	b, err := btf.NewBuilder([]btf.Type{&btf.Int{Name: "mine", Size: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := b.Spec()
	if err != nil {
		t.Fatal(err)
	}
	c := btf.NewCache()
	setKernel(c, mine)
	if got, err := c.Kernel(); err != nil || got != mine {
		t.Errorf("the cache has other types (%v)", err)
	}
}
