// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"net/netip"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"seine/internal/row"
)

// TestCells: each value type gives the right cell, and absent values give none.
func TestCells(t *testing.T) {
	v4 := Addr(netip.MustParseAddr("::ffff:192.0.2.1").As16())
	comm, none := Comm{'c', 'u', 'r', 'l'}, Nanos(None)
	zero, pid, state, odd := ID32(0), ID32(7), State(1), State(200)
	abstract, path := Path{0, 'x'}, Path{'/', 'x'}
	for _, c := range []struct {
		v    row.Valuer
		kind row.Kind
		n    uint64
		s    string
	}{
		{&v4, row.Addr, 0, string(v4[:])},
		{&NoAddr, row.Null, 0, ""},
		{&comm, row.Text, 0, "curl"},
		{&Comm{}, row.Null, 0, ""},
		{&none, row.Null, 0, ""},
		{&zero, row.Null, 0, ""},
		{&pid, row.Uint, 7, ""},
		{&state, row.Text, 0, "ESTABLISHED"},
		{&odd, row.Text, 0, "200"},
		{&abstract, row.Text, 0, "@x"},
		{&path, row.Text, 0, "/x"},
	} {
		var cell row.Cell
		c.v.Cell(&cell)
		if cell.Kind != c.kind || cell.N != c.n || cell.S != c.s {
			t.Errorf("%T %v gives %+v, want kind %d, %d, %q", c.v, c.v, cell, c.kind, c.n, c.s)
		}
	}
}

// TestClock: a kernel timestamp becomes the time of day.
func TestClock(t *testing.T) {
	SyncClock()
	got := time.Unix(0, WallNanos(MonoNow()))
	if d := time.Since(got); d < -time.Second || d > time.Second {
		t.Errorf("now is %v off", d)
	}
	// As after a step forward or a sleep, and after a step back.
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		offset.Add(int64(-step))
		synced.Add(int64(-step))
		if d := time.Since(Wall(MonoNow())); d < -time.Second || d > time.Second {
			t.Errorf("after a step of %v now is %v off", step, d)
		}
	}
}

// FuzzEvent: no bytes of an event make reading it panic.
func FuzzEvent(f *testing.F) {
	type event struct {
		Head
		Tuple
		Path Path   `col:"path"`
		Life Nanos  `col:"life_ms,div=1000000"`
		Code Result `col:"result,as=result;errno,as=errno"`
		_    uint32
	}
	s, err := row.SchemaOf(reflect.TypeFor[event]())
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Add(make([]byte, 400))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e event
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), b)
		r := s.New()
		s.Fill(r, unsafe.Pointer(&e))
		for i, c := range s.Columns {
			if n := Namers()[c.As]; n != nil {
				n(r, &r.Cells[i])
			}
		}
	})
}
