// SPDX-License-Identifier: Apache-2.0

package row

import (
	"slices"

	"github.com/expr-lang/expr/ast"
)

// guard rewrites an expression for absent values: each part that is not made of
// and, or, not gets a test that the columns it reads are present, and negations
// move inwards so that they do not turn that test round.
type guard struct {
	inputs map[string]input
	used   map[string]bool
	env    bool // $env was named: it would bypass the tests
}

func (g *guard) rewrite(n ast.Node, negate bool) ast.Node {
	switch b := n.(type) {
	case *ast.UnaryNode:
		if b.Operator == "!" || b.Operator == "not" {
			return g.rewrite(b.Node, !negate)
		}
	case *ast.BinaryNode:
		switch b.Operator {
		case "&&", "and", "||", "or":
			op := "&&"
			if isAnd := b.Operator == "&&" || b.Operator == "and"; isAnd == negate {
				op = "||"
			}
			return at(n, &ast.BinaryNode{Operator: op, Left: g.rewrite(b.Left, negate), Right: g.rewrite(b.Right, negate)})
		case "==", "!=":
			if id := g.nilTest(b); id != "" {
				g.used[id] = true
				var test ast.Node = at(n, &ast.IdentifierNode{Value: g.inputs[id].has})
				if (b.Operator == "==") != negate {
					test = at(n, &ast.UnaryNode{Operator: "!", Node: test})
				}
				return test
			}
		}
	}
	reads := columnReads{g: g}
	ast.Walk(&n, &reads)
	out := n
	if negate {
		out = at(n, &ast.UnaryNode{Operator: "!", Node: n})
	}
	for _, id := range reads.must() {
		out = at(n, &ast.BinaryNode{Operator: "&&", Left: at(n, &ast.IdentifierNode{Value: g.inputs[id].has}), Right: out})
	}
	return out
}

// nilTest returns the column that is compared with nil, "" if none is.
func (g *guard) nilTest(b *ast.BinaryNode) string {
	id, isID := b.Left.(*ast.IdentifierNode)
	_, isNil := b.Right.(*ast.NilNode)
	if !isID {
		id, isID = b.Right.(*ast.IdentifierNode)
		_, isNil = b.Left.(*ast.NilNode)
	}
	if !isID || !isNil {
		return ""
	}
	if _, ok := g.inputs[id.Value]; !ok {
		return ""
	}
	return id.Value
}

// columnReads collects the columns below a node.
type columnReads struct {
	g    *guard
	all  []*ast.IdentifierNode
	free map[*ast.IdentifierNode]bool // left of ??: may be absent
}

func (c *columnReads) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			c.g.env = true
		}
		if _, ok := c.g.inputs[n.Value]; ok {
			c.g.used[n.Value] = true
			c.all = append(c.all, n)
		}
	case *ast.BinaryNode:
		if id, ok := n.Left.(*ast.IdentifierNode); ok && n.Operator == "??" {
			if c.free == nil {
				c.free = map[*ast.IdentifierNode]bool{}
			}
			c.free[id] = true
		}
	}
}

// must lists the columns without which the node has no value.
func (c *columnReads) must() []string {
	var ids []string
	for _, n := range c.all {
		if !c.free[n] && !slices.Contains(ids, n.Value) {
			ids = append(ids, n.Value)
		}
	}
	return ids
}

// at gives a made-up node the place of the one that it stands for.
func at(n, made ast.Node) ast.Node {
	made.SetLocation(n.Location())
	return made
}
