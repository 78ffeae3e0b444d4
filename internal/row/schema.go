// SPDX-License-Identifier: Apache-2.0

package row

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// A Column is one named field of a view.
type Column struct {
	ID    string // the name in every format: latency_us
	Head  string // the book's head in tables: LAT(us)
	Help  string // one line, for --columns help
	Kind  Kind   // what its cells hold when they are not Null
	Div   uint64 // raw value ÷ Div is the value in the unit that the id names; 1 if they are the same
	Scale uint64 // tables show the value ÷ Scale: TX_KB is tx_bytes ÷ 1024
	Prec  int    // decimals in tables
	Width int    // least width in tables; a value is never cut
	Left  bool   // text is aligned to the left
	Most  int    // bytes that a text can have; 0: any number
	Sum   bool   // can be added up when rows are grouped
	Age   bool   // how long it took: of a row that is pending, how long so far
	Key   bool   // of a counting tool: may be named in --by
	Idle  bool   // a Key that is not counted by: it has no values
	Unit  string // of a histogram's values: bytes, us
	Inner bool   // a histogram that is one value of many: JSON and Parquet alone have it, under its id
	As    string // the Namer that makes a name of the raw value: "cgroup", "errno", …

	// Was is the ids that the column had in earlier versions: recordings of theirs have it
	// under these.
	Was []string

	// What a table writes around values and head, as the book does: "-> ESTABLISHED", "R>".
	Before, After string
	// Prefix is what a table writes before values alone: 0x.
	Prefix string
	// With is the id of a column that a table writes behind this one, after a
	// colon: laddr with lport is 192.0.2.1:80.
	With string
}

// Value is the number of a cell in the unit that the column's id names.
func (c *Column) Value(cell *Cell) float64 {
	n := float64(cell.N)
	if cell.Kind == Int {
		n = float64(int64(cell.N))
	}
	return n / float64(max(c.Div, 1))
}

// A Schema is the columns of one kind of row.
type Schema struct {
	Tool, View string // View is empty for tools that have but one
	Columns    []Column
	Show       []int  // indexes of the columns that a table shows, in order
	Line       string // a sentence in place of the table, with {id} for values; empty: a table
	NoStack    string // what a table says in place of a kernel stack that a row does not have; empty: nothing

	getters []getter
}

// getter reads one column from the struct at p.
type getter func(p unsafe.Pointer, c *Cell)

// Index returns the position of the column called id, -1 if there is none.
func (s *Schema) Index(id string) int {
	for i := range s.Columns { // a Column is long: slices.IndexFunc would copy each
		if s.Columns[i].ID == id {
			return i
		}
	}
	return -1
}

// IDs lists the ids of all columns.
func (s *Schema) IDs() []string {
	ids := make([]string, len(s.Columns))
	for i := range s.Columns {
		ids[i] = s.Columns[i].ID
	}
	return ids
}

// New returns a row for this schema with every cell Null.
func (s *Schema) New() *Row { return &Row{Schema: s, Cells: make([]Cell, len(s.Columns))} }

// Fill reads the row's cells from the struct at p, whose type is the one that
// SchemaOf was given.
func (s *Schema) Fill(r *Row, p unsafe.Pointer) {
	for i, g := range s.getters {
		g(p, &r.Cells[i])
	}
}

// Derive adds a column that is filled as another one is, for its Namer to make
// something else of. A table shows it behind the first of the columns next that it
// shows, or else last.
func (s *Schema) Derive(from string, c Column, next ...string) {
	i := s.Index(from)
	c.Idle = s.Columns[i].Idle
	s.Columns = append(s.Columns, c)
	s.getters = append(s.getters, s.getters[i])
	at := len(s.Show)
	for _, id := range next {
		if shown := slices.Index(s.Show, s.Index(id)); shown >= 0 {
			at = shown + 1
			break
		}
	}
	s.Show = slices.Insert(s.Show, at, len(s.Columns)-1)
}

// SchemaOf reads the col tags of struct type t, going into embedded structs and
// into fields tagged `col:",inline"`.
//
// A tag is `col:"id,option,…"`, or several of them separated by semicolons
// where one field gives several columns. Options: head=H width=N div=N scale=N
// prec=N left sum key age inner unit=U as=NAMER was=ID before=TEXT after=TEXT prefix=TEXT. The help line is the field's `help` tag.
// A number with a tag `words:"read,write"` is shown by its word.
func SchemaOf(t reflect.Type) (*Schema, error) {
	s := &Schema{}
	if err := s.add(t, 0); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range s.Columns {
		id := s.Columns[i].ID
		if seen[id] {
			return nil, fmt.Errorf("%s: column %s twice", t, id)
		}
		seen[id] = true
	}
	return s, nil
}

func (s *Schema) add(t reflect.Type, base uintptr) error {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("col")
		if tag == ",inline" || f.Anonymous && !tagged {
			if err := s.add(f.Type, base+f.Offset); err != nil {
				return err
			}
			continue
		}
		if !tagged || tag == "-" {
			continue
		}
		tags := strings.Split(tag, ";")
		help := strings.Split(f.Tag.Get("help"), "; ") // one for each of several
		for i, one := range tags {
			c, err := parseTag(one)
			if err != nil {
				return fmt.Errorf("%s.%s: %w", t, f.Name, err)
			}
			if c.Help = f.Tag.Get("help"); len(tags) > 1 && len(help) == len(tags) {
				c.Help = help[i]
			}
			g, kind, err := getterOf(f.Type, base+f.Offset)
			if words, ok := f.Tag.Lookup("words"); ok && err == nil {
				g, kind, err = inWords(g, kind, strings.Split(words, ","))
			}
			if err != nil {
				return fmt.Errorf("%s.%s: %w", t, f.Name, err)
			}
			if c.As != "" && kind != Object {
				kind = Text
			}
			if m, ok := reflect.Zero(f.Type).Interface().(interface{ Most() int }); ok {
				c.Most = m.Most()
			}
			c.Kind = kind
			c.Left = c.Left || kind == Text || kind == Addr || kind == Time || kind == Object
			s.Columns = append(s.Columns, c)
			s.getters = append(s.getters, g)
		}
	}
	return nil
}

func parseTag(tag string) (Column, error) {
	id, opts, _ := strings.Cut(tag, ",")
	c := Column{ID: id, Head: strings.ToUpper(id), Div: 1, Scale: 1}
	for o := range strings.SplitSeq(opts, ",") {
		k, v, has := strings.Cut(o, "=")
		n, err := strconv.ParseUint(v, 10, 64)
		switch k {
		case "":
			continue
		case "head", "as", "was", "unit", "before", "after", "prefix":
			err = nil
		case "left", "sum", "key", "age", "inner":
			if err = nil; has {
				err = fmt.Errorf("takes no value")
			}
		}
		if err != nil {
			return c, fmt.Errorf("column %s: option %s: %w", id, k, err)
		}
		switch k {
		case "head":
			c.Head = v
		case "as":
			c.As = v
		case "was":
			c.Was = append(c.Was, v)
		case "unit":
			c.Unit = v
		case "before":
			c.Before = v
		case "after":
			c.After = v
		case "prefix":
			c.Prefix = v
		case "width":
			c.Width = int(n)
		case "div":
			c.Div = n
		case "scale":
			c.Scale = n
		case "prec":
			c.Prec = int(n)
		case "left":
			c.Left = true
		case "sum":
			c.Sum = true
		case "key":
			c.Key = true
		case "age":
			c.Age = true
		case "inner":
			c.Inner = true
		default:
			return c, fmt.Errorf("column %s: unknown option %q", id, k)
		}
	}
	if c.Div == 0 || c.Scale == 0 {
		return c, fmt.Errorf("column %s: div and scale cannot be 0", id)
	}
	return c, nil
}

// kinder is a Valuer whose cells are of one kind; the zero value tells which.
type kinder interface{ Kind() Kind }

// registered makes getters for field types without reflection.
var registered = map[reflect.Type]func(off uintptr) getter{}

// Register makes reading fields of type T faster. It need not be called.
func Register[T any, P interface {
	*T
	Valuer
}]() {
	registered[reflect.TypeFor[T]()] = func(off uintptr) getter {
		return func(p unsafe.Pointer, c *Cell) { P((*T)(unsafe.Add(p, off))).Cell(c) }
	}
}

func getterOf(t reflect.Type, off uintptr) (getter, Kind, error) {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[Valuer]()) {
		k, ok := reflect.New(t).Interface().(kinder)
		if !ok {
			return nil, 0, fmt.Errorf("%s has Cell but no Kind method", t)
		}
		if make := registered[t]; make != nil {
			return make(off), k.Kind(), nil
		}
		return func(p unsafe.Pointer, c *Cell) {
			reflect.NewAt(t, unsafe.Add(p, off)).Interface().(Valuer).Cell(c)
		}, k.Kind(), nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return func(p unsafe.Pointer, c *Cell) { *c = Cell{Kind: Bool, N: uint64(*(*uint8)(unsafe.Add(p, off)) & 1)} }, Bool, nil
	case reflect.Uint8:
		return func(p unsafe.Pointer, c *Cell) { c.SetUint(uint64(*(*uint8)(unsafe.Add(p, off)))) }, Uint, nil
	case reflect.Uint16:
		return func(p unsafe.Pointer, c *Cell) { c.SetUint(uint64(*(*uint16)(unsafe.Add(p, off)))) }, Uint, nil
	case reflect.Uint32:
		return func(p unsafe.Pointer, c *Cell) { c.SetUint(uint64(*(*uint32)(unsafe.Add(p, off)))) }, Uint, nil
	case reflect.Uint64:
		return func(p unsafe.Pointer, c *Cell) { c.SetUint(*(*uint64)(unsafe.Add(p, off))) }, Uint, nil
	case reflect.Int32:
		return func(p unsafe.Pointer, c *Cell) { c.SetInt(int64(*(*int32)(unsafe.Add(p, off)))) }, Int, nil
	case reflect.Int64:
		return func(p unsafe.Pointer, c *Cell) { c.SetInt(*(*int64)(unsafe.Add(p, off))) }, Int, nil
	case reflect.String:
		return func(p unsafe.Pointer, c *Cell) { c.SetText(*(*string)(unsafe.Add(p, off))) }, Text, nil
	}
	return nil, 0, fmt.Errorf("no cell for type %s", t)
}

// inWords shows numbers by their words. A number that has none is absent if it is 0;
// others are shown as they are.
func inWords(g getter, kind Kind, words []string) (getter, Kind, error) {
	if kind != Uint {
		return nil, 0, errors.New("words are for numbers without a sign")
	}
	return func(p unsafe.Pointer, c *Cell) {
		g(p, c)
		c.SetWord(c.N, words)
	}, Text, nil
}

// SetWord makes c the word of a number. A number that has none is absent if it is 0;
// others are shown as they are.
func (c *Cell) SetWord(n uint64, words []string) {
	switch {
	case n < uint64(len(words)) && words[n] != "":
		c.SetText(words[n])
	case n == 0:
		*c = Cell{}
	default:
		c.SetText(strconv.FormatUint(n, 10))
	}
}

// SetShow chooses the columns that a table shows from a list of ids, each with
// the head and the width that this view gives it where they differ:
// "pid comm:PROCESS raddr::39". Two columns joined by a plus share one place:
// "laddr+lport" is headed LADDR:LPORT and shows 192.0.2.1:80.
func (s *Schema) SetShow(list string) error {
	s.Show = nil
	for w := range strings.FieldsSeq(list) {
		id, rest, _ := strings.Cut(w, ":")
		head, width, _ := strings.Cut(rest, ":")
		id, with, joined := strings.Cut(id, "+")
		i := s.Index(id)
		if i < 0 {
			return fmt.Errorf("no column %s", id)
		}
		if joined {
			if s.Index(with) < 0 {
				return fmt.Errorf("no column %s", with)
			}
			s.Columns[i].With = with
		}
		if head != "" {
			s.Columns[i].Head = head
		}
		if width != "" {
			n, err := strconv.Atoi(width)
			if err != nil {
				return fmt.Errorf("column %s: width %q: %w", id, width, err)
			}
			s.Columns[i].Width = n
		}
		s.Show = append(s.Show, i)
	}
	if len(s.Show) > 0 && !slices.ContainsFunc(s.Show, func(i int) bool { return !s.Columns[i].small() }) { // then all heads are
		for i := range s.Columns {
			s.Columns[i].Head = strings.ToLower(s.Columns[i].Head)
		}
	}
	return nil
}

// small says whether the head is in small letters.
func (c *Column) small() bool {
	return c.Head == strings.ToLower(c.Head) && c.Head != strings.ToUpper(c.Head)
}

// ShowTime puts the time first in a table, or a sentence, that does not have it.
func (s *Schema) ShowTime() {
	i := s.Index("time")
	if i < 0 {
		return
	}
	if !slices.Contains(s.Show, i) {
		s.Show = slices.Insert(s.Show, 0, i)
	}
	if s.Line != "" && !strings.Contains(s.Line, "{time}") {
		s.Line = "{time} " + s.Line
	}
}
