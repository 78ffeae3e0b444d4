// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// batchBytes is how many bytes of keys and values one system call reads.
const batchBytes = 256 << 10

// Walk calls f with the key and the value of each entry of m. Both are valid
// during the call and may not be aligned: fill copies them. A hash is read in batches where the kernel has them (5.6 on),
// else key by key. Then ErrIterationAborted says that keys came and went while
// the map was read.
func Walk(m *ebpf.Map, f func(key, value []byte) error) error {
	return walk(m, false, f)
}

// Take is Walk that removes the entries. Nobody else may write to the map
// meanwhile.
func Take(m *ebpf.Map, f func(key, value []byte) error) error {
	return walk(m, true, f)
}

func walk(m *ebpf.Map, take bool, f func(key, value []byte) error) error {
	err := ebpf.ErrNotSupported
	if m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash {
		err = walkBatches(m, take, batchBytes, f)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = walkKeys(m, take, f)
	}
	if err != nil {
		return fmt.Errorf("map %s: %w", m, err)
	}
	return nil
}

// walkBatches reads about size bytes at a time.
func walkBatches(m *ebpf.Map, take bool, size int, f func(key, value []byte) error) error {
	read := m.BatchLookup
	if take {
		read = m.BatchLookupAndDelete
	}
	ks, vs := int(m.KeySize()), int(m.ValueSize())
	n := max(1, min(size/(ks+vs), int(m.MaxEntries())))
	room := takeRoom((ks + vs) * n)
	defer func() { rooms.Put(room) }()
	keys, values := room.items(0, ks, n), room.items(ks*n, vs, n)
	for cursor := new(ebpf.MapBatchCursor); ; {
		got, err := read(cursor, keys.slice, values.slice, nil)
		if errors.Is(err, unix.ENOSPC) {
			// One bucket of the hash holds more: a batch ends with a bucket.
			n *= 2
			rooms.Put(room)
			room = takeRoom((ks + vs) * n)
			keys, values = room.items(0, ks, n), room.items(ks*n, vs, n)
			continue
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range got {
			if err := f(keys.at(i), values.at(i)); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // that was the last batch
		}
	}
}

// items are n pieces of memory of a size that is known at run time only.
type items struct {
	slice any // [][size]byte: cilium/ebpf has the kernel write into it
	bytes []byte
	size  int
}

// newItems are n pieces of zeros.
func newItems(size, n int) items { return (&room{make([]byte, size*n)}).items(0, size, n) }

// A room is memory for items. Maps are walked over many times a second: it is used again.
type room struct{ bytes []byte }

var rooms sync.Pool

// takeRoom is a room of size bytes. What was in it is still there.
func takeRoom(size int) *room {
	r, _ := rooms.Get().(*room)
	if r == nil || len(r.bytes) < size {
		r = &room{make([]byte, max(size, batchBytes))}
	}
	return r
}

// items are n pieces that begin at byte at.
func (r *room) items(at, size, n int) items {
	piece := reflect.ArrayOf(size, reflect.TypeFor[byte]())
	b := r.bytes[at : at+size*n]
	return items{reflect.SliceAt(piece, unsafe.Pointer(unsafe.SliceData(b)), n).Interface(), b, size}
}

func (b *items) at(i int) []byte { return b.bytes[i*b.size : (i+1)*b.size] }

// walkKeys reads one entry at a time: for arrays, and on kernels before 5.6. The value of a
// per-CPU map is the values of all processors, one after the other.
func walkKeys(m *ebpf.Map, take bool, f func(key, value []byte) error) error {
	var key, taken []byte
	var last any // so that the first NextKeyBytes gets an untyped nil
	for n := uint32(0); ; n++ {
		next, err := m.NextKeyBytes(last)
		if err != nil {
			return err
		}
		if taken != nil {
			// Only now: the kernel finds the next key by this one.
			if err := m.Delete(taken); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return err
			}
		}
		if next == nil {
			return nil
		}
		if n >= 2*m.MaxEntries() {
			return ebpf.ErrIterationAborted
		}
		key, last = next, next
		value, err := m.LookupBytes(key)
		if err != nil {
			return err
		}
		if value == nil {
			continue // it has gone meanwhile
		}
		if take {
			taken = key
		}
		if err := f(key, value); err != nil {
			return err
		}
	}
}

// fill copies raw into *t, which may be longer or shorter.
func fill[T any](t *T, raw []byte) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t)), raw)
}
