// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"sync"

	"github.com/cilium/ebpf"
)

// made is a map that is made in the background. nil is none.
type made struct{ wait func() (*ebpf.Map, error) }

// makeOwners makes the table of owners of a tool that is alone. It takes as long as the ring does, so both are made at the
// same time.
func (e *Engine) makeOwners(p *Prepared) *made {
	spec := p.spec.Maps[ownersMap]
	if spec == nil || !e.alone {
		return nil
	}
	spec = spec.Copy()
	m := &made{sync.OnceValues(func() (*ebpf.Map, error) { return ebpf.NewMap(spec) })}
	go m.wait()
	return m
}

func (m *made) close() {
	if m == nil {
		return
	}
	if made, err := m.wait(); err == nil {
		made.Close()
	}
}
