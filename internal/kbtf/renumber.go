// SPDX-License-Identifier: Apache-2.0

package kbtf

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf/btf"
)

// This file relies on internals of cilium/ebpf, which gives types the numbers 1, 2, 3 and so on. To have the kernel's
// number, each of its 130,000 types would have to be in a part, and be decoded. TestRenumber fails if an update changes
// the internals.

var errInternals = errors.New("this version of cilium/ebpf keeps types in another way")

// renumber gives each type of a part the number that ids has for it. The numbers rise. The part's first type is that of
// all other numbers.
func renumber(part *btf.Spec, ids []ID) error {
	decoder := reflect.ValueOf(part).Elem().FieldByName("decoder")
	if decoder.Kind() != reflect.Pointer || decoder.IsNil() {
		return errInternals
	}
	offsets, ok1 := private[[]int](decoder.Elem(), "offsets")                // by number; that of the first type is 0
	names, ok2 := private[[]uint64](decoder.Elem(), "namedTypes", "entries") // a hash and a number, sorted
	if !ok1 || !ok2 || len(*offsets) != len(ids) {
		return errInternals
	}
	wide := make([]int, ids[len(ids)-1]+1)
	wide[0] = (*offsets)[0] // void
	for i := 2; i < len(ids); i++ {
		wide[ids[i]] = (*offsets)[i]
	}
	*offsets = wide
	for i, n := range *names {
		if int(uint32(n)) >= len(ids) {
			return errInternals
		}
		(*names)[i] = n>>32<<32 | uint64(ids[uint32(n)])
	}
	return nil
}

// private gives a field of a struct, or of a struct that a field points to. It is false if there is none that could be
// a T.
func private[T any](v reflect.Value, path ...string) (*T, bool) {
	for _, name := range path {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return nil, false
		}
		v = v.FieldByName(name)
	}
	want := reflect.TypeFor[T]()
	if !v.CanAddr() || v.Kind() != reflect.Slice || v.Type().Elem().Kind() != want.Elem().Kind() {
		return nil, false
	}
	return (*T)(v.Addr().UnsafePointer()), true
}
