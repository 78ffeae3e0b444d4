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

	"seine/internal/kern"
	"seine/internal/row"
)

// Snapshot is the Output of a view that shows what the kernel side has counted:
// every K and V of a map. Each output covers the time since the one before; the
// difference is taken here, since keys are not deleted under a running program.
//
// K holds every field that can be counted by. Which ones are filled is up to
// --by: the engine sets the bits of the C enum key_bits in key_mask.
type Snapshot[K comparable, V any] struct {
	Map string
	// Keyed maps have values that begin with V and its K, whatever they are found by.
	// Those that are not Shown have no K yet. Each processor may have its own.
	Keyed bool
	// Interval makes it an output at each tick, where others print one at the end.
	Interval bool
	// Shown drops entries that are not worth a row, such as those that did not
	// move; nil: entries whose V is all zero.
	Shown func(*V) bool
	// Keep says which keys are worth a row; nil: all.
	Keep func(*K) bool
	// Fold adds up entries that agree in the key fields asked for: the kernel side
	// tells more apart, so that processors do not write to the same memory. V has a
	// method Merge for it.
	Fold bool
	// Each may change the cells of a row where tags do not say enough; nil: as
	// the tags say.
	Each func(*K, *V, *row.Row)
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
		return fmt.Errorf("%s is no struct in C", t)
	}
	return sameLayout(t, st)
}

// keyedValue is how the values of a Keyed map begin. They are copied while the
// kernel side may write, from front to back: who finds a V finds the K that was
// written before it.
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
		ses: ses, m: ses.Maps[s.Map], row: schema.New(), shown: shown,
		old: map[K]V{}, keep: ses.ticks, each: s.Each, wanted: s.Keep, keyed: s.Keyed,
	}
	for i, c := range schema.Columns {
		// Fields that were not asked for hold no value; but a stack is of use
		// only with its process, which Fold takes out again.
		_, isKey := ses.keyBits[c.ID]
		if isKey && !slices.Contains(ses.by, c.ID) && !(c.ID == "pid" && slices.Contains(ses.by, "ustack")) {
			r.blank = append(r.blank, i)
		}
	}
	if s.Fold {
		r.sums, r.idle = map[K]*V{}, idleFields(reflect.TypeFor[K](), ses.by)
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
	m      *ebpf.Map
	row    *row.Row
	shown  func(*V) bool
	wanted func(*K) bool
	each   func(*K, *V, *row.Row)
	keyed  bool
	blank  []int
	old    map[K]V
	keep   bool // more outputs may follow: what is counted now is to be taken off then

	sums map[K]*V // of this output, where entries are added up
	idle []int    // fields of K that do not tell them apart then
}

func (r *snapshotReader[K, V]) output(bool) error {
	e := entry[K, V]{Time: wall(time.Now().UnixNano())}
	walked := r.walk(&e, func() error {
		if r.keep {
			now := e.Val
			if old, ok := r.old[e.Key]; ok {
				sub(&e.Val, &old)
			}
			r.old[e.Key] = now
		}
		if !r.shown(&e.Val) || r.wanted != nil && !r.wanted(&e.Key) {
			return nil
		}
		if r.sums != nil {
			r.add(e.Key, e.Val)
			return nil
		}
		return r.show(&e)
	})
	if errors.Is(walked, ebpf.ErrIterationAborted) {
		// Keys came while we read: what was missed comes with the next output.
		r.ses.report.Aborted++
	} else if walked != nil {
		return walked
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

// walk calls f with each entry of the map in e.
func (r *snapshotReader[K, V]) walk(e *entry[K, V], f func() error) error {
	if r.keyed {
		return r.walkValues(e, f)
	}
	it := r.m.Iterate()
	for it.Next(&e.Key, &e.Val) {
		if err := f(); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("map %s: %w", r.m, err)
	}
	return nil
}

// walkValues is walk for a Keyed map.
func (r *snapshotReader[K, V]) walkValues(e *entry[K, V], f func() error) error {
	step := (r.m.ValueSize() + 7) &^ 7 // from one processor's to the next one's
	var key any
	for {
		next, err := r.m.NextKeyBytes(key)
		if err != nil {
			return fmt.Errorf("map %s: %w", r.m, err)
		}
		if next == nil {
			return nil
		}
		values, err := r.m.LookupBytes(next)
		if err != nil {
			return fmt.Errorf("map %s: %w", r.m, err)
		}
		for key = next; len(values) > 0; values = values[step:] {
			v := (*keyedValue[K, V])(unsafe.Pointer(&values[0]))
			if e.Key, e.Val = v.key, v.val; !r.shown(&e.Val) {
				continue
			}
			if err := f(); err != nil {
				return err
			}
		}
	}
}

func (r *snapshotReader[K, V]) show(e *entry[K, V]) error {
	r.row.Schema.Fill(r.row, unsafe.Pointer(e))
	for _, i := range r.blank {
		r.row.Cells[i] = row.Cell{}
	}
	if r.each != nil {
		r.each(&e.Key, &e.Val, r.row)
	}
	return r.ses.sink.Row(r.row)
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

// sub takes old from v: as v's own method says, other structs number by number.
func sub[V any](v, old *V) {
	if h, ok := any(v).(interface{ Sub(*V) }); ok {
		h.Sub(old)
		return
	}
	subValue(reflect.ValueOf(v).Elem(), reflect.ValueOf(old).Elem())
}

func subValue(v, old reflect.Value) {
	if h, ok := v.Addr().Interface().(*kern.Hist); ok {
		h.Sub(old.Addr().Interface().(*kern.Hist))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			subValue(v.Field(i), old.Field(i))
		}
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(v.Uint() - old.Uint())
	}
}
