// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"seine/internal/kern"
)

// Late finds, for a Stream of T, operations that began and have not ended in time.
type Late[T any] interface {
	check(*ebpf.CollectionSpec) error
	due(*Session, func(*T) error) error
}

// Overdue is the Late of a SPAN map of K and V: an entry that is older than After is deleted from
// the map and becomes a row. The kernel side sends an end only if it could delete the entry
// itself. So each operation gives one row, whichever side comes first.
type Overdue[K comparable, V, T any] struct {
	Map   string
	After time.Duration
	Since func(*V) kern.Mono
	Row   func(*K, *V, *T)
}

func (o Overdue[K, V, T]) check(spec *ebpf.CollectionSpec) error {
	m, ok := spec.Maps[o.Map]
	if !ok {
		return fmt.Errorf("map %s: not in the object", o.Map)
	}
	for t, b := range map[reflect.Type]btf.Type{reflect.TypeFor[K](): m.Key, reflect.TypeFor[V](): m.Value} {
		st, ok := btf.UnderlyingType(b).(*btf.Struct)
		if !ok {
			return fmt.Errorf("map %s: %s is not a struct in C", o.Map, t)
		}
		if err := sameLayout(t, st); err != nil {
			return fmt.Errorf("map %s: %w", o.Map, err)
		}
	}
	return nil
}

// due hands to emit what is overdue now.
func (o Overdue[K, V, T]) due(ses *Session, emit func(*T) error) error {
	type entry struct {
		k K
		v V
	}
	var late []entry
	var e entry
	m := ses.Maps[o.Map]
	now := kern.MonoNow()
	err := Walk(m, func(key, value []byte) error {
		fill(&e.k, key)
		fill(&e.v, value)
		if overdue(o.Since(&e.v), now, o.After) {
			late = append(late, e)
		}
		return nil
	})
	// Aborted: keys came and went while we read; the next round finds the rest.
	if err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	for i := range late {
		err := m.Delete(&late[i].k)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue // it ended after all
		} else if err != nil {
			return fmt.Errorf("map %s: %w", o.Map, err)
		}
		var t T
		o.Row(&late[i].k, &late[i].v, &t)
		if err := emit(&t); err != nil {
			return err
		}
	}
	return nil
}

// overdue says whether what began at since is older than after. It may have begun
// after now was read, and the machine may be younger than after.
func overdue(since, now kern.Mono, after time.Duration) bool {
	return since < now && now-since > kern.Mono(after)
}
