// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"seine/internal/row"
)

// Snapshot is the Output of a view that shows what the kernel side has counted:
// every K and V of a map that COUNT_MAP of count.h makes. Each output covers the
// time since the one before.
//
// K holds every field that can be counted by. Which ones are filled is up to
// --by: the engine sets the bits of the C enum key_bits in key_mask.
type Snapshot[K comparable, V any] struct {
	Map string
	// Keyed maps have values that begin with V and its K, whatever the key of the map is.
	// Values that are not Shown have no K yet. Each processor may have its own.
	Keyed bool
	// Leaves is for all but the last of several views that show the same hash: the last one empties it.
	Leaves bool
	// Interval makes it an output at each tick, where others print one at the end.
	Interval bool
	// Shown drops entries that are not worth a row, such as those that did not
	// move; nil: entries whose V is all zero.
	Shown func(*V) bool
	// Keep says which keys are worth a row; nil: all.
	Keep func(*K) bool
	// Fold adds up entries that agree in the key fields of --by. The kernel side has more key
	// fields, so that processors do not write to the same memory. V has a method Merge
	// for it.
	Fold bool
	// Each may change the cells of a row where tags do not say enough; nil: as
	// the tags say.
	Each func(*K, *V, *row.Row)
	// All is called with all entries of an output before the first of them is shown. It may
	// change values, where a row says something of the others; nil: none does.
	All func(map[K]*V)
}

// entry is one row of a Snapshot.
type entry[K comparable, V any] struct {
	Time wall `col:"time,width=8" help:"end of the interval"`
	Key  K    `col:",inline"`
	Val  V    `col:",inline"`
}

// wall is a moment in nanoseconds since the Unix epoch.
type wall int64

func (wall) Kind() row.Kind      { return row.Time }
func (w *wall) Cell(c *row.Cell) { *c = row.Cell{Kind: row.Time, N: uint64(*w)} }

// Kind is Counting, or Interval if that was asked for.
func (s Snapshot[K, V]) Kind() Kind {
	if s.Interval {
		return Interval
	}
	return Counting
}

// Schema is made of the tags of K and V.
func (Snapshot[K, V]) Schema() (*row.Schema, error) {
	return row.SchemaOf(reflect.TypeFor[entry[K, V]]())
}

// Check compares K and V with the map's key and value, and the fields of K with
// the bits of key_mask.
func (s Snapshot[K, V]) Check(spec *ebpf.CollectionSpec) error {
	m, ok := spec.Maps[s.Map]
	if !ok {
		return fmt.Errorf("map %s: not in the object", s.Map)
	}
	if spec.Maps[s.Map+odd] == nil {
		return fmt.Errorf("map %s: not made by COUNT_MAP", s.Map)
	}
	if s.Keyed {
		if err := s.checkKeyed(m); err != nil {
			return fmt.Errorf("map %s: %w", s.Map, err)
		}
	} else if err := errors.Join(isStruct(reflect.TypeFor[K](), m.Key), isStruct(reflect.TypeFor[V](), m.Value)); err != nil {
		return fmt.Errorf("map %s: %w", s.Map, err)
	}
	if _, ok := any(new(V)).(merger[V]); s.Fold && !ok {
		return fmt.Errorf("map %s: %s has no method Merge", s.Map, reflect.TypeFor[V]())
	}
	_, err := keyBits(spec, reflect.TypeFor[K]())
	return err
}

// isStruct compares a Go type with a C type, which has to be a struct.
func isStruct(t reflect.Type, b btf.Type) error {
	st, ok := btf.UnderlyingType(b).(*btf.Struct)
	if !ok {
		return fmt.Errorf("%s is not a struct in C", t)
	}
	return sameLayout(t, st)
}

// keyedValue is how the values of a Keyed map begin.
type keyedValue[K comparable, V any] struct {
	val V
	key K
}

func (s Snapshot[K, V]) checkKeyed(m *ebpf.MapSpec) error {
	st, ok := btf.UnderlyingType(m.Value).(*btf.Struct)
	if !ok || len(st.Members) < 2 {
		return errors.New("its values hold no value and key in C")
	}
	t := reflect.TypeFor[keyedValue[K, V]]()
	for i := range t.NumField() {
		f, member := t.Field(i), st.Members[i]
		if f.Offset != uintptr(member.Offset.Bytes()) {
			return fmt.Errorf("%s is at %d, struct %s.%s at %d", f.Type, f.Offset, st.Name, member.Name, member.Offset.Bytes())
		}
		if err := isStruct(f.Type, member.Type); err != nil {
			return err
		}
	}
	return nil
}

// keyBits returns the bit of key_mask for each column that can be grouped by.
func keyBits(spec *ebpf.CollectionSpec, k reflect.Type) (map[string]uint64, error) {
	var enum *btf.Enum
	if err := spec.Types.TypeByName("key_bits", &enum); err != nil {
		return nil, fmt.Errorf("enum key_bits: %w", err)
	}
	byField := map[string]uint64{}
	for _, v := range enum.Values {
		if name, ok := strings.CutPrefix(v.Name, "KEY_"); ok {
			byField[fold(name)] = v.Value
		}
	}
	bits := map[string]uint64{}
	var walk func(t reflect.Type) error
	walk = func(t reflect.Type) error {
		for f := range t.Fields() {
			tag := f.Tag.Get("col")
			if tag == ",inline" || f.Anonymous {
				if err := walk(f.Type); err != nil {
					return err
				}
				continue
			}
			if !strings.Contains(tag, ",key") {
				continue // always filled
			}
			bit, ok := byField[fold(f.Name)]
			if !ok {
				return fmt.Errorf("%s.%s has no KEY_ bit in the enum key_bits", t, f.Name)
			}
			for one := range strings.SplitSeq(tag, ";") {
				id, _, _ := strings.Cut(one, ",")
				bits[id] = bit
			}
		}
		return nil
	}
	return bits, walk(k)
}

// keys lists the ids that --by may name.
func (Snapshot[K, V]) keys(spec *ebpf.CollectionSpec) (map[string]uint64, error) {
	return keyBits(spec, reflect.TypeFor[K]())
}

type keyed interface {
	keys(*ebpf.CollectionSpec) (map[string]uint64, error)
}

func (s Snapshot[K, V]) open(ses *Session, v *View, i int) (reader, error) {
	shown := s.Shown
	if shown == nil {
		shown = func(v *V) bool { return !reflect.ValueOf(v).Elem().IsZero() }
	}
	schema := ses.schemas[i]
	r := &snapshotReader[K, V]{
		ses: ses, name: s.Map, row: schema.New(), shown: shown,
		each: s.Each, wanted: s.Keep, keyed: s.Keyed, leaves: s.Leaves, all: s.All,
	}
	for i, c := range schema.Columns {
		// Fields that --by does not name have no value. But a stack is of use only
		// with its process, which Fold takes out again.
		_, isKey := ses.keyBits[c.ID]
		if isKey && !slices.Contains(ses.by, c.ID) && !(c.ID == "pid" && slices.Contains(ses.by, "ustack")) {
			r.blank = append(r.blank, i)
		}
	}
	if s.Fold || s.All != nil {
		r.sums = map[K]*V{}
	}
	if s.Fold {
		r.idle = idleFields(reflect.TypeFor[K](), ses.by)
	}
	return r, nil
}

// idleFields are the key fields that by does not name, or cannot.
func idleFields(k reflect.Type, by []string) (out []int) {
	for i := range k.NumField() {
		tag := k.Field(i).Tag.Get("col")
		id, _, _ := strings.Cut(tag, ",")
		if tag == "-" || strings.Contains(tag, ",key") && !slices.Contains(by, id) {
			out = append(out, i)
		}
	}
	return out
}

type snapshotReader[K comparable, V any] struct {
	noEvents
	ses    *Session
	name   string // of the map
	row    *row.Row
	shown  func(*V) bool
	wanted func(*K) bool
	each   func(*K, *V, *row.Row)
	all    func(map[K]*V)
	keyed  bool
	leaves bool
	blank  []int

	sums map[K]*V // of this output, where entries are added up or looked at together
	idle []int    // fields of K that do not tell them apart then
}

func (r *snapshotReader[K, V]) output(bool) error {
	e := entry[K, V]{Time: wall(time.Now().UnixNano())}
	err := r.walk(&e, func() error {
		if !r.shown(&e.Val) || r.wanted != nil && !r.wanted(&e.Key) {
			return nil
		}
		if r.sums != nil {
			r.add(e.Key, e.Val)
			return nil
		}
		return r.show(&e)
	})
	if err != nil {
		return err
	}
	if r.all != nil {
		r.all(r.sums)
	}
	for k, v := range r.sums {
		e.Key, e.Val = k, *v
		if err := r.show(&e); err != nil {
			return err
		}
	}
	clear(r.sums)
	return nil
}

// walk calls f with each entry of the map in e, and takes it out where another
// output may follow. Several views may show an array: the session empties it when
// all of them have read it.
func (r *snapshotReader[K, V]) walk(e *entry[K, V], f func() error) error {
	m := r.ses.Maps[r.name+r.ses.turned]
	read := Walk
	if r.ses.ticks && m.Type() == ebpf.Hash && !r.leaves {
		read = Take
	}
	step := (int(m.ValueSize()) + 7) &^ 7 // from one processor's to the next one's
	return read(m, func(key, values []byte) error {
		if !r.keyed {
			fill(&e.Key, key)
			fill(&e.Val, values)
			return f()
		}
		for ; len(values) > 0; values = values[min(step, len(values)):] {
			var v keyedValue[K, V]
			fill(&v, values)
			if e.Key, e.Val = v.key, v.val; !r.shown(&e.Val) {
				continue
			}
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
}

// clear is called when all views have read the map.
func (r *snapshotReader[K, V]) clear() error {
	m := r.ses.Maps[r.name+r.ses.turned]
	if m.Type() == ebpf.Hash {
		return nil // Take has done it
	}
	return clearArray(m)
}

// clearArray writes zeros to all entries of an array, of each processor.
func clearArray(m *ebpf.Map) error {
	cpus := 1
	if m.Type() == ebpf.PerCPUArray {
		var err error
		if cpus, err = ebpf.PossibleCPU(); err != nil {
			return err
		}
	}
	zeros := newItems(int(m.ValueSize()), cpus)
	var value any = zeros.bytes
	if m.Type() == ebpf.PerCPUArray {
		value = zeros.slice
	}
	for i := range m.MaxEntries() {
		if err := m.Put(i, value); err != nil {
			return fmt.Errorf("map %s: %w", m, err)
		}
	}
	return nil
}

func (r *snapshotReader[K, V]) show(e *entry[K, V]) error {
	r.row.Schema.Fill(r.row, unsafe.Pointer(e))
	for _, i := range r.blank {
		r.row.Cells[i] = row.Cell{}
	}
	if r.each != nil {
		r.each(&e.Key, &e.Val, r.row)
	}
	return r.ses.show(r.row)
}

// merger is a V that others can be added to.
type merger[V any] interface{ Merge(*V) }

// add adds v to what there is of its key, without the fields that do not matter.
func (r *snapshotReader[K, V]) add(k K, v V) {
	for _, i := range r.idle {
		reflect.ValueOf(&k).Elem().Field(i).SetZero()
	}
	if sum := r.sums[k]; sum != nil {
		any(sum).(merger[V]).Merge(&v)
		return
	}
	r.sums[k] = &v
}
