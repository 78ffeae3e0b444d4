// SPDX-License-Identifier: Apache-2.0

package bt

// Some of what bpftrace's library has is an expression of others: it is put in
// place of its calls, as macros are.
var library = map[string]struct {
	least, most int
	tree        func(b *builder, args []Expr) Expr
}{
	"pcomm": {0, 1, func(b *builder, args []Expr) Expr {
		return b.field(b.field(b.task(args), "group_leader"), "comm")
	}},
	"ppid": {0, 1, func(b *builder, args []Expr) Expr {
		if len(args) == 0 {
			return &Ident{b.node, "ppid"}
		}
		return b.field(b.field(b.task(args), "real_parent"), "tgid")
	}},
	"assert": {2, 2, func(b *builder, args []Expr) Expr {
		return &BlockExpr{node: b.node, Body: []Stmt{&If{Cond: &Unary{b.node, "!", args[0]}, Then: []Stmt{
			&ExprStmt{b.call("errorf", &Str{b.node, "assertion failed: %s"}, args[1])},
			&ExprStmt{b.call("exit", &Int{node: b.node, V: 1})},
		}}}}
	}},
	"assert_str": {1, 1, func(b *builder, args []Expr) Expr {
		return &BlockExpr{node: b.node, Body: []Stmt{&ExprStmt{b.call("static_assert", b.call("is_str", args[0]), &Str{b.node, "this is not a string"})}}}
	}},
	"default_str_length": {0, 0, func(b *builder, _ []Expr) Expr {
		return &Sizeof{node: b.node, X: b.call("str", &Int{node: b.node})}
	}},
	"socket_cookie": {1, 1, func(b *builder, args []Expr) Expr {
		sk := &Cast{b.node, TypeName{pos: b.pos, end: b.end, Tag: "struct", Name: "sock", Stars: 1}, args[0]}
		v := b.field(b.field(b.field(sk, "__sk_common"), "skc_cookie"), "counter")
		return &Cast{b.node, TypeName{pos: b.pos, end: b.end, Name: "uint64"}, v}
	}},
}

// A builder makes trees whose place is that of a call.
type builder struct{ node }

func (b *builder) field(x Expr, name string) Expr {
	return &Field{node: b.node, X: x, Name: name, Arrow: true}
}

func (b *builder) call(name string, args ...Expr) Expr {
	return &Call{node: b.node, Name: name, Args: args}
}

// task is the struct task_struct of the argument, else the current one.
func (b *builder) task(args []Expr) Expr {
	if len(args) == 0 {
		return &Ident{b.node, "curtask"}
	}
	return &Cast{b.node, TypeName{pos: b.pos, end: b.end, Tag: "struct", Name: "task_struct", Stars: 1}, args[0]}
}

// fromLibrary is the tree for a name of the library.
func (x *expansion) fromLibrary(e Expr, name string, args []Expr, call bool) (Expr, bool) {
	f, ok := library[name]
	if !ok || !call && f.least > 0 || name == "ppid" && len(args) == 0 {
		return nil, false
	}
	if len(args) < f.least || len(args) > f.most {
		x.fail(e, "%s() takes %s, not %d", name, plural(f.most, "argument"), len(args))
	}
	pos, end := e.span()
	return f.tree(&builder{node{pos: pos, end: end}}, args), true
}
