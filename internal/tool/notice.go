// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"reflect"

	"github.com/cilium/ebpf"
)

// Notices takes records of the ring that are not rows: their view is VIEW_NOTICE.
type Notices interface {
	check(*ebpf.CollectionSpec) error
	take(raw []byte)
}

// Notice is the Notices of a tool that sends a T in this way.
type Notice[T any] struct {
	Type string // the C struct of which T is the twin
	Do   func(*T)
}

func (n Notice[T]) check(spec *ebpf.CollectionSpec) error {
	return checkType(spec, reflect.TypeFor[T](), n.Type)
}

func (n Notice[T]) take(raw []byte) {
	var t T
	if decode(&t, raw) {
		n.Do(&t)
	}
}
