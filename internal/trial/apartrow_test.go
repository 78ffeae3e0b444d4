// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
)

// TestApartRow: a row from the process apart is the one that was sent.
func TestApartRow(t *testing.T) {
	var schemas []*row.Schema
	for range 2 {
		s, err := row.SchemaOf(reflect.TypeFor[struct {
			A uint64 `col:"a" help:"a"`
			B uint64 `col:"b" help:"b"`
			C uint64 `col:"c" help:"c"`
			D uint64 `col:"d" help:"d"`
			E uint64 `col:"e" help:"e"`
			F uint64 `col:"f" help:"f"`
			G uint64 `col:"g" help:"g"`
			H uint64 `col:"h" help:"h"`
		}]())
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, s)
	}
	hist := &kern.Hist{}
	for _, v := range []uint64{0, 7, 1 << 39, math.MaxUint64} {
		hist.Add(v)
	}
	want := schemas[1].New()
	copy(want.Cells, []row.Cell{
		{},
		{Kind: row.Uint, N: math.MaxUint64},
		{Kind: row.Int, N: uint64(1<<64 - 7)},
		{Kind: row.Text, S: "\xff\x00a"},
		{Kind: row.Addr, S: string(make([]byte, 16))},
		{Kind: row.Object, Ref: hist},
		{Kind: row.Object, Ref: &kern.Stack{Frames: []kern.Frame{{Sym: "f\xfe", Off: 3, Module: "m"}}, Broken: true}},
		{Kind: row.Text},
	})
	var b bytes.Buffer
	s := &sender{out: bufio.NewWriter(&b), schemas: schemas}
	if err := errors.Join(s.Row(want), s.End(row.End{})); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(&b)
	kind, body, err := receive(in)
	if err != nil || kind != msgRow {
		t.Fatalf("message %d, %v", kind, err)
	}
	got, err := decodeRow(body, schemas)
	if err != nil {
		t.Fatal(err)
	}
	if got.Schema != schemas[1] || !reflect.DeepEqual(got.Cells, want.Cells) {
		t.Errorf("got %+v, want %+v", got.Cells, want.Cells)
	}
	for n := range len(body) {
		if _, err := decodeRow(body[:n], schemas); err == nil {
			t.Errorf("%d of %d bytes are taken for a row", n, len(body))
		}
	}
	if kind, _, err := receive(in); err != nil || kind != msgBatch {
		t.Errorf("message %d, %v, want the end of a batch", kind, err)
	}
}

// TestCrossing: an error keeps its text and what it is.
func TestCrossing(t *testing.T) {
	err := cross(tool.Usagef("--by color: no")).err()
	if err.Error() != "--by color: no" || !errors.Is(err, tool.ErrUsage) || errors.Is(err, ErrSkip) {
		t.Errorf("got %v", err)
	}
	if err := cross(nil).err(); err != nil {
		t.Errorf("of no error came %v", err)
	}
}
