// SPDX-License-Identifier: Apache-2.0

package row_test

import (
	"reflect"
	"testing"
	"unsafe"

	"seine/internal/row"
)

// TestWords: a number is shown by its word, and one without a word is not hidden.
func TestWords(t *testing.T) {
	type event struct {
		Dir     uint8  `col:"dir" words:"in,out"`
		Outcome uint32 `col:"outcome" words:",no byte"`
	}
	s, err := row.SchemaOf(reflect.TypeFor[event]())
	if err != nil {
		t.Fatal(err)
	}
	if s.Columns[0].Kind != row.Text || !s.Columns[0].Left {
		t.Errorf("the column is %+v, want text", s.Columns[0])
	}
	for _, c := range []struct {
		e    event
		want string
	}{
		{event{0, 0}, "in -"}, {event{1, 1}, "out no byte"}, {event{2, 3}, "2 3"}, {event{255, 1 << 31}, "255 2147483648"},
	} {
		r := s.New()
		s.Fill(r, unsafe.Pointer(&c.e))
		if got := words(r, "dir", "outcome"); got != c.want {
			t.Errorf("%+v is %q, want %q", c.e, got, c.want)
		}
	}
	if _, err := row.SchemaOf(reflect.TypeFor[struct {
		N int32 `col:"n" words:"a,b"`
	}]()); err == nil {
		t.Error("words for a number with a sign were taken")
	}
}
