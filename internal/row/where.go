// SPDX-License-Identifier: Apache-2.0

package row

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/optimizer"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

// A Filter keeps the rows for which an expression holds.
type Filter struct {
	next  Sink
	progs map[*Schema]*program
	uses  []string
	vm    vm.VM
}

// program is the expression compiled for one schema.
type program struct {
	code   *vm.Program
	inputs []input
	env    map[string]any // reused; holds the values of inputs only
}

// input is one column that the expression reads.
type input struct {
	id      string
	has     string // the name in env of "is present"
	cell    int    // -1: not a column of this view, so always absent
	column  *Column
	measure bool // id is a number of the histogram in cell
}

// Where keeps the rows for which the expression holds. It is written in the
// language of github.com/expr-lang/expr over column ids, and compiled once for
// each schema. Numbers are in the unit that the id names; addresses are text;
// time is a time.
//
// An absent value makes every comparison with it false, and its negation too:
// neither `latency_us > 5` nor `!(latency_us > 5)` keeps a row that has no
// latency. `latency_us == nil` asks for absence and `latency_us ?? 0` puts a
// value in its place. A column that only other views have is absent.
func Where(next Sink, expression string, schemas []*Schema) (*Filter, error) {
	f := &Filter{next: next, progs: map[*Schema]*program{}}
	for _, s := range schemas {
		if f.progs[s] != nil {
			continue
		}
		p, err := compile(expression, s, schemas)
		if err != nil {
			return nil, err
		}
		f.progs[s] = p
		for _, in := range p.inputs {
			if !slices.Contains(f.uses, in.id) {
				f.uses = append(f.uses, in.id)
			}
		}
	}
	return f, nil
}

// Uses lists the columns that the expression reads: they need their names.
func (f *Filter) Uses() []string { return f.uses }

// Row hands the row on if the expression holds.
func (f *Filter) Row(r *Row) error {
	p := f.progs[r.Schema]
	if p == nil {
		return fmt.Errorf("where: no expression for rows of %s %s", r.Schema.Tool, r.Schema.View)
	}
	for i := range p.inputs {
		in := &p.inputs[i]
		v := in.value(r)
		if v == nil && in.id == PendingID {
			v = false // the column is absent in rows about something that has ended
		}
		p.env[in.id], p.env[in.has] = v, v != nil
	}
	v, err := f.vm.Run(p.code, p.env)
	if err != nil {
		return explain(err, "", nil)
	}
	if keep, _ := v.(bool); !keep {
		return nil
	}
	return f.next.Row(r)
}

// End hands the end on.
func (f *Filter) End(e End) error { return f.next.End(e) }

// value is the cell as the expression sees it; nil if absent.
func (in *input) value(r *Row) any {
	if in.cell < 0 {
		return nil
	}
	c := &r.Cells[in.cell]
	if in.measure {
		if v, ok := measure(c, in.id); ok {
			return v
		}
		return nil
	}
	switch {
	case c.Kind == Null:
		return nil
	case in.column.Kind == Text: // what a Namer could not name is still a number
		switch c.Kind {
		case Uint:
			return strconv.FormatUint(c.N, 10)
		case Int:
			return strconv.FormatInt(int64(c.N), 10)
		}
		return c.S
	case c.Kind != in.column.Kind && !(c.isNumber() && in.column.isNumber()):
		return nil
	case c.isNumber() && in.column.Div > 1:
		return in.column.Value(c)
	case c.Kind == Uint:
		return int(min(c.N, math.MaxInt64))
	case c.Kind == Int:
		return int(c.N)
	case c.Kind == Bool:
		return c.N != 0
	case c.Kind == Time:
		return time.Unix(0, int64(c.N))
	case c.Kind == Addr:
		return c.IP().String()
	}
	return nil
}

func (c *Cell) isNumber() bool   { return c.Kind == Uint || c.Kind == Int }
func (c *Column) isNumber() bool { return c.Kind == Uint || c.Kind == Int }

// typeOf is the type of a column in expressions, nil for those that have none.
func typeOf(c *Column) types.Type {
	switch {
	case c.isNumber() && c.Div > 1:
		return types.Float64
	case c.isNumber():
		return types.Int
	case c.Kind == Text || c.Kind == Addr:
		return types.String
	case c.Kind == Bool:
		return types.Bool
	case c.Kind == Time:
		return types.TypeOf(time.Time{})
	}
	return nil
}

// inputsOf lists what expressions over rows of s can name: its own columns,
// then the numbers of its histogram, then columns of the other views.
func inputsOf(s *Schema, all []*Schema) (map[string]input, types.Map) {
	inputs, env := map[string]input{}, types.Map{}
	add := func(in input, t types.Type) {
		if _, dup := inputs[in.id]; dup || t == nil {
			return
		}
		in.has = in.id + "?" // no expression can spell this
		inputs[in.id] = in
		env[in.id], env[in.has] = t, types.Bool
	}
	for _, o := range append([]*Schema{s}, all...) {
		cell := func(i int) int {
			if o != s {
				return -1
			}
			return i
		}
		for i := range o.Columns {
			if o.Columns[i].Idle {
				continue
			}
			add(input{id: o.Columns[i].ID, cell: cell(i), column: &o.Columns[i]}, typeOf(&o.Columns[i]))
		}
		if h := o.hist(); h >= 0 {
			for _, id := range Measures {
				add(input{id: id, cell: cell(h), column: &o.Columns[h], measure: true}, types.Float64)
			}
		}
	}
	return inputs, env
}

func compile(expression string, s *Schema, all []*Schema) (*program, error) {
	inputs, env := inputsOf(s, all)
	c := conf.New(env)
	c.Expect = reflect.Bool
	clear(c.Builtins) // count(…) is a function all the same; count alone is an unknown name

	tree, err := parser.ParseWithConfig(expression, c)
	if err != nil {
		return nil, explain(err, expression, all)
	}
	if _, err := checker.Check(tree, c); err != nil {
		return nil, explain(err, expression, all)
	}
	l := literals{inputs: inputs}
	if ast.Walk(&tree.Node, &l); l.err != nil {
		return nil, l.err
	}
	g := guard{inputs: inputs, used: map[string]bool{}}
	tree.Node = g.rewrite(tree.Node, false)
	if g.env {
		return nil, fmt.Errorf("where: $env is not for expressions: name a column")
	}
	if _, err := checker.Check(tree, c); err != nil {
		return nil, explain(err, expression, all)
	}
	if err := optimizer.Optimize(&tree.Node, c); err != nil {
		return nil, explain(err, expression, all)
	}
	code, err := compiler.Compile(tree, c)
	if err != nil {
		return nil, explain(err, expression, all)
	}
	p := &program{code: code, env: map[string]any{}}
	for i := range s.Columns { // in a fixed order
		if id := s.Columns[i].ID; g.used[id] {
			p.inputs = append(p.inputs, inputs[id])
			delete(g.used, id)
		}
	}
	for id := range g.used {
		p.inputs = append(p.inputs, inputs[id])
	}
	return p, nil
}

// literals finds text that a column is compared with and can never be equal to, and
// writes addresses as rows do: 2001:DB8:0::1 is 2001:db8::1.
type literals struct {
	inputs map[string]input
	err    error
}

func (l *literals) Visit(n *ast.Node) {
	b, ok := (*n).(*ast.BinaryNode)
	if !ok || b.Operator != "==" && b.Operator != "!=" && b.Operator != "in" {
		return
	}
	one, many := b.Left, []ast.Node{b.Right}
	if _, ok := one.(*ast.StringNode); ok {
		one, many = b.Right, []ast.Node{b.Left}
	}
	if list, ok := b.Right.(*ast.ArrayNode); ok {
		many = list.Nodes
	}
	id, ok := one.(*ast.IdentifierNode)
	if !ok || l.inputs[id.Value].column == nil {
		return
	}
	for _, m := range many {
		text, ok := m.(*ast.StringNode)
		if !ok {
			continue
		}
		if most := l.inputs[id.Value].column.Most; most > 0 && len(text.Value) > most {
			l.err = fmt.Errorf("where: character %d: the kernel keeps %d bytes of a name: %q", m.Location().From+1, most, text.Value[:most])
		}
		if l.inputs[id.Value].column.Kind != Addr {
			continue
		}
		a, err := netip.ParseAddr(text.Value)
		if err != nil || a.Zone() != "" {
			l.err = fmt.Errorf("where: character %d: %q is not a valid address%s", m.Location().From+1, text.Value, networks)
		}
		text.Value = a.Unmap().String() // as rows have it
	}
}

const networks = "; networks are for --addr, --laddr, --raddr"

// explain turns an error of the expression library into one line that names the
// place and, for an unknown column, the nearest one. While an expression runs it knows
// neither the expression nor the schemas.
func explain(err error, expression string, schemas []*Schema) error {
	var e *file.Error
	if !errors.As(err, &e) {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return fmt.Errorf("where: the expression is not a condition: %s", line)
	}
	what, _, _ := strings.Cut(e.Message, "\n")
	if id, ok := strings.CutPrefix(what, "unknown name "); ok && schemas != nil {
		has := func(s *Schema) bool { return s.Index(id) >= 0 }
		if i := slices.IndexFunc(schemas, has); i >= 0 && schemas[i].Columns[schemas[i].Index(id)].Idle {
			return fmt.Errorf("where: character %d: rows have no %s unless --by names it", e.From+1, id)
		} else if i >= 0 {
			return fmt.Errorf("where: character %d: column %s is a whole object, not a value to compare", e.From+1, id)
		}
		if id == "count" {
			return fmt.Errorf("where: character %d: rows have no count: --where tests them before --by counts them", e.From+1)
		}
		unknown := Unknown(id, schemas...)
		if e.From > 0 && !strings.Contains(unknown.Error(), "did you mean") { // comm == curl
			return fmt.Errorf("where: character %d: %w; text goes in quotes: %q", e.From+1, unknown, id)
		}
		return fmt.Errorf("where: character %d: %w", e.From+1, unknown)
	}
	switch rest := string([]rune(expression)[min(e.From, len([]rune(expression))):]); {
	case what == "unexpected token EOF":
		what = "the expression ends too early"
	case what == `unexpected token Operator("=")` && strings.HasPrefix(rest, "=~"):
		what = "patterns are tested by the word matches: comm matches \"^ng\""
	case what == `unexpected token Operator("=")`:
		what = "equal is written =="
	case what == "invalid operation: in (mismatched types string and string)":
		what = `in takes a list: ["a", "b"]` + networks
	}
	return fmt.Errorf("where: character %d: %s", e.From+1, what)
}
